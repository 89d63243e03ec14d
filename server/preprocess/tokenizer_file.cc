#include "server/preprocess/tokenizer_file.h"

#include <fstream>

#include "absl/strings/match.h"
#include "base/status_macros.h"
#include "server/preprocess/bpe_tokenizer.h"
#include "server/preprocess/sentencepiece_tokenizer.h"
#include "server/preprocess/tokenizer_file_error.h"

namespace odb {
namespace {

bool BeginsAsJson(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  char first = '{';  // of a file that cannot be read: either loader says why
  return !(file >> first) || first == '{';
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizerFile(const std::string& path) {
  RETURN_IF_ERROR(CheckTokenizerFile(path));
  const bool is_model =
      absl::EndsWith(path, ".model") || (!absl::EndsWith(path, ".json") && !BeginsAsJson(path));
  return is_model ? LoadSentencePieceTokenizer(path) : LoadBpeTokenizer(path);
}

}  // namespace odb
