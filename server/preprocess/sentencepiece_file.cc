#include "server/preprocess/sentencepiece_file.h"

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/hash.h"
#include "base/status_macros.h"
#include "server/preprocess/sentencepiece_model.pb.h"
#include "server/preprocess/tokenizer_file_error.h"

namespace odb {
namespace {

using sentencepiece_file::Model;

enum PieceType { kUnknown = 2, kControl = 3, kUserDefined = 4, kByte = 6 };
enum ModelType { kUnigram = 1, kBpe = 2 };

constexpr int64_t kFileBytesMax = int64_t{256} << 20;  // the largest in use have 15 MB
constexpr char kSpace[] = "\xe2\x96\x81";              // U+2581, as pieces write a space

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return TokenizerFileError(path, errno);
  const auto size = static_cast<int64_t>(file.tellg());
  if (size > kFileBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("tokenizer file ", path, " has ", size,
                                                   " bytes; allowed are ", kFileBytesMax));
  }
  std::string bytes(static_cast<size_t>(std::max<int64_t>(size, 0)), '\0');
  file.seekg(0);
  file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!file) return TokenizerFileError(path, errno != 0 ? errno : EIO);
  return bytes;
}

bool IsText(absl::string_view bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte >= ' ' || byte == '\n' || byte == '\r' || byte == '\t';
  });
}

absl::StatusOr<Model> ParseModel(const std::string& path, const std::string& bytes) {
  Model model;
  // Both specs come behind the pieces: a file that was cut between two fields lacks one.
  if (model.ParseFromString(bytes) && model.pieces_size() > 0 && model.has_trainer_spec() &&
      model.has_normalizer_spec()) {
    return model;
  }
  const char* const why =
      !bytes.empty() && IsText(bytes)
          ? "it is a text (models with a tiktoken file have a tokenizer.json beside it)"
          : "its bytes are something else, or were cut short";
  return absl::InvalidArgumentError(
      absl::StrCat("tokenizer file ", path, " is no SentencePiece model: ", why));
}

absl::Status CheckSupported(const std::string& path, const Model& model) {
  const auto refuse = [&path](absl::string_view what) {
    return absl::UnimplementedError(absl::StrCat("tokenizer file ", path, ": ", what));
  };
  const int32_t type = model.trainer_spec().model_type();
  if (type != kUnigram && type != kBpe) {
    return refuse(absl::StrCat("SentencePiece's model_type ", type,
                               " is not supported (1, unigram, and 2, BPE, are)"));
  }
  for (int i = 0; i < model.pieces_size(); ++i) {
    if (model.pieces(i).piece().empty()) return refuse(absl::StrCat("piece ", i, " is empty"));
    // SentencePiece takes such a character in a text for the piece, and then loses count.
    if (model.pieces(i).type() == kControl && model.pieces(i).piece().size() == 1) {
      return refuse(absl::StrCat("control piece ", i, " (", model.pieces(i).piece(),
                                 ") is a single character"));
    }
  }
  return absl::OkStatus();
}

bool IsPlainMarkup(absl::string_view piece) {
  for (const char* const token : {"<think>", "</think>", "<tool_call>", "</tool_call>",
                                  "<tool_response>", "</tool_response>"}) {
    if (piece == token) return true;
  }
  return false;
}

bool IsMarkup(const Model::Piece& piece) {
  if (piece.type() == kControl) return true;
  if (piece.type() != kUserDefined) return false;
  return IsPlainMarkup(piece.piece()) ||
         (absl::StartsWith(piece.piece(), "<|") && absl::EndsWith(piece.piece(), "|>"));
}

std::string TokenBytesOf(const Model::Piece& piece) {
  if (piece.type() == kByte) {  // <0x0A>
    uint32_t byte = 0;
    const absl::string_view hex = absl::string_view(piece.piece()).substr(0, 5);
    if (hex.size() == 5 && absl::SimpleHexAtoi(hex.substr(3), &byte)) {
      return std::string(1, static_cast<char>(byte));
    }
  }
  if (piece.type() == kControl || piece.type() == kUnknown) return piece.piece();
  return absl::StrReplaceAll(piece.piece(), {{kSpace, " "}});
}

bool IsPlainBpe(const Model& model) {
  const Model::Normalizer& normalizer = model.normalizer_spec();
  return model.trainer_spec().model_type() == kBpe && model.trainer_spec().byte_fallback() &&
         normalizer.precompiled_charsmap().empty() && normalizer.escape_whitespaces() &&
         !normalizer.remove_extra_whitespaces();
}

}  // namespace

absl::StatusOr<SentencePieceFile> ReadSentencePieceFile(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path));
  ASSIGN_OR_RETURN(Model model, ParseModel(path, bytes));
  RETURN_IF_ERROR(CheckSupported(path, model));
  SentencePieceFile file;
  file.digest = HashCombine(Hash64("SentencePiece 1"), Hash64(bytes));
  file.is_plain_bpe = IsPlainBpe(model);
  for (int id = 0; id < model.pieces_size(); ++id) {
    Model::Piece& piece = *model.mutable_pieces(id);
    file.token_bytes.push_back(TokenBytesOf(piece));
    if (!IsMarkup(piece)) continue;
    piece.set_type(kControl);
    AddedToken token;
    token.id = id;
    token.text = piece.piece();
    token.special = !IsPlainMarkup(piece.piece());
    file.markup.push_back(std::move(token));
  }
  model.mutable_normalizer_spec()->set_add_dummy_prefix(false);
  model.clear_self_test_data();
  file.model = model.SerializeAsString();
  return file;
}

}  // namespace odb
