#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "aligner/daemon/mesh_worker.h"
#include "aligner/protocol/alignment_machine.h"
#include "aligner/transport/transport.h"
#include "base/clock.h"
#include "base/os/mutex.h"
#include "proto/odb/v1/alignment.pb.h"
#include "proto/wire/record_codec.h"

namespace odb {

// The way to odbd: one ordered connection. As an idler it reads what odbd says and gives it to the
// driver. Threads: Send is called by one thread at a time.
class OdbdLink : public MeshIdler {
 public:
  // False: the connection has ended.
  virtual bool Send(v1::AlignerEvent event) = 0;
};

// Makes the transport that a setup asks for. Errors: those of the setup's options.
using TransportFactory = std::function<absl::StatusOr<std::unique_ptr<Transport>>(
    const v1::AlignerSetup& setup, const RecordSizes& sizes)>;

// Runs the AlignmentMachine of one rank between odbd and the mesh. Holds nothing that lasts: setup
// and resume state come from odbd, and a new generation begins from what that says.
//
// While the mesh of a new generation is being built, the machine is still in the old one; what it
// asks for then is dropped, as odbd drops what it reports of it.
//
// Events (commands, results of the mesh, the timer) are handled one at a time, in the order in
// which they come, on the thread that brings them: a round has no time for threads that only hand
// on. What comes while one is handled is left to the thread that handles it.
//
// Ownership: `link` and `clock` must outlive it. Threads: one runs Run; OnCommand and
// OnStreamEnd may come from any other, the mesh worker's is one of them, and brings most. Errors:
// what ends the job goes to odbd as AlignmentFailure, what ends a mesh as MeshFailure; Run returns
// InvalidArgument for a command that makes no sense.
class AlignmentDriver {
 public:
  AlignmentDriver(OdbdLink* link, TransportFactory create_transport, Clock* clock)
      : link_(link), create_transport_(std::move(create_transport)), clock_(clock) {}
  ~AlignmentDriver();

  void OnCommand(v1::AlignerCommand command);
  void OnStreamEnd();

  // Until odbd says quit, the stream ends, or odbd makes no sense. OK in the first two cases.
  absl::Status Run();

 private:
  struct StreamEnd {};
  using Event = std::variant<v1::AlignerCommand, std::variant<MeshOpened, Exchanged>, StreamEnd>;

  void Push(Event event);
  // Handles what is queued, and the timer if it is due. With handling_ set by the caller; clears
  // it.
  void HandleAll();
  std::optional<Event> TakeEvent();
  absl::Status Handle(Event event);
  // No event is handled any more, nor is one being handled, once it has returned.
  absl::Status Finish();

  absl::Status HandleCommand(const v1::AlignerCommand& command);
  absl::Status SetUp(const v1::AlignerSetup& setup);
  absl::Status OpenMesh(const v1::OpenGeneration& open);
  absl::Status TakeOffer(const v1::LocalOffer& local);
  void HandleMesh(MeshOpened opened);
  void HandleExchange(Exchanged exchanged);

  void Carry(std::vector<Effect> effects);
  void CarryOne(const StartExchange& effect);
  void CarryOne(const DeliverGathered& effect);
  void CarryOne(const ReleaseRound& effect);
  void CarryOne(const ReportWaiting& effect);
  void CarryOne(const SetTimer& effect);
  void CarryOne(const Fail& effect);
  void CarryOne(const RequestNewGeneration& effect);

  void Send(v1::AlignerEvent event);
  void SendFailure(const absl::Status& status, const std::vector<Rank>& culprits);
  void SendMeshFailure(Generation generation, const std::string& reason,
                       std::optional<Rank> suspect);

  OdbdLink* const link_;
  const TransportFactory create_transport_;
  Clock* const clock_;

  // Of the thread that handles events.
  Rank rank_;
  absl::Duration exchange_timeout_;
  std::optional<RecordCodec> codec_;
  std::optional<AlignmentMachine> machine_;
  Generation generation_;  // the newest that odbd opened
  ResumeState resume_;     // of generation_, until its mesh stands
  std::string offers_;     // table of the last offer exchange, as it came
  absl::Time timer_ = absl::InfiniteFuture();
  bool finished_ = false;

  Mutex mutex_;  // guards all below
  CondVar changed_;
  std::deque<Event> events_ ABSL_GUARDED_BY(mutex_);
  bool handling_ ABSL_GUARDED_BY(mutex_) = false;                     // a thread does
  bool over_ ABSL_GUARDED_BY(mutex_) = false;                         // finished_, for the others
  absl::Time next_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();  // timer_, for the others
  absl::Time wake_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();  // until then Run waits
  bool due_ ABSL_GUARDED_BY(mutex_) = false;                          // Run waits for its turn
  absl::Status status_ ABSL_GUARDED_BY(mutex_);                       // of Run

  // Last, so that its thread ends before what it calls.
  std::unique_ptr<MeshWorker> worker_;
};

}  // namespace odb
