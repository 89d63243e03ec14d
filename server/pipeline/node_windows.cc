#include "server/pipeline/node_windows.h"

#include <cstddef>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace odb {

void NodeWindows::Offer(Rank rank, RoundId round, std::vector<WindowSample> samples) {
  MutexLock lock(&mutex_);
  // The last round is completed, so everybody has taken its part of the one before.
  for (const auto& [key, offered] : offered_) {
    INVARIANT(key.second != rank || key.first.next() == round, "a plan lost a sample");
  }
  withdrawn_.erase(rank);
  if (samples.empty()) return;
  Offered& offered = offered_[{round, rank}];
  offered.taken.assign(samples.size(), false);
  offered.num_left = static_cast<int64_t>(samples.size());
  offered.samples = std::move(samples);
}

absl::StatusOr<std::vector<std::vector<WindowSample>>> NodeWindows::Take(
    RoundId round, absl::Span<const PlannedGroup> groups) {
  MutexLock lock(&mutex_);
  for (const PlannedGroup& group : groups) {
    for (const SampleRef ref : group.samples) RETURN_IF_ERROR(CheckThereLocked(round, ref));
  }
  std::vector<std::vector<WindowSample>> steps(groups.size());
  for (size_t step = 0; step < groups.size(); ++step) {
    steps[step].reserve(groups[step].samples.size());
    for (const SampleRef ref : groups[step].samples) {
      steps[step].push_back(TakeLocked({round, Rank(ref.rank)}, ref.position));
    }
  }
  return steps;
}

std::vector<WindowSample> NodeWindows::TakeBack(Rank rank, RoundId round,
                                                absl::Span<const int32_t> positions) {
  MutexLock lock(&mutex_);
  std::vector<WindowSample> samples;
  samples.reserve(positions.size());
  for (const int32_t position : positions) samples.push_back(TakeLocked({round, rank}, position));
  return samples;
}

int64_t NodeWindows::Withdraw(Rank rank, const absl::Status& why) {
  INVARIANT(!why.ok(), "a withdrawal without a reason");
  MutexLock lock(&mutex_);
  withdrawn_[rank] = why;
  int64_t num_left = 0;
  for (auto entry = offered_.begin(); entry != offered_.end();) {
    if (entry->first.second != rank) {
      ++entry;
      continue;
    }
    num_left += entry->second.num_left;
    entry = offered_.erase(entry);
  }
  return num_left;
}

absl::Status NodeWindows::CheckThereLocked(RoundId round, SampleRef ref) const {
  const auto position = static_cast<size_t>(ref.position);
  const auto offered = offered_.find({round, Rank(ref.rank)});
  const bool is_there = offered != offered_.end() && position < offered->second.taken.size() &&
                        !offered->second.taken[position];
  if (is_there) return absl::OkStatus();
  const auto withdrawn = withdrawn_.find(Rank(ref.rank));
  if (withdrawn != withdrawn_.end()) return withdrawn->second;
  return absl::InternalError(absl::StrCat("the plan of round ", round.value(), " names sample ",
                                          ref.position, " of rank ", ref.rank,
                                          ", which this node does not have"));
}

WindowSample NodeWindows::TakeLocked(const Key& key, int32_t position) {
  const auto offered = offered_.find(key);
  const auto index = static_cast<size_t>(position);
  INVARIANT(offered != offered_.end() && index < offered->second.taken.size() &&
                !offered->second.taken[index],
            "a plan names a sample twice, or none");
  offered->second.taken[index] = true;
  WindowSample sample = std::move(offered->second.samples[index]);
  if (--offered->second.num_left == 0) offered_.erase(offered);
  return sample;
}

}  // namespace odb
