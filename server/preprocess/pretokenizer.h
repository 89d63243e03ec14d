#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace odb {

// One pattern that cuts a text into pieces, as the tokenizer.json of a model names it.
//
// The patterns are written for Oniguruma or Rust's regex; PCRE2 runs them. Where its classes differ
// (\s has the Mongolian vowel separator, \w lacks marks) they are written out before compiling.
//
// Threads: Split may be called from several threads, each with its own Scratch. Errors of Compile:
// InvalidArgument, with PCRE2's message and the position. Text that is not valid UTF-8, or on which
// the pattern exceeds PCRE2's limits, is one piece.
class SplitPattern {
 public:
  // Whether text between matches is a piece as well (HF "Isolated") or left out ("Removed" with
  // invert).
  enum class Gaps : uint8_t { kKept, kRemoved };

  static absl::StatusOr<std::unique_ptr<SplitPattern>> Compile(absl::string_view pattern,
                                                               Gaps gaps);
  ~SplitPattern();

  // Buffers of one thread.
  class Scratch {
   public:
    virtual ~Scratch() = default;
  };
  std::unique_ptr<Scratch> NewScratch() const;

  // Calls `piece` for each piece of `text`, in order; pieces are views into it.
  void Split(absl::string_view text, Scratch* scratch,
             const std::function<void(absl::string_view)>& piece) const;

 private:
  struct Code;
  SplitPattern(std::unique_ptr<Code> code, Gaps gaps);

  const std::unique_ptr<Code> code_;
  const Gaps gaps_;
};

// The pattern of HF's ByteLevel pre-tokenizer (that of GPT-2).
extern const char kByteLevelPattern[];

}  // namespace odb
