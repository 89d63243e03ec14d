#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/preprocess/tokenizer.h"

namespace odb {

// The ids that SentencePiece gives for a .model file (unigram or BPE), with two settings of our
// own, both of sentencepiece_file.h: no space is added in front of a text, and control and chat
// tokens are found where the template wants them and nowhere else. Invalid UTF-8 is encoded as
// U+FFFD.
//
// The pad token is the model's own; else the one that tokenizer_config.json beside the file names
// (pad_token, else eos_token), if it is a control or chat token; else the unknown one.
//
// One model serves all threads. Errors: those of ReadSentencePieceFile and SentencePieces::Open,
// with the file's name.
absl::StatusOr<std::unique_ptr<Tokenizer>> LoadSentencePieceTokenizer(const std::string& path);

}  // namespace odb
