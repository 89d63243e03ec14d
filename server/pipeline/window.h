#pragma once

#include <cstdint>
#include <vector>

#include "base/byte_meter.h"
#include "batching/offer.h"
#include "server/preprocess/sample.h"

namespace odb {

// A sample on its way from the feed to a step.
struct WindowSample {
  Sample sample;
  int64_t record = 0;  // index into the dataset
  int32_t waited_rounds = 0;
  uint64_t id_hash = 0;
  ByteCharge charge;  // of SampleBytes, until no window, plan or step at work holds it

  SampleShape shape() const;
};

// The samples that one rank buffers, in window order: what earlier rounds left over first, in the
// order of their plans, then new ones.
//
// Ownership: owns the samples. Threads: thread-compatible.
class Window {
 public:
  explicit Window(int32_t capacity) : capacity_(capacity) {}

  void Add(WindowSample sample);  // must not be full

  bool full() const { return size() >= capacity_; }
  bool empty() const { return samples_.empty(); }
  int32_t size() const { return static_cast<int32_t>(samples_.size()); }
  int32_t capacity() const { return capacity_; }
  const WindowSample& at(int32_t position) const { return samples_[static_cast<size_t>(position)]; }

  std::vector<SampleShape> Shapes() const;

  // Moves all samples out, for an offer.
  std::vector<WindowSample> TakeAll();
  // Heads the window, which must be empty, with what the round left over, in the plan's order, one
  // waited round older.
  void PutBack(std::vector<WindowSample> leftovers);

  void Clear() { samples_.clear(); }

 private:
  const int32_t capacity_;
  std::vector<WindowSample> samples_;
};

}  // namespace odb
