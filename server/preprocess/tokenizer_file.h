#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/preprocess/tokenizer.h"

namespace odb {

// The tokenizer of a file: a name that ends in .model is a SentencePiece model's, one that ends in
// .json a tokenizer.json's; of any other name the content decides (JSON begins with a brace).
// Errors: those of LoadSentencePieceTokenizer, LoadBpeTokenizer and CheckTokenizerFile.
absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizerFile(const std::string& path);

}  // namespace odb
