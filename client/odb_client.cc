#include "client/odb_client.h"

#include <unistd.h>

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/inbox.h"
#include "client/outbox.h"
#include "client/probe_step.h"
#include "client/session_connection.h"

namespace odb {
namespace {

absl::Duration SteadyNow() {
  return absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
}

}  // namespace

Client::Client(const ClientOptions& options)
    : owner_(getpid()),
      options_(options),
      inbox_(std::make_unique<Inbox>(options.prefetch)),
      outbox_(std::make_shared<Outbox>(options.returned_batch, options.returned_delay)) {}

absl::StatusOr<std::unique_ptr<Client>> Client::Open(const ClientOptions& options) {
  RETURN_IF_ERROR(options.Validate());
  std::unique_ptr<Client> client(new Client(options));
  ASSIGN_OR_RETURN(client->connection_,
                   SessionConnection::Open(options, client->inbox_.get(), client->outbox_.get()));
  return client;
}

Client::~Client() {
  if (getpid() == owner_) {
    Close().IgnoreError();
    return;
  }
  // A forked child has none of the threads that these wait for, and gRPC's state as some thread
  // left it: freeing any of it could hang. The process is going to end; they are left as they are.
  connection_.release();  // NOLINT(bugprone-unused-return-value)
  inbox_.release();       // NOLINT(bugprone-unused-return-value)
  new std::shared_ptr<Outbox>(outbox_);
}

absl::Status Client::CheckUsable() const {
  if (getpid() != owner_) {
    return absl::FailedPreconditionError(
        absl::StrCat("this odb client was opened by process ", owner_, " and process ", getpid(),
                     " was forked from it: open a client of your own there"));
  }
  if (closed_) return absl::FailedPreconditionError("the session is closed");
  return fault_;
}

const v1::OpenSessionReply& Client::session() const { return connection_->session(); }

const char* Client::arena() const { return connection_->arena().data; }

Transport Client::transport() const { return connection_->transport(); }

bool Client::pinned() const { return connection_->pinned(); }

const std::string& Client::why_not_pinned() const { return connection_->why_not_pinned(); }

bool Client::failed() const {
  if (!CheckUsable().ok()) return true;
  connection_->steps()->Poll();
  return !inbox_->failure().ok();
}

absl::Status Client::StartEpoch(int64_t epoch, const IterationLimits& limits) {
  RETURN_IF_ERROR(CheckUsable());
  if (epoch < 0 || limits.max_steps < 0 || limits.max_samples < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("epoch, max_steps and max_samples must be >= 0, got ", epoch, ", ",
                     limits.max_steps, ", ", limits.max_samples));
  }
  if (failed()) return inbox_->failure();
  RETURN_IF_ERROR(EndIteration());

  ++iterator_;
  limits_ = limits;
  taken_ = emitted_samples_ = total_samples_ = 0;
  iterating_ = true;
  reported_waiting_ = false;
  waits_.Start(SteadyNow());
  inbox_->StartIterator(iterator_);
  v1::TrainerEvent event;
  event.mutable_start_epoch()->set_epoch(epoch);
  event.mutable_start_epoch()->set_iterator(iterator_);
  return outbox_->Push(std::move(event));
}

absl::StatusOr<StepHandle> Client::MakeProbe(int i) const {
  RETURN_IF_ERROR(CheckUsable());
  if (i < 0 || i >= num_probes()) {
    return absl::OutOfRangeError(
        absl::StrCat("a probe must be in [0, ", num_probes(), "), got ", i));
  }
  return MakeProbeStep(session().probes(i), i);
}

absl::StatusOr<StepHandle> Client::Next(absl::Time deadline) {
  RETURN_IF_ERROR(CheckUsable());
  if (iterator_ < 0) return absl::FailedPreconditionError("call StartEpoch before Next");
  waits_.Enter(SteadyNow());
  absl::StatusOr<StepHandle> step = TakeNext(deadline);
  // With a step or the end it was left already.
  if (!step.ok()) waits_.LeaveWithout(SteadyNow());
  return step;
}

absl::StatusOr<StepHandle> Client::TakeNext(absl::Time deadline) {
  while (iterating_) {
    // A limit that is reached with the epoch's last sample is no early end.
    const bool at_limit = LimitReached();
    if (at_limit && emitted_samples_ < total_samples_) {
      RETURN_IF_ERROR(EndIteration());
      break;
    }
    if (ahead_ != nullptr) return TakeStep(std::exchange(ahead_, nullptr));
    ASSIGN_OR_RETURN(Inbox::Received received, Receive(deadline));
    if (received.update.has_epoch_end()) {
      RETURN_IF_ERROR(FinishEpoch(std::move(*received.update.mutable_epoch_end())));
    } else if (at_limit) {
      RETURN_IF_ERROR(EndIteration());
    } else {
      ASSIGN_OR_RETURN(StepHandle made, MakeStep(std::move(received)));
      ASSIGN_OR_RETURN(StepHandle step, TakeStep(std::move(made)));
      if (step->idle() && options_.idle == IdleMode::kSkip) continue;
      return step;
    }
  }
  return StepHandle();
}

absl::StatusOr<StepHandle> Client::Peek() {
  RETURN_IF_ERROR(CheckUsable());
  if (ahead_ != nullptr) return ahead_;
  if (!iterating_ || LimitReached() || received_ahead_.has_value()) return StepHandle();
  connection_->steps()->Poll();
  if (!inbox_->ready()) return StepHandle();
  absl::StatusOr<Inbox::Received> received = inbox_->Pop(absl::InfinitePast());
  if (!received.ok()) return StepHandle();  // Next() repeats it
  const v1::TrainerUpdate& update = received->update;
  if (!update.has_step() || (update.step().idle() && options_.idle == IdleMode::kSkip)) {
    received_ahead_ = *std::move(received);
    return StepHandle();
  }
  ASSIGN_OR_RETURN(ahead_, MakeStep(*std::move(received)));
  return ahead_;
}

void Client::ForgetAhead() {
  if (ahead_ != nullptr) ahead_->Forget();
  ahead_ = nullptr;
  received_ahead_.reset();
}

bool Client::LimitReached() const {
  return (limits_.max_steps > 0 && taken_ >= limits_.max_steps) ||
         (limits_.max_samples > 0 && emitted_samples_ >= limits_.max_samples);
}

absl::StatusOr<Inbox::Received> Client::Receive(absl::Time deadline) {
  if (received_ahead_.has_value()) {
    Inbox::Received received = std::move(*received_ahead_);
    received_ahead_.reset();
    return received;
  }
  StepTransport* const steps = connection_->steps();
  steps->Poll();
  if (!inbox_->ready() && !reported_waiting_) {
    reported_waiting_ = true;
    RETURN_IF_ERROR(ReportProgress(/*waiting=*/true, Haste::kNow));
  }
  if (!inbox_->ready()) steps->Wait(deadline);
  if (inbox_->ready()) return inbox_->Pop(deadline);
  const std::string why = steps->waiting_text();
  return absl::DeadlineExceededError(absl::StrCat(
      "no step came before the deadline; the daemon says: ", why.empty() ? "nothing" : why));
}

absl::StatusOr<StepHandle> Client::TakeStep(StepHandle step) {
  const absl::Duration now = SteadyNow();
  waits_.LeaveWith(now);
  step->SetWaited(waits_.last());
  taken_ = step->message().index() + 1;
  emitted_samples_ = step->message().emitted_samples();
  total_samples_ = step->message().total_samples();
  if (reported_waiting_ || waits_.ReportDue(now)) {
    reported_waiting_ = false;
    // The step is not held up for this.
    RETURN_IF_ERROR(ReportProgress(/*waiting=*/false, Haste::kWhenItLooks));
  }
  return step;
}

absl::StatusOr<StepHandle> Client::MakeStep(Inbox::Received received) {
  v1::Step step = std::move(*received.update.mutable_step());
  if (step.idle() && options_.idle == IdleMode::kStandIn && step.tensors_size() == 0) {
    return fault_ = absl::InternalError(
               absl::StrCat("the daemon sent step ", step.index(), " idle and without a stand-in"));
  }
  const bool with_tensors = !step.idle() || options_.idle == IdleMode::kStandIn;
  absl::StatusOr<StepHandle> made = ClientStep::Create(
      std::move(step), options_.over_tcp() ? std::move(received.memory) : connection_->arena(),
      outbox_, with_tensors);
  if (!made.ok()) fault_ = made.status();
  return made;
}

absl::Status Client::FinishEpoch(v1::EpochEnd end) {
  iterating_ = false;
  reported_waiting_ = false;
  waits_.LeaveWith(SteadyNow());  // for the end, which the trainer waits for as for a step
  epoch_end_ = std::move(end);
  return ReportProgress(/*waiting=*/false, Haste::kNow);
}

absl::Status Client::ReportProgress(bool waiting, Haste haste) {
  v1::TrainerEvent event;
  event.mutable_progress()->set_iterator(iterator_);
  event.mutable_progress()->set_taken(taken_);
  event.mutable_progress()->set_waiting(waiting);
  event.mutable_progress()->set_waited_us(absl::ToInt64Microseconds(waits_.total()));
  event.mutable_progress()->set_longest_wait_us(absl::ToInt64Microseconds(waits_.longest()));
  waits_.Reported(SteadyNow());
  return outbox_->Push(std::move(event), haste);
}

absl::Status Client::EndIteration() {
  RETURN_IF_ERROR(CheckUsable());
  if (!iterating_) return absl::OkStatus();
  // What was waited since the last report would be lost: later ones are of another iteration.
  if (waits_.HasNews()) RETURN_IF_ERROR(ReportProgress(/*waiting=*/false, Haste::kWhenItLooks));
  iterating_ = false;
  ForgetAhead();
  inbox_->StartIterator(iterator_ + 1);
  v1::TrainerEvent event;
  event.mutable_end_iteration()->set_iterator(iterator_);
  event.mutable_end_iteration()->set_taken(taken_);
  return outbox_->Push(std::move(event));
}

absl::Status Client::Close() {
  if (getpid() != owner_) return CheckUsable();
  if (closed_ || connection_ == nullptr) return absl::OkStatus();
  EndIteration().IgnoreError();
  v1::TrainerEvent event;
  event.mutable_close()->set_taken(taken_);
  outbox_->Push(std::move(event)).IgnoreError();
  closed_ = true;
  outbox_->Close();
  inbox_->Close();
  connection_->steps()->Shutdown(absl::Now() + options_.close_timeout);
  return absl::OkStatus();
}

std::string Client::waiting_text() const {
  return CheckUsable().ok() ? connection_->steps()->waiting_text() : "";
}

}  // namespace odb
