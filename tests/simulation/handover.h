#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "batching/offer.h"
#include "batching/plan.h"
#include "tests/simulation/simulator.h"

namespace odb {

// Where the ranks of one node leave samples for each other (scope node): a rank that is released a
// round leaves what the plan gives to others, and those take it when their steps come up. Nobody
// knows who is released first.
//
// Ownership: the simulator must outlive it. Threads: one.
class Handover {
 public:
  explicit Handover(Simulator* simulator) : simulator_(simulator) {}
  Handover(const Handover&) = delete;
  Handover& operator=(const Handover&) = delete;

  // `on_arrival` is called whenever something was left for `rank`.
  void Join(Rank rank, std::function<void()> on_arrival) {
    on_arrival_[rank] = std::move(on_arrival);
  }

  // A sample that `ref.rank` offered in `round`. It is there a little later.
  void Leave(Rank to, RoundId round, SampleRef ref, const SampleShape& sample) {
    simulator_->After(simulator_->Between(absl::ZeroDuration(), absl::Milliseconds(1)),
                      [this, to, round, ref, sample] {
                        left_.emplace(std::make_tuple(round, ref), sample);
                        on_arrival_[to]();
                      });
  }

  // Nothing: it is not there yet.
  std::optional<SampleShape> Take(RoundId round, SampleRef ref) {
    const auto found = left_.find(std::make_tuple(round, ref));
    if (found == left_.end()) return std::nullopt;
    const SampleShape sample = found->second;
    left_.erase(found);
    return sample;
  }

 private:
  Simulator* const simulator_;
  std::map<Rank, std::function<void()>> on_arrival_;
  std::map<std::tuple<RoundId, SampleRef>, SampleShape> left_;
};

}  // namespace odb
