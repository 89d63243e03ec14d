#include "tests/simulation/failure_checker.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace odb {
namespace {

absl::StatusCode CodeOf(Ending ending) {
  switch (ending) {
    case Ending::kSuccess:
      return absl::StatusCode::kOk;
    case Ending::kBreakMismatch:
      return absl::StatusCode::kFailedPrecondition;
    case Ending::kTrainerLost:
    case Ending::kRestartLoop:
      return absl::StatusCode::kAborted;
    case Ending::kDivergence:
      return absl::StatusCode::kInternal;
    case Ending::kNodeLost:
      return absl::StatusCode::kUnavailable;
    case Ending::kRankMissing:
      return absl::StatusCode::kDeadlineExceeded;
  }
  return absl::StatusCode::kUnknown;
}

bool ConsumeNumber(absl::string_view* text, int64_t* number) {
  size_t length = 0;
  *number = 0;
  while (length < text->size() &&
         absl::ascii_isdigit(static_cast<unsigned char>((*text)[length]))) {
    *number = *number * 10 + ((*text)[length++] - '0');
  }
  text->remove_prefix(length);
  return length > 0;
}

}  // namespace

std::set<Rank> RanksNamedIn(absl::string_view text) {
  std::set<Rank> ranks;
  for (size_t at = text.find("rank"); at != absl::string_view::npos; at = text.find("rank")) {
    text.remove_prefix(at + 4);
    absl::ConsumePrefix(&text, "s");
    absl::ConsumePrefix(&text, " ");
    int64_t number = 0;
    while (ConsumeNumber(&text, &number)) {
      ranks.insert(Rank(number));
      if (!absl::ConsumePrefix(&text, ", ") && !absl::ConsumePrefix(&text, " and ")) break;
    }
  }
  return ranks;
}

void FailureChecker::OnFailed(Rank rank, const Fail& fail) {
  if (!failures_.emplace(rank, fail).second) {
    verdict_->Add(Checker::kFailure, absl::StrCat("rank ", rank.value(), " failed twice"));
  }
  if (fail.status.code() != CodeOf(scenario_->ending)) {
    verdict_->Add(Checker::kFailure,
                  absl::StrCat("rank ", rank.value(), " failed: ", fail.status.ToString()));
  }
}

void FailureChecker::OnStep(Rank rank) {
  if (failures_.count(rank) == 0) return;
  verdict_->Add(Checker::kFailure,
                absl::StrCat("rank ", rank.value(), " was given a step after its error"));
}

void FailureChecker::OnNodeLost(int32_t node) {
  for (const Rank rank : RanksOfNode(*scenario_, node)) lost_.insert(rank);
}

std::set<Rank> FailureChecker::Culprits() const {
  if (scenario_->ending != Ending::kNodeLost) return {scenario_->culprit};
  const auto node = scenario_->node_of_rank[static_cast<size_t>(scenario_->culprit.value())];
  const std::vector<Rank> ranks = RanksOfNode(*scenario_, node);
  return std::set<Rank>(ranks.begin(), ranks.end());
}

size_t FailureChecker::NumLeft() const {
  const size_t num_missing = scenario_->ending == Ending::kRankMissing ? 1 : 0;
  return static_cast<size_t>(scenario_->world_size) - lost_.size() - num_missing;
}

void FailureChecker::CheckEnd() {
  if (scenario_->ending == Ending::kSuccess) return;
  if (!all_failed()) {
    return verdict_->Add(Checker::kFailure,
                         absl::StrCat(failures_.size(), " of ", NumLeft(), " ranks got the error"));
  }
  const Fail& first = failures_.begin()->second;
  for (const auto& [rank, fail] : failures_) {
    const bool has_culprits = !fail.culprits.empty() && !first.culprits.empty();
    if (fail.status == first.status && (!has_culprits || fail.culprits == first.culprits)) continue;
    verdict_->Add(Checker::kFailure,
                  absl::StrCat("rank ", rank.value(), " says \"", fail.status.ToString(),
                               "\", the others \"", first.status.ToString(), "\""));
  }
  const std::set<Rank> named = RanksNamedIn(first.status.message());
  for (const Rank culprit : Culprits()) {
    const bool is_listed = first.culprits.empty() ||
                           std::count(first.culprits.begin(), first.culprits.end(), culprit) == 1;
    if (is_listed && named.count(culprit) == 1) continue;
    verdict_->Add(Checker::kFailure, absl::StrCat("\"", first.status.ToString(),
                                                  "\" does not name rank ", culprit.value()));
  }
}

}  // namespace odb
