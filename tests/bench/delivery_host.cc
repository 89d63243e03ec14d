#include "tests/bench/delivery_host.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "base/os/memfd.h"
#include "base/status_macros.h"

namespace odb {
namespace {

constexpr uint64_t kArenaBytes = 4096;
constexpr int64_t kAheadMax = 8;  // steps, as odbd's prefetch_steps

v1::Step SmallStep() {
  v1::Step step;
  for (const char* const name : {"input_ids", "labels", "attention_mask"}) {
    v1::Tensor* const tensor = step.add_tensors();
    tensor->set_name(name);
    tensor->set_dtype(v1::DTYPE_INT64);
    tensor->add_shape(2);
    tensor->add_shape(8);
    tensor->set_offset(64);
    tensor->set_bytes(2 * 8 * 8);
  }
  for (int64_t key = 0; key < 2; ++key) {
    step.add_sample_keys(key);
    step.add_sample_sources(0);
  }
  for (v1::Counts* const counts : {step.mutable_local(), step.mutable_global()}) {
    counts->set_samples(2);
    counts->set_tokens(16);
    counts->set_loss_tokens(14);
  }
  step.set_loss_scale(1);
  step.set_total_samples(int64_t{1} << 40);
  return step;
}

class Stream final : public SessionStream {
 public:
  absl::Status OnEvent(const v1::TrainerEvent& event) override {
    MutexLock lock(&mutex_);
    if (event.has_start_epoch()) {
      readiness_ = static_cast<Readiness>(event.start_epoch().epoch());
      iterator_ = event.start_epoch().iterator();
      index_ = unreturned_ = 0;
      running_ = true;
    }
    if (event.has_end_iteration()) running_ = false;
    asked_ = running_ && event.has_progress() ? event.progress().waiting() : asked_ && running_;
    unreturned_ -= event.returned().step_ids_size();
    changed_.NotifyAll();
    if (notify_ && ReadyLocked()) notify_();
    return absl::OkStatus();
  }

  absl::StatusOr<v1::TrainerUpdate> NextUpdate(absl::Time deadline) override {
    MutexLock lock(&mutex_);
    while (!ReadyLocked()) {
      if (changed_.WaitUntil(&mutex_, deadline)) return absl::DeadlineExceededError("not asked");
    }
    asked_ = false;
    ++unreturned_;
    v1::TrainerUpdate update;
    *update.mutable_step() = step_;
    update.mutable_step()->set_step_id(++last_step_id_);
    update.mutable_step()->set_iterator(iterator_);
    update.mutable_step()->set_index(index_++);
    update.mutable_step()->set_round(SteadyNanos());
    return update;
  }

  void NotifyOnUpdate(std::function<void()> notify) override {
    MutexLock lock(&mutex_);
    notify_ = std::move(notify);
  }
  void End() override {}

 private:
  bool ReadyLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (!running_) return false;
    return readiness_ == Readiness::kOnDemand ? asked_ : unreturned_ < kAheadMax;
  }

  const v1::Step step_ = SmallStep();
  Mutex mutex_;  // guards all below
  CondVar changed_;
  Readiness readiness_ ABSL_GUARDED_BY(mutex_) = Readiness::kOnDemand;
  bool running_ ABSL_GUARDED_BY(mutex_) = false;
  bool asked_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t iterator_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t index_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t unreturned_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t last_step_id_ ABSL_GUARDED_BY(mutex_) = 0;
  std::function<void()> notify_ ABSL_GUARDED_BY(mutex_);
};

absl::StatusOr<ArenaGrant> MakeArena() {
  ArenaGrant grant;
  ASSIGN_OR_RETURN(grant.fd, CreateSealedMemfd("bench", kArenaBytes));
  grant.bytes = kArenaBytes;
  return grant;
}

}  // namespace

int64_t SteadyNanos() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

absl::StatusOr<std::unique_ptr<DeliveryHost>> DeliveryHost::Start(const std::string& socket) {
  std::unique_ptr<DeliveryHost> host(new DeliveryHost);
  SocketServer::Options options;
  options.path = socket;
  ASSIGN_OR_RETURN(host->rings_, RingService::Create(host.get()));
  ASSIGN_OR_RETURN(host->server_, SocketServer::Listen(options));
  RETURN_IF_ERROR(host->server_->Start(
      {&host->service_}, [](const HandoverRequest&) { return MakeArena(); },
      [h = host.get()](FileDescriptor connection, const StepRingRequest& request) {
        h->rings_->Attach(std::move(connection), request);
      }));
  return host;
}

DeliveryHost::~DeliveryHost() {
  if (server_ != nullptr) server_->Shutdown(absl::Now());
  rings_.reset();
}

absl::StatusOr<v1::OpenSessionReply> DeliveryHost::OpenSession(const v1::OpenSessionRequest&,
                                                               const SessionPeer&,
                                                               const std::function<bool()>&) {
  v1::OpenSessionReply reply;
  {
    MutexLock lock(&mutex_);
    reply.set_session_id(++sessions_);
  }
  reply.set_handover_token(std::string(kHandoverTokenBytes, 't'));
  reply.set_arena_bytes(kArenaBytes);
  reply.set_daemon_pid(getpid());
  reply.set_step_ring(true);
  return reply;
}

absl::StatusOr<std::unique_ptr<SessionStream>> DeliveryHost::Attach(const SessionPeer&, uint64_t,
                                                                    int64_t) {
  return std::unique_ptr<SessionStream>(new Stream);
}

}  // namespace odb
