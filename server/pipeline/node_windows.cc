#include "server/pipeline/node_windows.h"

#include <cstddef>
#include <iterator>
#include <utility>

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
  Lookup lookup{round};
  for (const PlannedGroup& group : groups) {
    for (const SampleRef ref : group.samples) RETURN_IF_ERROR(CheckThereLocked(ref, &lookup));
  }
  std::vector<std::vector<WindowSample>> steps(groups.size());
  for (size_t step = 0; step < groups.size(); ++step) {
    steps[step].reserve(groups[step].samples.size());
    for (const SampleRef ref : groups[step].samples) {
      steps[step].push_back(TakeOut(FindLocked(Rank(ref.rank), &lookup), ref.position));
    }
  }
  DropTakenLocked();
  return steps;
}

std::vector<WindowSample> NodeWindows::TakeBack(Rank rank, RoundId round,
                                                absl::Span<const int32_t> positions) {
  MutexLock lock(&mutex_);
  std::vector<WindowSample> samples;
  if (positions.empty()) return samples;
  Lookup lookup{round};
  Offered* const offered = FindLocked(rank, &lookup);
  // The window will be filled again to the size that it had.
  if (offered != nullptr) samples.reserve(offered->samples.size());
  for (const int32_t position : positions) samples.push_back(TakeOut(offered, position));
  DropTakenLocked();
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

NodeWindows::Offered* NodeWindows::FindLocked(Rank rank, Lookup* lookup) {
  if (lookup->rank != rank) {
    const auto offered = offered_.find({lookup->round, rank});
    lookup->rank = rank;
    lookup->offered = offered == offered_.end() ? nullptr : &offered->second;
  }
  return lookup->offered;
}

absl::Status NodeWindows::CheckThereLocked(SampleRef ref, Lookup* lookup) {
  const auto position = static_cast<size_t>(ref.position);
  const Offered* const offered = FindLocked(Rank(ref.rank), lookup);
  const bool is_there =
      offered != nullptr && position < offered->taken.size() && !offered->taken[position];
  if (is_there) return absl::OkStatus();
  const auto withdrawn = withdrawn_.find(Rank(ref.rank));
  if (withdrawn != withdrawn_.end()) return withdrawn->second;
  return absl::InternalError(absl::StrCat("the plan of round ", lookup->round.value(),
                                          " names sample ", ref.position, " of rank ", ref.rank,
                                          ", which this node does not have"));
}

WindowSample NodeWindows::TakeOut(Offered* offered, int32_t position) {
  const auto index = static_cast<size_t>(position);
  INVARIANT(offered != nullptr && index < offered->taken.size() && !offered->taken[index],
            "a plan names a sample twice, or none");
  offered->taken[index] = true;
  --offered->num_left;
  return std::move(offered->samples[index]);
}

void NodeWindows::DropTakenLocked() {
  for (auto entry = offered_.begin(); entry != offered_.end();) {
    entry = entry->second.num_left == 0 ? offered_.erase(entry) : std::next(entry);
  }
}

}  // namespace odb
