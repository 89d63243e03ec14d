#pragma once

#include <cstdint>
#include <functional>
#include <ostream>

namespace odb {

// An integer that cannot be mixed up with another kind of integer.
//
// Rank{3} == Rank{3}, Rank{3} < Rank{4}; Rank{3} == RoundId{3} does not compile. Value type, no
// invariants of its own. Threads: as int64_t.
template <typename Tag>
class StrongId {
 public:
  constexpr StrongId() = default;
  explicit constexpr StrongId(int64_t value) : value_(value) {}

  constexpr int64_t value() const { return value_; }
  constexpr StrongId next() const { return StrongId(value_ + 1); }

  friend constexpr bool operator==(StrongId a, StrongId b) { return a.value_ == b.value_; }
  friend constexpr bool operator!=(StrongId a, StrongId b) { return a.value_ != b.value_; }
  friend constexpr bool operator<(StrongId a, StrongId b) { return a.value_ < b.value_; }
  friend constexpr bool operator<=(StrongId a, StrongId b) { return a.value_ <= b.value_; }
  friend constexpr bool operator>(StrongId a, StrongId b) { return a.value_ > b.value_; }
  friend constexpr bool operator>=(StrongId a, StrongId b) { return a.value_ >= b.value_; }
  friend std::ostream& operator<<(std::ostream& out, StrongId id) { return out << id.value_; }

 private:
  int64_t value_ = 0;
};

using Rank = StrongId<struct RankTag>;      // data-parallel rank, 0 .. world size - 1
using RoundId = StrongId<struct RoundTag>;  // counts the rounds of a job, from 1; 0 = none yet
using Epoch = StrongId<struct EpochTag>;    // what the trainer passed to set_epoch
using Generation =
    StrongId<struct GenerationTag>;  // one Gloo mesh of one job, from 1; 0 = none yet

// Which record a sample came from: `source` is the position of the file in the configuration,
// `key` the byte offset of the record in it (or its index, for sources without offsets).
struct SampleId {
  int32_t source = 0;
  int64_t key = 0;

  friend bool operator==(const SampleId& a, const SampleId& b) {
    return a.source == b.source && a.key == b.key;
  }
  friend bool operator!=(const SampleId& a, const SampleId& b) { return !(a == b); }
  friend bool operator<(const SampleId& a, const SampleId& b) {
    return a.source != b.source ? a.source < b.source : a.key < b.key;
  }
};

}  // namespace odb

namespace std {
template <typename Tag>
struct hash<odb::StrongId<Tag>> {
  size_t operator()(odb::StrongId<Tag> id) const { return std::hash<int64_t>()(id.value()); }
};
}  // namespace std
