#include "aligner/protocol/decision.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "aligner/protocol/describe.h"

namespace odb {
namespace {

Decision Error(absl::Status status, std::vector<Rank> culprits) {
  Decision decision;
  decision.kind = DecisionKind::kError;
  decision.error = std::move(status);
  decision.culprits = std::move(culprits);
  return decision;
}

// Ranks by what they say, in the order in which a value first appears.
using RanksByValue = std::vector<std::pair<std::string, std::vector<Rank>>>;

void AddTo(RanksByValue* groups, const std::string& value, Rank rank) {
  for (auto& group : *groups) {
    if (group.first == value) {
      group.second.push_back(rank);
      return;
    }
  }
  groups->push_back({value, {rank}});
}

// "ranks 0 and 1: 7; rank 2: 8".
std::string DescribeGroups(const RanksByValue& groups) {
  return absl::StrJoin(groups, "; ", [](std::string* out, const RanksByValue::value_type& group) {
    absl::StrAppend(out, DescribeRanks(group.second), ": ", group.first);
  });
}

// All ranks outside the majority; every rank if there is no majority.
std::vector<Rank> Minority(const RanksByValue& groups) {
  size_t total = 0;
  for (const auto& group : groups) total += group.second.size();
  std::vector<Rank> ranks;
  for (const auto& group : groups) {
    if (2 * group.second.size() > total) continue;
    ranks.insert(ranks.end(), group.second.begin(), group.second.end());
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

std::string Decimal(uint64_t value) { return absl::StrCat(static_cast<int64_t>(value)); }

// Error if `value_of(record)` is not the same for all records.
template <typename Record, typename ValueOf>
Decision CheckSame(absl::Span<const Record> records, absl::StatusCode code, absl::string_view key,
                   std::string (*format)(uint64_t), ValueOf value_of) {
  bool same = true;
  for (const Record& record : records) same = same && value_of(record) == value_of(records[0]);
  if (same) return Decision();
  RanksByValue groups;
  for (size_t i = 0; i < records.size(); ++i) {
    AddTo(&groups, format(value_of(records[i])), Rank(static_cast<int64_t>(i)));
  }
  return Error(absl::Status(code, absl::StrCat(key, " differs: ", DescribeGroups(groups))),
               Minority(groups));
}

template <typename Record>
uint64_t RoundOf(const Record& record) {
  return static_cast<uint64_t>(record.round.value());
}

template <typename Record>
uint64_t PlanDigestOf(const Record& record) {
  return record.plan_digest;
}

template <typename Record>
Decision CheckWireVersion(absl::Span<const Record> records) {
  return CheckSame(records, absl::StatusCode::kInvalidArgument, "wire_version", &Decimal,
                   [](const Record& record) -> uint64_t { return record.wire_version; });
}

// Row i of a table must be rank i's: anything else is a defect of the transport.
template <typename Record>
Decision CheckRows(absl::Span<const Record> records) {
  for (size_t i = 0; i < records.size(); ++i) {
    const Rank rank(static_cast<int64_t>(i));
    if (records[i].rank == rank) continue;
    return Error(
        absl::InternalError(absl::StrCat(
            "the record in row ", i, " of an exchange is that of rank ", records[i].rank.value())),
        {rank});
  }
  return CheckSame(records, absl::StatusCode::kInternal, "generation", &Decimal,
                   [](const Record& record) -> uint64_t {
                     return static_cast<uint64_t>(record.generation.value());
                   });
}

Decision CheckRound(absl::Span<const OfferHeader> heads) {
  return CheckSame(heads, absl::StatusCode::kInternal, "round", &Decimal, &RoundOf<OfferHeader>);
}

Decision CheckConfig(absl::Span<const OfferHeader> heads) {
  return CheckSame(heads, absl::StatusCode::kInvalidArgument, "config_digest", &DescribeDigest,
                   [](const OfferHeader& head) { return head.config_digest; });
}

Decision CheckPreviousPlan(absl::Span<const OfferHeader> heads) {
  return CheckSame(heads, absl::StatusCode::kInternal, "plan digest of the previous round",
                   &DescribeDigest, &PlanDigestOf<OfferHeader>);
}

// "after step 41": the last one that the trainer took.
std::string AfterStep(int64_t position) {
  if (position <= 0) return "before its first step";
  return absl::StrCat("after step ", position - 1);
}

bool IsFatal(ClosingReason reason) {
  return reason != ClosingReason::kBreak && reason != ClosingReason::kSessionClosed;
}

Decision CheckFatalClosing(absl::Span<const OfferHeader> heads) {
  std::vector<std::string> sentences;
  std::vector<Rank> culprits;
  bool only_stopping = true;
  for (const OfferHeader& head : heads) {
    if (head.state != OfferState::kClosing || !IsFatal(head.closing_reason)) continue;
    only_stopping = only_stopping && head.closing_reason == ClosingReason::kDaemonStopping;
    culprits.push_back(head.rank);
    sentences.push_back(absl::StrCat("rank ", head.rank.value(), " ", Describe(head.closing_reason),
                                     " ", AfterStep(head.position)));
  }
  if (culprits.empty()) return Decision();
  const std::string text = absl::StrJoin(sentences, "; ");
  return Error(only_stopping ? absl::UnavailableError(text) : absl::AbortedError(text),
               std::move(culprits));
}

bool SameIteration(const OfferHeader& a, const OfferHeader& b) {
  return a.epoch == b.epoch && a.iterator == b.iterator;
}

// Ranks that take part must be in one iteration; those that are not ready may not be there yet.
Decision CheckIteration(absl::Span<const OfferHeader> heads) {
  const OfferHeader* first = nullptr;
  bool same = true;
  for (const OfferHeader& head : heads) {
    if (head.state == OfferState::kNotReady) continue;
    if (first == nullptr) first = &head;
    same = same && SameIteration(*first, head);
  }
  if (same) return Decision();
  RanksByValue groups;
  for (const OfferHeader& head : heads) {
    if (head.state == OfferState::kNotReady) continue;
    AddTo(&groups, absl::StrCat("epoch ", head.epoch.value(), ", iteration ", head.iterator),
          head.rank);
  }
  return Error(absl::FailedPreconditionError(absl::StrCat(
                   "the trainers are in different epochs or iterations: ", DescribeGroups(groups))),
               Minority(groups));
}

// "rank 1 took 12 steps and asks for another".
std::string DescribePosition(const OfferHeader& head) {
  std::string text = absl::StrCat("rank ", head.rank.value(), " took ", head.position,
                                  head.position == 1 ? " step" : " steps");
  if (head.state == OfferState::kClosing) {
    absl::StrAppend(&text, " and ", Describe(head.closing_reason));
  } else if (head.waiting) {
    absl::StrAppend(&text, " and asks for another");
  }
  return text;
}

// Where a rank left the loop all ranks must leave it, and none may have gone, or want to go, past.
Decision CheckPositions(absl::Span<const OfferHeader> heads) {
  const OfferHeader* closing = nullptr;
  for (const OfferHeader& head : heads) {
    if (head.state != OfferState::kClosing) continue;
    if (closing == nullptr || head.position < closing->position) closing = &head;
  }
  if (closing == nullptr) return Decision();
  for (const OfferHeader& head : heads) {
    if (!SameIteration(*closing, head)) continue;
    const bool is_closing = head.state == OfferState::kClosing;
    const bool conflict = head.position > closing->position ||
                          (!is_closing && head.waiting && head.position == closing->position);
    if (!conflict) continue;
    return Error(
        absl::FailedPreconditionError(absl::StrCat(
            "the trainers left epoch ", closing->epoch.value(), ", iteration ", closing->iterator,
            " at different steps: ", DescribePosition(*closing), "; ", DescribePosition(head),
            "; all ranks must leave the loop after the same number of steps")),
        {std::min(closing->rank, head.rank), std::max(closing->rank, head.rank)});
  }
  return Decision();
}

Decision Progress(absl::Span<const OfferHeader> heads) {
  size_t closing = 0;
  size_t not_ready = 0;
  for (const OfferHeader& head : heads) {
    closing += head.state == OfferState::kClosing;
    not_ready += head.state == OfferState::kNotReady;
  }
  Decision decision;
  if (closing == heads.size()) {
    decision.kind = DecisionKind::kAbandon;
    return decision;
  }
  if (closing == 0 && not_ready == 0) {
    decision.kind = DecisionKind::kPlan;
    return decision;
  }
  decision.kind = DecisionKind::kHeartbeat;
  for (const OfferHeader& head : heads) {
    const bool held_up_by =
        closing > 0 ? head.state != OfferState::kClosing : head.state == OfferState::kNotReady;
    if (!held_up_by) continue;
    decision.waiting_for.push_back({head.rank, head.state, head.not_ready_reason, head.position});
  }
  return decision;
}

}  // namespace

Decision Decide(absl::Span<const OfferHeader> heads) {
  using Check = Decision (*)(absl::Span<const OfferHeader>);
  constexpr Check kChecks[] = {
      &CheckWireVersion<OfferHeader>,
      &CheckRows<OfferHeader>,
      &CheckRound,
      &CheckConfig,
      &CheckFatalClosing,
      &CheckPreviousPlan,
      &CheckIteration,
      &CheckPositions,
  };
  for (const Check check : kChecks) {
    Decision error = check(heads);
    if (error.kind == DecisionKind::kError) return error;
  }
  return Progress(heads);
}

ResyncDecision DecideResync(absl::Span<const ResyncRecord> records) {
  const auto failed = [](absl::Status status, std::vector<Rank> culprits) {
    ResyncDecision decision;
    decision.error = std::move(status);
    decision.culprits = std::move(culprits);
    return decision;
  };
  Decision error = CheckWireVersion(records);
  if (error.kind == DecisionKind::kError) return failed(error.error, error.culprits);
  error = CheckRows(records);
  if (error.kind == DecisionKind::kError) return failed(error.error, error.culprits);

  RanksByValue rounds;
  std::map<RoundId, RanksByValue> digests;
  for (const ResyncRecord& record : records) {
    AddTo(&rounds, absl::StrCat(record.last_completed_round.value()), record.rank);
    AddTo(&digests[record.last_completed_round], DescribeDigest(record.plan_digest), record.rank);
  }
  const RoundId earliest = digests.begin()->first;
  const RoundId latest = digests.rbegin()->first;
  if (latest > earliest.next()) {
    return failed(
        absl::InternalError(absl::StrCat("the last completed rounds differ by more than one: ",
                                         DescribeGroups(rounds))),
        Minority(rounds));
  }
  for (const auto& [round, by_digest] : digests) {
    if (by_digest.size() == 1) continue;
    return failed(absl::InternalError(absl::StrCat("plan digest of round ", round.value(),
                                                   " differs: ", DescribeGroups(by_digest))),
                  Minority(by_digest));
  }
  ResyncDecision decision;
  decision.redo = latest != earliest;
  decision.round = earliest.next();
  for (const ResyncRecord& record : records) {
    const bool ahead = record.last_completed_round == latest;
    if (!decision.redo || (ahead ? record.has_stored_offer : record.has_planned_offer)) continue;
    return failed(absl::InternalError(absl::StrCat("rank ", record.rank.value(),
                                                   " does not keep its offer of round ",
                                                   latest.value(), ", which must be repeated")),
                  {record.rank});
  }
  return decision;
}

ConfirmDecision DecideConfirm(absl::Span<const ConfirmRecord> records) {
  Decision error = CheckRows(records);
  if (error.kind != DecisionKind::kError) {
    error = CheckSame(records, absl::StatusCode::kInternal, "round to confirm", &Decimal,
                      &RoundOf<ConfirmRecord>);
  }
  if (error.kind != DecisionKind::kError && !records.empty()) {
    error = CheckSame(records, absl::StatusCode::kInternal,
                      absl::StrCat("plan digest of round ", records[0].round.value()),
                      &DescribeDigest, &PlanDigestOf<ConfirmRecord>);
  }
  ConfirmDecision decision;
  decision.error = std::move(error.error);
  decision.culprits = std::move(error.culprits);
  return decision;
}

}  // namespace odb
