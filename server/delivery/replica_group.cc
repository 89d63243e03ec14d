#include "server/delivery/replica_group.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace odb {

ReplicaGroup::ReplicaGroup(Rank rank, int32_t replicas)
    : rank_(rank), replicas_(static_cast<size_t>(replicas)) {}

absl::Status ReplicaGroup::CheckReplica(int32_t replica) const {
  if (replica >= 0 && replica < static_cast<int32_t>(replicas_.size())) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("replica must be in [0, ", replicas_.size(),
                                                 ") for rank ", rank_.value(), ", got ", replica));
}

absl::Status ReplicaGroup::Start(int32_t replica, Epoch epoch, int64_t iterator,
                                 std::optional<int64_t> end_of_last) {
  RETURN_IF_ERROR(CheckReplica(replica));
  Replica& self = replicas_[static_cast<size_t>(replica)];
  if (iterator == self.iterator && epoch == self.epoch) return absl::OkStatus();
  if (iterator != self.iterator + 1 || epoch.value() < 0) {
    return absl::InvalidArgumentError(absl::StrCat("iteration must be ", self.iterator + 1,
                                                   " and epoch >= 0, got iteration ", iterator,
                                                   ", epoch ", epoch.value()));
  }
  if (self.closed) return absl::InvalidArgumentError("the session is closed");
  if (self.iterator >= 0 && !self.left) {
    if (!end_of_last.has_value()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "iteration ", iterator, " was started before iteration ", self.iterator, " was left"));
    }
    RETURN_IF_ERROR(SetEnd(replica, self.iterator, *end_of_last));
  }
  self = Replica();
  self.iterator = iterator;
  self.epoch = epoch;
  for (size_t other = 0; other < replicas_.size(); ++other) {
    const Replica& its = replicas_[other];
    const bool differs = its.iterator == iterator && its.epoch != epoch;
    if (!differs && !(its.closed && its.iterator < iterator)) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "the replicas of rank ", rank_.value(), " disagree: replica ", replica, " started epoch ",
        epoch.value(), " as iteration ", iterator, ", replica ", other,
        differs ? absl::StrCat(" started epoch ", its.epoch.value()) : " closed its session"));
  }
  return absl::OkStatus();
}

absl::Status ReplicaGroup::Progress(int32_t replica, int64_t iterator, int64_t taken,
                                    bool waiting) {
  RETURN_IF_ERROR(CheckReplica(replica));
  Replica& self = replicas_[static_cast<size_t>(replica)];
  if (iterator != self.iterator || self.left) return absl::OkStatus();  // late
  if (taken < 0) return absl::InvalidArgumentError(absl::StrCat("taken must be >= 0, got ", taken));
  self.taken = std::max(self.taken, taken);
  self.waiting_at = waiting ? taken : -1;
  return CheckEnds(iterator);
}

void ReplicaGroup::Waited(int32_t replica, int64_t iterator, TrainerWait wait) {
  Replica& self = replicas_[static_cast<size_t>(replica)];
  if (iterator != self.iterator) return;  // late
  self.wait.total = std::max(self.wait.total, wait.total);
  self.wait.longest = std::max(self.wait.longest, wait.longest);
}

void ReplicaGroup::Returned(int32_t replica, int64_t iterator, int64_t index) {
  Replica& self = replicas_[static_cast<size_t>(replica)];
  if (iterator == self.iterator && !self.left) self.taken = std::max(self.taken, index + 1);
}

absl::Status ReplicaGroup::Leave(int32_t replica, int64_t iterator, int64_t taken) {
  RETURN_IF_ERROR(CheckReplica(replica));
  Replica& self = replicas_[static_cast<size_t>(replica)];
  if (iterator != self.iterator || self.left) return absl::OkStatus();  // repeated
  if (taken < self.taken) {
    return absl::InvalidArgumentError(absl::StrCat("iteration ", iterator, " was left after ",
                                                   taken, " steps, but ", self.taken,
                                                   " were taken"));
  }
  self.taken = taken;
  self.waiting_at = -1;
  self.left = true;
  return SetEnd(replica, iterator, taken);
}

absl::Status ReplicaGroup::Close(int32_t replica, int64_t taken) {
  RETURN_IF_ERROR(CheckReplica(replica));
  Replica& self = replicas_[static_cast<size_t>(replica)];
  if (self.closed) return absl::OkStatus();
  self.closed = true;
  for (size_t other = 0; other < replicas_.size(); ++other) {
    if (replicas_[other].iterator <= self.iterator) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "the replicas of rank ", rank_.value(), " disagree: replica ", replica,
        " closed its session, replica ", other, " started iteration ", replicas_[other].iterator));
  }
  if (self.iterator < 0 || self.left) return absl::OkStatus();
  return Leave(replica, self.iterator, std::max(taken, self.taken));
}

bool ReplicaGroup::waiting(int32_t replica) const {
  return at(replica).waiting_at == at(replica).taken;
}

int64_t ReplicaGroup::started() const {
  int64_t started = replicas_.front().iterator;
  for (const Replica& replica : replicas_) started = std::min(started, replica.iterator);
  return started;
}

Epoch ReplicaGroup::epoch() const {
  const int64_t iterator = started();
  for (const Replica& replica : replicas_) {
    if (replica.iterator == iterator) return replica.epoch;
  }
  return Epoch();
}

int64_t ReplicaGroup::TakenOf(int32_t replica, int64_t iterator) const {
  if (at(replica).iterator == iterator) return at(replica).taken;
  if (at(replica).iterator < iterator) return 0;
  const auto ends = ends_.find(iterator);
  if (ends == ends_.end()) return 0;
  return ends->second[static_cast<size_t>(replica)].value_or(0);
}

int64_t ReplicaGroup::taken_max(int64_t iterator) const {
  int64_t taken = 0;
  for (size_t i = 0; i < replicas_.size(); ++i) {
    taken = std::max(taken, TakenOf(static_cast<int32_t>(i), iterator));
  }
  return taken;
}

int64_t ReplicaGroup::taken_min(int64_t iterator) const {
  int64_t taken = TakenOf(0, iterator);
  for (size_t i = 1; i < replicas_.size(); ++i) {
    taken = std::min(taken, TakenOf(static_cast<int32_t>(i), iterator));
  }
  return taken;
}

bool ReplicaGroup::any_waiting(int64_t iterator) const {
  const int64_t taken = taken_max(iterator);
  return std::any_of(replicas_.begin(), replicas_.end(), [&](const Replica& replica) {
    return replica.iterator == iterator && replica.taken == taken && replica.waiting_at == taken;
  });
}

std::optional<int64_t> ReplicaGroup::left_at(int64_t iterator) const {
  const auto ends = ends_.find(iterator);
  if (ends == ends_.end()) return std::nullopt;
  for (const auto& end : ends->second) {
    if (!end.has_value()) return std::nullopt;
  }
  return ends->second.front();
}

bool ReplicaGroup::all_closed() const {
  return std::all_of(replicas_.begin(), replicas_.end(),
                     [](const Replica& replica) { return replica.closed; });
}

TrainerWait ReplicaGroup::wait() const {
  const auto most = std::max_element(
      replicas_.begin(), replicas_.end(),
      [](const Replica& a, const Replica& b) { return a.wait.total < b.wait.total; });
  return most->wait;
}

int32_t ReplicaGroup::straggler() const {
  int64_t furthest = -1;
  for (const Replica& replica : replicas_) furthest = std::max(furthest, replica.iterator);
  for (size_t i = 0; i < replicas_.size(); ++i) {
    if (replicas_[i].iterator < furthest) return static_cast<int32_t>(i);
  }
  return -1;
}

absl::Status ReplicaGroup::SetEnd(int32_t replica, int64_t iterator, int64_t taken) {
  auto& ends = ends_[iterator];
  ends.resize(replicas_.size());
  ends[static_cast<size_t>(replica)] = taken;
  while (ends_.begin()->first < iterator - 1) ends_.erase(ends_.begin());
  return CheckEnds(iterator);
}

absl::Status ReplicaGroup::CheckEnds(int64_t iterator) const {
  const auto found = ends_.find(iterator);
  if (found == ends_.end()) return absl::OkStatus();
  for (size_t first = 0; first < replicas_.size(); ++first) {
    const auto& end = found->second[first];
    if (!end.has_value()) continue;
    for (size_t second = 0; second < replicas_.size(); ++second) {
      const auto& other_end = found->second[second];
      const int64_t taken = TakenOf(static_cast<int32_t>(second), iterator);
      if (other_end.has_value() ? *other_end == *end : taken <= *end) continue;
      return absl::FailedPreconditionError(absl::StrCat(
          "the replicas of rank ", rank_.value(), " left iteration ", iterator,
          " at different steps: replica ", first, " after ", *end, ", replica ", second, " after ",
          other_end.value_or(taken), other_end.has_value() ? "" : " or more"));
    }
  }
  return absl::OkStatus();
}

}  // namespace odb
