#include "tests/simulation/agreement_checker.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace odb {

void AgreementChecker::OnPlanned(Rank rank, RoundId round, uint64_t digest) {
  if (released_.count(round) > 0) ++num_redone_;
  Round& plans = rounds_[round];
  const auto [planned, is_first] = plans.planned.emplace(rank, digest);
  if (!is_first) {
    --plans.counts[planned->second];
    planned->second = digest;
  }
  ++plans.counts[digest];
}

void AgreementChecker::OnReleased(Rank rank, const ReleaseRound& release) {
  const RoundId round = release.round;
  RoundId& completed = completed_[static_cast<size_t>(rank.value())];
  if (round != completed.next()) {
    verdict_->Add(Checker::kAgreement,
                  absl::StrCat("rank ", rank.value(), " was released round ", round.value(),
                               " after round ", completed.value()));
  }
  completed = round;
  if (rounds_[round].counts[release.plan_digest] != completed_.size()) {
    verdict_->Add(Checker::kAgreement,
                  absl::StrCat("rank ", rank.value(), " was released round ", round.value(),
                               " which some rank had not planned the same way"));
  }
  const auto first = released_.emplace(round, release.plan_digest).first;
  if (first->second != release.plan_digest) {
    verdict_->Add(Checker::kAgreement,
                  absl::StrCat("round ", round.value(), " was released with two digests"));
  }
  const auto [least, most] = std::minmax_element(completed_.begin(), completed_.end());
  if (*most > least->next()) {
    verdict_->Add(Checker::kAgreement,
                  absl::StrCat("round ", most->value(), " is completed and round ",
                               least->next().value(), " is not"));
  }
}

}  // namespace odb
