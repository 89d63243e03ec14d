#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "batching/offer.h"

namespace odb {

// What one group may hold. A sample that breaks a limit by itself forms a group alone.
struct GroupLimits {
  int64_t budget = 0;                  // padded tokens: group size x PaddedLength(longest), >= 1
  int32_t max_samples = 0;             // 0 = no limit
  int64_t max_vision_load = 0;         // sum over the group; 0 = no limit
  int32_t pad_to_multiple_of = 1;      // >= 1
  std::vector<int32_t> shape_buckets;  // ascending, multiples of the above; empty = none
};

// Tokens that one row of a group takes whose longest sample has `length` tokens: the first of
// `shape_buckets` that holds it; a multiple of the last one if none does; without any, a multiple
// of `pad_to_multiple_of`. Never falls when `length` grows.
inline int64_t PaddedLength(int32_t length, int32_t pad_to_multiple_of,
                            absl::Span<const int32_t> shape_buckets) {
  int64_t multiple = pad_to_multiple_of;
  if (!shape_buckets.empty()) {
    const auto bucket = std::lower_bound(shape_buckets.begin(), shape_buckets.end(), length);
    if (bucket != shape_buckets.end()) return *bucket;
    multiple = shape_buckets.back();
  }
  if (multiple == 1) return length;  // one division less for each sample of a window
  return (length + multiple - 1) / multiple * multiple;
}

// A group as a stretch [begin, end) of a window's order by length; never empty.
struct GroupRun {
  int32_t begin = 0;
  int32_t end = 0;

  int32_t size() const { return end - begin; }
  friend bool operator==(GroupRun a, GroupRun b) { return a.begin == b.begin && a.end == b.end; }
};

// A window cut into groups.
struct GroupedWindow {
  std::vector<int32_t> order;    // window positions by ascending length, ties in window order
  std::vector<GroupRun> groups;  // partition of `order`: groups of short samples first
};

// The published local grouping rule (arXiv 2606.19989 as the authors' package 0.1.2 implements it).
//
// Samples are taken from the longest to the shortest, with a capacity C that is 0 at first:
//   a. if the open group is not empty and its vision load + this sample's > max_vision_load, the
//      open group is closed (C stays);
//   b. the sample joins the open group, at its front;
//   c. if the group's size is now >= C, C becomes GroupCapacity(this sample) and it is closed.
// So the longest sample is always alone, and the capacity of a group follows from the shortest
// sample of the group before, which is not shorter than any sample of this one: groups of two or
// more keep every limit.
//
// Lengths must be > 0. Deterministic; O(samples).
GroupedWindow GroupByLength(absl::Span<const SampleShape> window, const GroupLimits& limits);

// Samples that a group may hold in which none is longer than `sample` [samples]:
//   max(1, min(floor(budget / PaddedLength(length)), max_samples,
//              floor(max_vision_load / vision_load)))
// where limits of 0, and a vision load of 0, do not count. 1 for a sample that is to be alone.
int64_t GroupCapacity(const SampleShape& sample, const GroupLimits& limits);

}  // namespace odb
