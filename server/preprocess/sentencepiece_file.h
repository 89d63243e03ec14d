#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/preprocess/added_tokens.h"

namespace odb {

// What odbd takes from a SentencePiece .model file, and the model as it is given to SentencePiece.
// Plain data.
struct SentencePieceFile {
  // The file with three changes. No space is put in front of a text (add_dummy_prefix): a text here
  // is a part of a conversation, and goes on from what stands before it, as Hugging Face's
  // Llama tokenizer sees it behind a special token. `markup` is no longer found in a text. And the
  // file's test of itself is gone, which expects the space.
  std::string model;

  // By id: the bytes that the piece stands for, U+2581 being a space.
  std::vector<std::string> token_bytes;

  // Pieces that are found by us, where the markup is wanted, and not by SentencePiece: control
  // pieces (special), the tokens of the template, whatever their type, and user defined
  // pieces written <|...|> (special). Those of <think>, <tool_call> and <tool_response> are not
  // special.
  std::vector<AddedToken> markup;

  // BPE over the bytes of the text as it stands, each of which has ids of its own: then a text may
  // be cut wherever no piece goes across.
  bool is_plain_bpe = false;

  uint64_t digest = 0;  // of the file's bytes
};

// Reads the file.
//   NotFound, PermissionDenied   the file cannot be read
//   InvalidArgument              it is no SentencePiece model, or only a part of one
//   Unimplemented                a kind of model that is not supported: which
absl::StatusOr<SentencePieceFile> ReadSentencePieceFile(const std::string& path);

}  // namespace odb
