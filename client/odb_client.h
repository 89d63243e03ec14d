#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/client_options.h"
#include "client/inbox.h"
#include "client/outbox.h"
#include "client/step.h"
#include "client/wait_meter.h"
#include "proto/odb/v1/trainer.pb.h"

namespace odb {

class SessionConnection;

// Where an iteration ends before its epoch does; 0 = no limit. Every rank that sets the same limits
// stops at the same step: both count what is equal on all ranks.
struct IterationLimits {
  int64_t max_steps = 0;    // micro-batches, idle ones counted
  int64_t max_samples = 0;  // samples over all ranks; the step that reaches it is the last
};

// A trainer's session with its node's odbd: steps of tensors in shared memory, or, from another
// machine over TCP, in memory of its own.
//
//   ASSIGN_OR_RETURN(const ClientOptions options, ClientOptions::FromEnvironment());
//   ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, Client::Open(options));
//   RETURN_IF_ERROR(client->StartEpoch(epoch));
//   while (true) {
//     ASSIGN_OR_RETURN(const StepHandle step, client->Next(absl::InfiniteFuture()));
//     if (step == nullptr) break;  // the epoch is over
//     Train(*step);
//   }
//
// Ownership: a step's memory goes back to the daemon when its last handle dies, in any thread,
// before or after Close(). Threads: one thread at a time calls the client; step handles are free.
// With a step ring the client has no thread of its own and nothing of gRPC; with a stream it holds
// two threads and a gRPC channel until Close(). Fork: in a forked child every call
// returns FailedPrecondition and the destructor does nothing; the parent's client is not touched.
// Steps held at the fork stay readable in the child. Errors, besides each method's:
// FailedPrecondition after Close() or in a child; the session's one error (its code and text come
// from the daemon, or Unavailable with the socket's path when the daemon is gone), which every
// later call repeats.
class Client {
 public:
  // Attaches. Errors: InvalidArgument for an option out of range; NotFound or Unavailable if no
  // odbd answers at the socket within connect_timeout; what the daemon says about the session.
  static absl::StatusOr<std::unique_ptr<Client>> Open(const ClientOptions& options);
  ~Client();  // as Close()
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // What the daemon said at Open(): accumulation, records, estimated steps, ...
  const v1::OpenSessionReply& session() const;

  // Where the arena is mapped; its size is session().arena_bytes(). nullptr over TCP.
  const char* arena() const;

  // How the steps travel: Transport::kRing or kStream.
  Transport transport() const;

  // Whether the arena is pinned for the GPU, and, if it was to be and is not, why: one sentence
  // without a full stop. Empty if it is pinned or nobody asked (ClientOptions::pin).
  bool pinned() const;
  const std::string& why_not_pinned() const;

  // Whether the session has its one error: no call will give a step any more, but for those that
  // came before it.
  bool failed() const;

  // How many shapes there are to try before the first step, and the i-th of them as a step, largest
  // first: a model that has run all of them runs out of memory at no later step. Its tensors lie in
  // memory of their own, which goes with the handle, and hold valid values; it has no samples and
  // no ids, step_id 0 and loss scale 0. Equal on all ranks. May be called at any time; tells the
  // daemon nothing. Errors: OutOfRange unless 0 <= i < num_probes(); ResourceExhausted or what
  // the kernel says if there is no memory.
  int num_probes() const { return session().probes_size(); }
  absl::StatusOr<StepHandle> MakeProbe(int i) const;

  // Begins an iteration over `epoch`; one that still runs is ended first.
  // InvalidArgument if epoch or a limit is negative.
  absl::Status StartEpoch(int64_t epoch, const IterationLimits& limits = {});

  // The next step, or nullptr once the iteration is over. DeadlineExceeded: nothing came, and why
  // in the daemon's words; call again. FailedPrecondition before StartEpoch().
  absl::StatusOr<StepHandle> Next(absl::Time deadline);

  // The step that the next Next() gives, if it is here already: to prepare for it (copy it to a
  // device) while the trainer is busy with the one before. It is not taken by that: if the
  // iteration ends before Next() gave it, the daemon uses its memory again, whoever still holds the
  // handle. nullptr: nothing is here yet, or an end, or a step that kSkip leaves out. Does not
  // wait. Errors: FailedPrecondition, Internal; those of the session are Next()'s to tell.
  absl::StatusOr<StepHandle> Peek();

  // Leaves the iteration after the last step that Next() gave. OK if none runs.
  absl::Status EndIteration();

  // Ends the session. Never fails because of a daemon that is gone. Further calls do nothing.
  absl::Status Close();

  // Steps of this iteration that Next() has passed.
  int64_t taken() const { return taken_; }

  // What was spent in Next() for the steps of this iteration, or of the last one: altogether, and
  // for the one that took longest. The daemon is told about once a second, and at the end.
  absl::Duration waited() const { return waits_.total(); }
  absl::Duration longest_wait() const { return waits_.longest(); }

  // Which iteration of the session was started last, from 0; -1 before the first.
  int64_t iterator() const { return iterator_; }

  // How the last iteration that reached the end of its epoch ended.
  const std::optional<v1::EpochEnd>& epoch_end() const { return epoch_end_; }

  // Why no step comes, in the daemon's words; empty if it gave no reason.
  std::string waiting_text() const;

 private:
  Client(const ClientOptions& options);

  absl::Status CheckUsable() const;
  bool LimitReached() const;
  absl::StatusOr<StepHandle> TakeNext(absl::Time deadline);
  absl::StatusOr<Inbox::Received> Receive(absl::Time deadline);
  absl::Status ReportProgress(bool waiting, Haste haste);
  absl::StatusOr<StepHandle> MakeStep(Inbox::Received received);
  absl::StatusOr<StepHandle> TakeStep(StepHandle step);
  void ForgetAhead();
  absl::Status FinishEpoch(v1::EpochEnd end);

  const pid_t owner_;
  const ClientOptions options_;
  std::unique_ptr<Inbox> inbox_;
  std::shared_ptr<Outbox> outbox_;  // shared with the steps, which may outlive the client
  std::unique_ptr<SessionConnection> connection_;

  absl::Status fault_;  // a step that cannot be right; nothing after it can be trusted
  bool closed_ = false;
  bool iterating_ = false;
  bool reported_waiting_ = false;
  WaitMeter waits_;
  int64_t iterator_ = -1;
  IterationLimits limits_;
  int64_t taken_ = 0;
  int64_t emitted_samples_ = 0;
  int64_t total_samples_ = 0;
  std::optional<v1::EpochEnd> epoch_end_;
  // What Peek() took out of the inbox: a step to give, or anything else.
  StepHandle ahead_;
  std::optional<Inbox::Received> received_ahead_;
};

}  // namespace odb
