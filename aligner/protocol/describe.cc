#include "aligner/protocol/describe.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace odb {

absl::string_view Describe(NotReadyReason reason) {
  switch (reason) {
    case NotReadyReason::kNone:
      return "no reason given";
    case NotReadyReason::kDetached:
      return "no trainer attached";
    case NotReadyReason::kEpochPending:
      return "epoch not begun by the trainer";
    case NotReadyReason::kPoolStarved:
      return "pool starved";
    case NotReadyReason::kArenaFull:
      return "arena full";
    case NotReadyReason::kPlanning:
      return "planning";
  }
  return "unknown";
}

absl::string_view Describe(ClosingReason reason) {
  switch (reason) {
    case ClosingReason::kNone:
      return "closes without a reason";
    case ClosingReason::kBreak:
      return "left the loop";
    case ClosingReason::kSessionClosed:
      return "closed its loader";
    case ClosingReason::kTrainerLost:
      return "lost its trainer";
    case ClosingReason::kDaemonStopping:
      return "is stopped with its daemon";
    case ClosingReason::kFailed:
      return "failed";
  }
  return "unknown";
}

absl::string_view Describe(OfferState state) {
  switch (state) {
    case OfferState::kNotReady:
      return "NOT_READY";
    case OfferState::kReady:
      return "READY";
    case OfferState::kDry:
      return "DRY";
    case OfferState::kClosing:
      return "CLOSING";
  }
  return "unknown";
}

std::string DescribeRanks(const std::vector<Rank>& ranks) {
  if (ranks.empty()) return "no rank";
  const auto append = [](std::string* out, Rank rank) { absl::StrAppend(out, rank.value()); };
  if (ranks.size() == 1) return absl::StrCat("rank ", ranks[0].value());
  return absl::StrCat("ranks ", absl::StrJoin(ranks.begin(), ranks.end() - 1, ", ", append),
                      " and ", ranks.back().value());
}

std::string DescribeDigest(uint64_t digest) { return absl::StrFormat("0x%016x", digest); }

std::string DescribeWait(const WaitedRank& who) {
  if (who.state == OfferState::kNotReady) return std::string(Describe(who.reason));
  return absl::StrCat("has not left the loop (", who.position, " steps taken)");
}

std::string DescribeWait(const ReportWaiting& report, absl::Time now) {
  const auto append = [now](std::string* out, const ReportWaiting::Entry& entry) {
    absl::StrAppendFormat(out, "rank %d: %s (%.1f s)", entry.who.rank.value(),
                          DescribeWait(entry.who), absl::ToDoubleSeconds(now - entry.since));
  };
  return absl::StrCat("round ", report.round.value(), " waits for ",
                      absl::StrJoin(report.waiting_for, "; ", append));
}

}  // namespace odb
