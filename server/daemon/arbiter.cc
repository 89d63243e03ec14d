#include "server/daemon/arbiter.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/secret.h"

namespace odb {
namespace {

std::string DescribeRanks(const std::vector<Rank>& ranks) {
  if (ranks.empty()) return "no ranks";
  return absl::StrCat(ranks.size() == 1 ? "rank " : "ranks ",
                      absl::StrJoin(ranks, ", ", [](std::string* out, Rank rank) {
                        absl::StrAppend(out, rank.value());
                      }));
}

std::string DescribeNode(const NodeIntroduction& node) {
  return absl::StrCat("node ", node.node,
                      node.host.empty() ? "" : absl::StrCat(" (", node.host, ")"));
}

// Both must be given for the difference to be named; "" stands for a key that a node does not have.
absl::Status Differs(absl::string_view key, const NodeIntroduction& a, absl::string_view value_a,
                     const NodeIntroduction& b, absl::string_view value_b) {
  const auto show = [](absl::string_view value) { return value.empty() ? "nothing" : value; };
  return absl::FailedPreconditionError(absl::StrCat(key, " differs: ", DescribeNode(a), " has ",
                                                    show(value_a), ", ", DescribeNode(b), " has ",
                                                    show(value_b)));
}

absl::Status CompareNodes(const NodeIntroduction& a, const NodeIntroduction& b) {
  if (a.wire_version != b.wire_version) {
    return Differs("wire_version", a, absl::StrCat(a.wire_version), b,
                   absl::StrCat(b.wire_version));
  }
  if (a.world_size != b.world_size) {
    return Differs("world_size", a, absl::StrCat(a.world_size), b, absl::StrCat(b.world_size));
  }
  std::map<std::string, std::pair<std::string, std::string>> values;
  for (const auto& [key, value] : a.digests) values[key].first = value;
  for (const auto& [key, value] : b.digests) values[key].second = value;
  for (const auto& [key, pair] : values) {
    if (pair.first != pair.second) return Differs(key, a, pair.first, b, pair.second);
  }
  return absl::OkStatus();
}

}  // namespace

Arbiter::Arbiter(Options options, absl::Time now)
    : options_(std::move(options)), attach_deadline_(now + options_.attach_timeout) {}

absl::Status Arbiter::CheckJoin(const NodeIntroduction& node) const {
  for (const auto& [member, other] : nodes_) {
    if (other.introduction.node == node.node) {
      return absl::AlreadyExistsError(absl::StrCat(DescribeNode(node),
                                                   " has joined the job already, as ",
                                                   DescribeNode(other.introduction)));
    }
  }
  if (node.world_size != options_.world_size) {
    return absl::FailedPreconditionError(absl::StrCat("world_size differs: the arbiter has ",
                                                      options_.world_size, ", ", DescribeNode(node),
                                                      " has ", node.world_size));
  }
  if (nodes_.empty()) return absl::OkStatus();
  return CompareNodes(nodes_.begin()->second.introduction, node);
}

std::vector<ArbiterOutcome> Arbiter::OnJoin(absl::Time now, Member member, NodeIntroduction node) {
  if (!SecretsEqual(node.job_token, options_.job_token)) {
    return {RefuseMember{
        member, absl::PermissionDeniedError(absl::StrCat("job_token of ", DescribeNode(node),
                                                         " is not that of the arbiter"))}};
  }
  if (!failure_.ok()) return {RefuseMember{member, failure_}};
  if (ended_) return {RefuseMember{member, absl::UnavailableError("the job has ended")}};
  const absl::Status status = CheckJoin(node);
  if (!status.ok()) return Refuse(member, status);
  nodes_[member].introduction = std::move(node);
  return {};
}

absl::Status Arbiter::CheckRanks(Member member, const std::vector<Rank>& attached) const {
  const NodeIntroduction& node = nodes_.at(member).introduction;
  for (const Rank rank : attached) {
    if (rank < Rank(0) || rank >= Rank(options_.world_size)) {
      return absl::InvalidArgumentError(absl::StrCat("rank ", rank.value(), " of ",
                                                     DescribeNode(node), " is outside [0, ",
                                                     options_.world_size, ")"));
    }
    for (const auto& [other_member, other] : nodes_) {
      const auto& ranks = other.ranks;
      if (other_member == member || std::find(ranks.begin(), ranks.end(), rank) == ranks.end()) {
        continue;
      }
      return absl::AlreadyExistsError(absl::StrCat("rank ", rank.value(), " is attached at ",
                                                   DescribeNode(other.introduction), " and at ",
                                                   DescribeNode(node)));
    }
  }
  return absl::OkStatus();
}

std::vector<ArbiterOutcome> Arbiter::OnRanks(absl::Time now, Member member,
                                             std::vector<Rank> attached) {
  const auto found = nodes_.find(member);
  if (found == nodes_.end() || Over() || Complete()) return {};
  const absl::Status status = CheckRanks(member, attached);
  if (!status.ok()) return Refuse(member, status);
  std::sort(attached.begin(), attached.end());
  found->second.ranks = std::move(attached);
  if (!Missing().empty()) return {};
  return OpenNext();
}

bool Arbiter::CannotConnect(absl::Time now, bool connected) {
  if (connected) {
    unconnected_since_.reset();
    return false;
  }
  if (!unconnected_since_.has_value()) unconnected_since_ = now;
  return now > *unconnected_since_ + options_.connect_timeout;
}

std::vector<ArbiterOutcome> Arbiter::OnGenerationFailed(absl::Time now, Member member,
                                                        const Breakage& breakage) {
  if (nodes_.count(member) == 0 || Over()) return {};
  if (!Complete() || breakage.generation != generation_) return {};
  if (SomebodyGone()) {
    // Nothing can be rebuilt without that node; the others are probably about to leave as well.
    leave_deadline_ = std::min(leave_deadline_, now + options_.leave_grace);
    return {};
  }
  if (CannotConnect(now, breakage.connected)) {
    const std::optional<Rank>& suspect = breakage.suspect;
    return Fail(absl::UnavailableError(absl::StrCat(
        "the ranks cannot be connected, again and again since ",
        absl::FormatDuration(absl::Seconds(absl::ToInt64Seconds(now - *unconnected_since_))),
        suspect.has_value() ? absl::StrCat("; the last to be suspected is rank ", suspect->value(),
                                           " of ", DescribeNodeOf(*suspect))
                            : "",
        "; last: ", breakage.reason)));
  }
  if (breakage.last_completed > progress_) {
    progress_ = breakage.last_completed;
    restarts_.clear();
  }
  restarts_.push_back({now, breakage.suspect});
  while (restarts_.front().when < now - options_.restart_window) restarts_.pop_front();
  if (restarts_.size() <= static_cast<size_t>(options_.restarts_max)) return OpenNext();
  return Fail(DescribeRestarts(breakage.reason));
}

std::string Arbiter::DescribeNodeOf(Rank rank) const {
  for (const auto& [member, node] : nodes_) {
    if (std::find(node.ranks.begin(), node.ranks.end(), rank) != node.ranks.end()) {
      return DescribeNode(node.introduction);
    }
  }
  return "no node";
}

absl::Status Arbiter::DescribeRestarts(const std::string& last_reason) const {
  // The rank that was suspected most often, the lowest of several.
  std::map<Rank, int> suspicions;
  for (const Restart& restart : restarts_) {
    if (restart.suspect.has_value()) ++suspicions[*restart.suspect];
  }
  std::optional<Rank> worst;
  for (const auto& [rank, count] : suspicions) {
    if (!worst.has_value() || count > suspicions[*worst]) worst = rank;
  }
  return absl::AbortedError(
      absl::StrCat("the mesh of the ranks broke ", restarts_.size(), " times within ",
                   absl::FormatDuration(options_.restart_window), " without a completed round",
                   worst.has_value() ? absl::StrCat(", mostly at rank ", worst->value()) : "",
                   "; last: ", last_reason));
}

std::vector<ArbiterOutcome> Arbiter::OnNodeFailure(absl::Time now, Member member,
                                                   const absl::Status& status) {
  if (nodes_.count(member) == 0) return {};
  return Fail(status.ok() ? absl::InternalError("a node failed without saying why") : status);
}

std::vector<ArbiterOutcome> Arbiter::OnThrough(Member member, int64_t iterator, int64_t steps) {
  const auto found = nodes_.find(member);
  if (found == nodes_.end() || Over() || iterator <= found->second.through) return {};
  found->second.through = iterator;
  // An older one is of no interest any more: its end was given to all, or nobody asks for it.
  if (ending_.has_value() && iterator < ending_->iterator) return {};
  ending_ = EndIteration{iterator, steps, {}};
  return TellEnding();
}

Arbiter::Outcomes Arbiter::TellEnding() const {
  if (!ending_.has_value()) return {};
  EndIteration ending = *ending_;
  for (const auto& [member, node] : nodes_) {
    if (node.left || node.through >= ending.iterator) continue;
    ending.behind.insert(ending.behind.end(), node.ranks.begin(), node.ranks.end());
  }
  std::sort(ending.behind.begin(), ending.behind.end());
  return {std::move(ending)};
}

std::vector<ArbiterOutcome> Arbiter::OnLeave(absl::Time now, Member member) {
  const auto found = nodes_.find(member);
  if (found == nodes_.end()) return {};
  found->second.left = true;
  const bool all_left = std::all_of(nodes_.begin(), nodes_.end(),
                                    [](const auto& entry) { return entry.second.left; });
  if (Over()) return {};
  if (!all_left) return TellEnding();  // the others need not wait for its last steps
  ended_ = true;
  return {EndJob{}};
}

std::vector<ArbiterOutcome> Arbiter::OnLost(absl::Time now, Member member,
                                            const std::string& reason) {
  const auto found = nodes_.find(member);
  if (found == nodes_.end()) return {};
  const Node node = found->second;
  if (node.left) {
    found->second.gone = true;
    return {};
  }
  if (!Complete()) {
    nodes_.erase(found);  // it may come again
    return {};
  }
  return Fail(absl::UnavailableError(absl::StrCat(
      DescribeNode(node.introduction), " with ", DescribeRanks(node.ranks), " is gone: ", reason)));
}

std::vector<ArbiterOutcome> Arbiter::OnTick(absl::Time now) {
  if (Over()) return {};
  if (!Complete() && now >= attach_deadline_) {
    std::vector<std::string> joined;
    for (const auto& [member, node] : nodes_) joined.push_back(DescribeNode(node.introduction));
    return Fail(absl::DeadlineExceededError(
        absl::StrCat(DescribeRanks(Missing()), " of ", options_.world_size,
                     " did not attach within ", absl::FormatDuration(options_.attach_timeout),
                     "; joined: ", joined.empty() ? "no node" : absl::StrJoin(joined, ", "))));
  }
  if (now >= leave_deadline_) {
    std::vector<std::string> gone;
    for (const auto& [member, node] : nodes_) {
      if (!node.gone) continue;
      gone.push_back(
          absl::StrCat(DescribeNode(node.introduction), " with ", DescribeRanks(node.ranks)));
    }
    return Fail(absl::UnavailableError(
        absl::StrCat(absl::StrJoin(gone, ", "), " has left the job, which others still run")));
  }
  return {};
}

absl::Time Arbiter::NextDeadline() const {
  if (Over()) return absl::InfiniteFuture();
  return Complete() ? leave_deadline_ : attach_deadline_;
}

std::vector<Rank> Arbiter::Missing() const {
  std::set<Rank> attached;
  for (const auto& [member, node] : nodes_) attached.insert(node.ranks.begin(), node.ranks.end());
  std::vector<Rank> missing;
  for (int rank = 0; rank < options_.world_size; ++rank) {
    if (attached.count(Rank(rank)) == 0) missing.push_back(Rank(rank));
  }
  return missing;
}

std::vector<ArbiterOutcome> Arbiter::Refuse(Member member, const absl::Status& status) {
  nodes_.erase(member);
  std::vector<ArbiterOutcome> outcomes = {RefuseMember{member, status}};
  if (Complete()) return outcomes;
  for (ArbiterOutcome& outcome : Fail(status)) outcomes.push_back(std::move(outcome));
  return outcomes;
}

std::vector<ArbiterOutcome> Arbiter::Fail(const absl::Status& status) {
  if (Over()) return {};
  failure_ = status;
  return {FailJob{status}};
}

std::vector<ArbiterOutcome> Arbiter::OpenNext() {
  generation_ = Complete() ? generation_.next() : options_.first_generation;
  StartGeneration start;
  start.generation = generation_;
  start.rank_to_node.resize(options_.world_size);
  for (const auto& [member, node] : nodes_) {
    if (!node.ranks.empty()) ++start.nodes;
    for (const Rank rank : node.ranks) start.rank_to_node[rank.value()] = node.introduction.node;
  }
  return {std::move(start)};
}

bool Arbiter::SomebodyGone() const {
  return std::any_of(nodes_.begin(), nodes_.end(),
                     [](const auto& entry) { return entry.second.gone; });
}

}  // namespace odb
