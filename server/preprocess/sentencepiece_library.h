#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace odb {

// A model that SentencePiece has loaded, and SentencePiece itself, which is loaded with the first
// one and stays (sentencepiece_shim.h says why it is not linked).
//
// Threads: immutable, so thread-safe. Errors of Open: FailedPrecondition (libodb_sentencepiece.so
// is not beside this program, in ../lib or in Bazel's layout, or the library that it needs is not
// installed), InvalidArgument (the model is refused: what SentencePiece says).
class SentencePieces {
 public:
  // `model` are the bytes of a .model file.
  static absl::StatusOr<std::unique_ptr<const SentencePieces>> Open(absl::string_view model);
  virtual ~SentencePieces() = default;

  // Appends the ids of `text`.
  virtual void Encode(absl::string_view text, std::vector<int32_t>* out) const = 0;

  virtual int32_t pad_id() const = 0;  // -1: none
  virtual int32_t unk_id() const = 0;
};

}  // namespace odb
