#include "server/daemon/arbiter_host.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/secret.h"

namespace odb {
namespace {

NodeIntroduction ToIntroduction(const v1::NodeHello& hello) {
  NodeIntroduction node;
  node.node = hello.node();
  node.host = hello.host();
  node.job_token = hello.job_token();
  node.wire_version = hello.wire_version();
  node.world_size = hello.world_size();
  for (const v1::Digest& digest : hello.digests()) {
    node.digests.emplace_back(digest.key(), digest.value());
  }
  return node;
}

std::vector<Rank> ToRanks(const v1::RanksChanged& ranks) {
  std::vector<Rank> attached;
  for (const int32_t rank : ranks.attached()) attached.push_back(Rank(rank));
  return attached;
}

Arbiter::Breakage ToBreakage(const v1::GenerationFailed& failed) {
  Arbiter::Breakage breakage;
  breakage.generation = Generation(failed.generation());
  breakage.reason = failed.reason();
  if (failed.suspect() >= 0) breakage.suspect = Rank(failed.suspect());
  breakage.last_completed = RoundId(failed.last_completed_round());
  breakage.connected = failed.connected();
  return breakage;
}

v1::ArbiterUpdate FailureUpdate(const absl::Status& status) {
  v1::ArbiterUpdate update;
  update.mutable_failed()->set_code(static_cast<int32_t>(status.code()));
  update.mutable_failed()->set_message(std::string(status.message()));
  return update;
}

}  // namespace

class ArbiterHost::Channel final : public NodeChannel {
 public:
  Channel(std::shared_ptr<ArbiterHost> host, Member member)
      : host_(std::move(host)), member_(member) {}

  void OnEvent(const v1::NodeEvent& event) override { host_->OnEvent(member_, event); }
  absl::StatusOr<v1::ArbiterUpdate> Next(absl::Time deadline) override {
    return host_->Next(member_, deadline);
  }
  void OnGone(const std::string& reason) override { host_->OnGone(member_, reason); }

 private:
  const std::shared_ptr<ArbiterHost> host_;
  const Member member_;
};

ArbiterHost::ArbiterHost(const Arbiter::Options& options, int64_t incarnation,
                         absl::Duration silence_max)
    : job_token_(options.job_token),
      world_size_(options.world_size),
      incarnation_(incarnation),
      silence_max_(silence_max),
      keys_(options.world_size),
      arbiter_(options, absl::Now()) {}

absl::Status ArbiterHost::CheckToken(absl::string_view job_token) const {
  if (SecretsEqual(job_token, job_token_)) return absl::OkStatus();
  return absl::PermissionDeniedError("the job_token is not that of the arbiter");
}

absl::StatusOr<std::shared_ptr<NodeChannel>> ArbiterHost::Join(const v1::NodeHello& hello) {
  MutexLock lock(&mutex_);
  if (closed_) return absl::UnavailableError("the job has ended");
  const absl::Time now = absl::Now();
  const Member member = last_member_ = last_member_.next();
  nodes_[member].heard = now;
  CarryLocked(arbiter_.OnJoin(now, member, ToIntroduction(hello)));
  const auto found = nodes_.find(member);
  if (!found->second.end.ok()) {
    const absl::Status refused = found->second.end;
    nodes_.erase(found);
    return refused;
  }
  return std::make_shared<Channel>(shared_from_this(), member);
}

Generation ArbiterHost::last_generation() const {
  MutexLock lock(&mutex_);
  return arbiter_.generation();
}

void ArbiterHost::Close() {
  keys_.Close();
  MutexLock lock(&mutex_);
  closed_ = true;
  for (auto& entry : nodes_) {
    if (entry.second.end.ok()) entry.second.end = absl::CancelledError("the job has ended");
  }
  changed_.NotifyAll();
}

void ArbiterHost::OnEvent(Member member, const v1::NodeEvent& event) {
  MutexLock lock(&mutex_);
  const auto found = nodes_.find(member);
  if (found == nodes_.end() || closed_) return;
  const absl::Time now = absl::Now();
  found->second.heard = now;
  switch (event.event_case()) {
    case v1::NodeEvent::kRanks:
      CarryLocked(arbiter_.OnRanks(now, member, ToRanks(event.ranks())));
      break;
    case v1::NodeEvent::kFailed:
      CarryLocked(arbiter_.OnGenerationFailed(now, member, ToBreakage(event.failed())));
      break;
    case v1::NodeEvent::kFailure:
      CarryLocked(
          arbiter_.OnNodeFailure(now, member,
                                 absl::Status(static_cast<absl::StatusCode>(event.failure().code()),
                                              event.failure().message())));
      break;
    case v1::NodeEvent::kThrough:
      CarryLocked(arbiter_.OnThrough(member, event.through().iterator(), event.through().steps()));
      break;
    case v1::NodeEvent::kLeave:
      CarryLocked(arbiter_.OnLeave(now, member));
      break;
    case v1::NodeEvent::kHello:
    case v1::NodeEvent::EVENT_NOT_SET:
      break;
  }
}

absl::StatusOr<v1::ArbiterUpdate> ArbiterHost::Next(Member member, absl::Time deadline) {
  MutexLock lock(&mutex_);
  while (true) {
    const absl::Time now = absl::Now();
    TickLocked(now);
    const auto found = nodes_.find(member);
    if (found == nodes_.end()) return absl::CancelledError("the connection is closed");
    Node& node = found->second;
    if (node.updates.empty() && node.end.ok() && now >= node.told + kSignOfLife) {
      node.updates.push_back(WaitUpdateLocked());
    }
    if (!node.updates.empty()) {
      v1::ArbiterUpdate update = std::move(node.updates.front());
      node.updates.pop_front();
      node.told = now;
      return update;
    }
    if (!node.end.ok()) return node.end;
    if (now >= deadline) return absl::DeadlineExceededError("no update");
    changed_.WaitUntil(&mutex_,
                       std::min({deadline, node.told + kSignOfLife, arbiter_.NextDeadline()}));
  }
}

void ArbiterHost::OnGone(Member member, const std::string& reason) {
  MutexLock lock(&mutex_);
  if (nodes_.erase(member) == 0 || closed_) return;
  CarryLocked(arbiter_.OnLost(absl::Now(), member, reason));
  changed_.NotifyAll();
}

void ArbiterHost::TickLocked(absl::Time now) {
  if (closed_) return;
  CarryLocked(arbiter_.OnTick(now));
  for (auto& [member, node] : nodes_) {
    if (!node.end.ok() || now < node.heard + silence_max_) continue;
    const std::string reason = absl::StrCat(
        "silent for ", absl::FormatDuration(absl::Seconds(absl::ToInt64Seconds(now - node.heard))));
    node.end = absl::UnavailableError(reason);
    CarryLocked(arbiter_.OnLost(now, member, reason));
  }
}

void ArbiterHost::CarryLocked(const std::vector<ArbiterOutcome>& outcomes) {
  for (const ArbiterOutcome& outcome : outcomes) {
    if (const auto* refuse = std::get_if<RefuseMember>(&outcome)) {
      // As an update, too: the reason of a call that is cut off does not always arrive.
      Node& node = nodes_[refuse->member];
      node.updates.push_back(FailureUpdate(refuse->status));
      node.end = refuse->status;
      continue;
    }
    v1::ArbiterUpdate update;
    if (const auto* start = std::get_if<StartGeneration>(&outcome)) {
      keys_.BeginGeneration(start->generation);
      v1::GenerationOpened* const opened = update.mutable_opened();
      opened->set_incarnation(incarnation_);
      opened->set_generation(start->generation.value());
      opened->set_world_size(world_size_);
      opened->set_nodes(start->nodes);
      for (const int node : start->rank_to_node) opened->add_rank_to_node(node);
    } else if (const auto* ending = std::get_if<EndIteration>(&outcome)) {
      update.mutable_ending()->set_iterator(ending->iterator);
      update.mutable_ending()->set_steps(ending->steps);
      for (const Rank rank : ending->behind) {
        update.mutable_ending()->add_behind(static_cast<int32_t>(rank.value()));
      }
    } else if (const auto* fail = std::get_if<FailJob>(&outcome)) {
      update = FailureUpdate(fail->status);
    } else {
      update.mutable_failed();  // OK: the job has ended in peace
    }
    for (auto& entry : nodes_) {
      if (entry.second.end.ok()) entry.second.updates.push_back(update);
    }
  }
  if (!outcomes.empty()) changed_.NotifyAll();
}

v1::ArbiterUpdate ArbiterHost::WaitUpdateLocked() const {
  v1::ArbiterUpdate update;
  v1::AttachWait* const waiting = update.mutable_waiting();
  for (const Rank rank : arbiter_.Missing()) {
    waiting->add_missing(static_cast<int32_t>(rank.value()));
  }
  return update;
}

}  // namespace odb
