#include "server/preprocess/bpe_merger.h"

#include <algorithm>
#include <limits>

namespace odb {
namespace {

// Up to this many bytes scanning all pairs for each merge beats a heap.
constexpr size_t kShortWord = 40;
constexpr int32_t kNoRank = std::numeric_limits<int32_t>::max();

uint64_t PairKey(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

}  // namespace

void BpeMerger::AddMerge(int32_t left, int32_t right, int32_t merged) {
  merges_[PairKey(left, right)] = Merged{num_added_++, merged};
}

const BpeMerger::Merged* BpeMerger::Find(int32_t left, int32_t right) const {
  const auto found = merges_.find(PairKey(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

void BpeMerger::Merge(absl::string_view word, Scratch* scratch, std::vector<int32_t>* out) const {
  if (word.size() == 1) {
    out->push_back(byte_ids_[static_cast<unsigned char>(word[0])]);
  } else if (word.size() <= kShortWord) {
    MergeShort(word, scratch, out);
  } else {
    MergeLong(word, scratch, out);
  }
}

void BpeMerger::MergeShort(absl::string_view word, Scratch* scratch,
                           std::vector<int32_t>* out) const {
  std::vector<int32_t>& ids = scratch->ids_;
  std::vector<int32_t>& ranks = scratch->ranks_;
  const auto rank_at = [&](size_t i) {
    if (i + 1 >= ids.size()) return kNoRank;
    const Merged* merged = Find(ids[i], ids[i + 1]);
    return merged == nullptr ? kNoRank : merged->rank;
  };
  ids.clear();
  for (const char c : word) ids.push_back(byte_ids_[static_cast<unsigned char>(c)]);
  ranks.clear();
  for (size_t i = 0; i < ids.size(); ++i) ranks.push_back(rank_at(i));

  while (true) {
    const auto lowest = std::min_element(ranks.begin(), ranks.end());
    if (lowest == ranks.end() || *lowest == kNoRank) break;
    const size_t at = static_cast<size_t>(lowest - ranks.begin());
    ids[at] = Find(ids[at], ids[at + 1])->id;
    ids.erase(ids.begin() + static_cast<int64_t>(at) + 1);
    ranks.erase(lowest + 1);
    ranks[at] = rank_at(at);
    if (at > 0) ranks[at - 1] = rank_at(at - 1);
  }
  out->insert(out->end(), ids.begin(), ids.end());
}

void BpeMerger::PushPair(int32_t position, Scratch* scratch) const {
  if (position < 0) return;
  const Scratch::Symbol& left = scratch->symbols_[static_cast<size_t>(position)];
  if (left.next < 0) return;
  const int32_t right_id = scratch->symbols_[static_cast<size_t>(left.next)].id;
  const Merged* merged = Find(left.id, right_id);
  if (merged == nullptr) return;
  scratch->heap_.push_back({merged->rank, position, left.id, right_id, merged->id});
  std::push_heap(scratch->heap_.begin(), scratch->heap_.end(), Scratch::Later());
}

void BpeMerger::MergeLong(absl::string_view word, Scratch* scratch,
                          std::vector<int32_t>* out) const {
  constexpr int32_t kGone = -1;  // id of a symbol that was joined to the one before it
  auto& symbols = scratch->symbols_;
  auto& heap = scratch->heap_;
  const int32_t size = static_cast<int32_t>(word.size());
  symbols.clear();
  heap.clear();
  for (int32_t i = 0; i < size; ++i) {
    const auto byte = static_cast<unsigned char>(word[static_cast<size_t>(i)]);
    symbols.push_back({byte_ids_[byte], i - 1, i + 1 < size ? i + 1 : -1});
  }
  for (int32_t i = 0; i + 1 < size; ++i) PushPair(i, scratch);

  while (!heap.empty()) {
    const Scratch::Candidate best = heap.front();
    std::pop_heap(heap.begin(), heap.end(), Scratch::Later());
    heap.pop_back();
    Scratch::Symbol& left = symbols[static_cast<size_t>(best.position)];
    if (left.id != best.left || left.next < 0) continue;
    Scratch::Symbol& right = symbols[static_cast<size_t>(left.next)];
    if (right.id != best.right) continue;
    left.id = best.merged;
    right.id = kGone;
    left.next = right.next;
    if (left.next >= 0) symbols[static_cast<size_t>(left.next)].previous = best.position;
    PushPair(left.previous, scratch);
    PushPair(best.position, scratch);
  }
  for (int32_t i = 0; i >= 0; i = symbols[static_cast<size_t>(i)].next) {
    out->push_back(symbols[static_cast<size_t>(i)].id);
  }
}

}  // namespace odb
