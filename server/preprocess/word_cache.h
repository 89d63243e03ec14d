#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/hash.h"

namespace odb {

// Words seen lately and their tokens. A fixed number of places, one for each word to be in: what is
// put there later replaces what was there, so it never grows.
//
// Threads: thread-compatible; each thread has its own (scratch_pool.h).
class WordCache {
 public:
  static constexpr size_t kLongestWord = 32;  // bytes; longer ones seldom come back

  struct Entry {
    std::string word;
    std::vector<int32_t> ids;
  };

  WordCache() : entries_(kNumEntries) {}
  Entry& PlaceOf(absl::string_view word) { return entries_[Hash64(word) % kNumEntries]; }

 private:
  static constexpr size_t kNumEntries = size_t{1} << 14;
  std::vector<Entry> entries_;
};

}  // namespace odb
