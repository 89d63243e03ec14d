#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"

namespace odb {

// Joins the bytes of one word into tokens by a list of ranked merges: the pair with the lowest rank
// first, the leftmost of equal ones first, until no pair is left.
//
// Threads: Merge may be called from several threads, each with its own Scratch; AddMerge before
// that. Errors: none.
class BpeMerger {
 public:
  // `byte_ids`: the token of each single byte, 256 of them.
  explicit BpeMerger(std::vector<int32_t> byte_ids) : byte_ids_(std::move(byte_ids)) {}

  // Pairs are added in order of rank. A pair that comes twice has its last rank.
  void AddMerge(int32_t left, int32_t right, int32_t merged);
  void Reserve(size_t num_merges) { merges_.reserve(num_merges); }

  class Scratch;

  // Appends the tokens of `word` to `out`. O(n log n) time, whatever the word.
  void Merge(absl::string_view word, Scratch* scratch, std::vector<int32_t>* out) const;

 private:
  struct Merged {
    int32_t rank;
    int32_t id;
  };

  const Merged* Find(int32_t left, int32_t right) const;
  void MergeShort(absl::string_view word, Scratch* scratch, std::vector<int32_t>* out) const;
  void MergeLong(absl::string_view word, Scratch* scratch, std::vector<int32_t>* out) const;
  void PushPair(int32_t position, Scratch* scratch) const;

  const std::vector<int32_t> byte_ids_;
  absl::flat_hash_map<uint64_t, Merged> merges_;  // looked up only, never iterated
  int32_t num_added_ = 0;
};

// Buffers of one thread.
class BpeMerger::Scratch {
 private:
  friend class BpeMerger;

  struct Symbol {
    int32_t id;
    int32_t previous;  // -1 at the ends
    int32_t next;
  };
  struct Candidate {
    int32_t rank;
    int32_t position;  // of the left symbol
    int32_t left;      // ids that the symbols had; if they changed, the candidate is stale
    int32_t right;
    int32_t merged;
  };
  struct Later {
    bool operator()(const Candidate& a, const Candidate& b) const {
      return a.rank != b.rank ? a.rank > b.rank : a.position > b.position;
    }
  };

  std::vector<int32_t> ids_;
  std::vector<int32_t> ranks_;  // of the pair (i, i + 1)
  std::vector<Symbol> symbols_;
  std::vector<Candidate> heap_;
};

}  // namespace odb
