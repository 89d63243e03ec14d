// What a rank makes of a trainer that died, and of the end of an epoch that waits for one.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "server/delivery/rank_runtime_impl.h"

namespace odb {

absl::Status RankRuntimeImpl::OnTrainerLost(int32_t replica, absl::string_view text) {
  std::string sentence;
  bool is_closed = false;
  {
    MutexLock lock(&mutex_);
    if (group_.closed(replica) || !failure_.ok()) return absl::OkStatus();
    sentence = DescribeLossLocked(replica, text);
    is_closed = CloseFinishedLocked(replica);
    lost_ = !is_closed;
    WakeAllLocked();
  }
  if (is_closed) {
    TellPipeline();
    return absl::AbortedError(sentence);
  }
  pipeline_.Fail(ClosingReason::kTrainerLost, absl::AbortedError(sentence));
  FailOwn(absl::AbortedError(sentence));
  return absl::OkStatus();
}

std::string RankRuntimeImpl::DescribeLossLocked(int32_t replica, absl::string_view text) const {
  std::string sentence = absl::StrCat("rank ", options_.rank.value());
  if (options_.replicas > 1) absl::StrAppend(&sentence, ", replica ", replica);
  absl::StrAppend(&sentence, " lost its trainer: ", text, "; ");
  const int64_t taken = group_.taken(replica);
  if (taken > 0) {
    absl::StrAppend(&sentence, "the last step it took was ", taken - 1, " of iteration ",
                    group_.iterator(replica));
  } else {
    absl::StrAppend(&sentence, "it had taken no step of iteration ",
                    std::max<int64_t>(0, group_.iterator(replica)));
  }
  return sentence;
}

// Closes the session in place of a trainer that is through with its last iteration. False if it was
// in the middle of one, had started none, or the other replicas went on to another.
bool RankRuntimeImpl::CloseFinishedLocked(int32_t replica) {
  const int64_t iterator = group_.iterator(replica);
  const int64_t taken = group_.taken(replica);
  const bool at_end = end_.has_value() && end_->iterator == iterator && taken >= end_->steps;
  if (iterator < 0 || !(group_.left(replica) || at_end)) return false;
  if (!group_.Close(replica, taken).ok()) return false;
  AccountLocked();
  DeliveryLog::Outcome outcome;
  log_.Leave(replica, iterator, taken, &outcome);
  SettleLocked(outcome);
  return true;
}

bool RankRuntimeImpl::IsThrough(int64_t iterator, int64_t steps) const {
  MutexLock lock(&mutex_);
  for (int32_t replica = 0; replica < options_.replicas; ++replica) {
    const int64_t its = group_.iterator(replica);
    const bool in_it = its == iterator && !group_.left(replica) && group_.taken(replica) < steps;
    if (!group_.closed(replica) && (its < iterator || in_it)) return false;
  }
  return true;
}

// The next update is the end of an epoch of which the replica has not taken all steps. A trainer
// that has the end cannot be told of another one's death any more, so it does not get it early.
bool RankRuntimeImpl::HoldsEndLocked(int32_t replica) const {
  const v1::TrainerUpdate* const next = log_.Peek(replica);
  if (next == nullptr || !next->has_epoch_end()) return false;
  const v1::EpochEnd& end = next->epoch_end();
  return group_.iterator(replica) == end.iterator() && !group_.left(replica) &&
         group_.taken(replica) < end.steps();
}

}  // namespace odb
