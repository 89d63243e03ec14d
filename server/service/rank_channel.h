#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "base/os/mutex.h"
#include "proto/odb/v1/alignment.pb.h"
#include "proto/wire/record_codec.h"
#include "server/pipeline/round_exchange.h"
#include "server/service/aligner_pulse.h"

namespace odb {

// The way to one aligner process, as its channel sees it. Threads: thread-safe; called under no
// lock.
class AlignerLine {
 public:
  virtual ~AlignerLine() = default;
  // NextCommand has something to say, or the line is to end.
  virtual void Flush() = 0;
  // The calling thread waits for what the aligner says: it is handled before this returns, by this
  // thread or another. Returns after that, at Wake, at the deadline, or when the line has ended; at
  // once if another thread has handled something since the last call.
  virtual void Attend(absl::Time deadline) = 0;
  virtual void Wake() = 0;
};

// Where the pipeline of one rank and the aligner of that rank meet, and what outlives the aligner:
// the last completed round with its offer and digest, the offer of the round at work, and what of
// it was gathered. A new aligner, and a new generation, get all of it again.
//
// A generation is handed to one aligner process at most: a mesh cannot be joined twice.
//
// Threads: thread-safe. The pipeline's thread calls RoundExchange, whoever reads the aligner's line
// the middle part, the job the rest. A pipeline that waits attends that line itself, so that a
// table wakes no thread but the one that plans with it. Errors: as RoundExchange.
class RankChannel final : public RoundExchange {
 public:
  struct Options {
    Rank rank;
    int world_size = 1;
    uint64_t config_digest = 0;
    v1::AlignerSetup setup;  // complete but for the rank
  };

  RankChannel(Options options, RecordCodec codec);

  // A closing that ends the job is not passed on: odbd tells it to all nodes itself, in one
  // sentence that says more than a record can.
  void SetState(const OfferHeader& head) override;
  void Publish(Offer offer) override;
  absl::StatusOr<GatheredRound> WaitGathered(absl::Time deadline) override;
  void Planned(RoundId round, uint64_t digest) override;
  absl::Status WaitReleased(RoundId round, absl::Time deadline) override;
  void Wake() override;
  void Close() override { End(absl::CancelledError("the job has ended")); }

  // --- the aligner's line ---

  struct Connection {
    int64_t number = 0;  // from 1; a later one supersedes the earlier ones
    // The generation that an earlier aligner of this rank was in: it is broken. 0: none.
    Generation broken;
  };
  // `line`: until Disconnect, or the next Connect. To be flushed by the caller.
  Connection Connect(std::shared_ptr<AlignerLine> line);
  // The generation that the aligner leaves behind, 0 if none, or the connection was superseded.
  Generation Disconnect(int64_t connection);

  // What to tell the aligner next; none: nothing yet. Cancelled: end the line.
  absl::StatusOr<std::optional<v1::AlignerCommand>> NextCommand(int64_t connection);

  // OK as well for what is out of date, which is dropped. InvalidArgument for a table that is none,
  // Internal for a release that makes no sense.
  // `table`: the bytes that belong into gathered.table.
  absl::Status OnGathered(int64_t connection, const v1::Gathered& gathered,
                          absl::string_view table);
  absl::Status OnReleased(int64_t connection, const v1::RoundReleased& released);

  // --- the job ---

  // Ignored unless newer.
  void OpenGeneration(Generation generation, const std::vector<int>& node_of_rank);
  // All waits, now and later, end with `status`; the aligner is told to quit. The first one counts.
  void End(const absl::Status& status);

  RoundId last_completed() const;
  bool IsCurrent(int64_t connection) const;
  // The aligner has said something: it is not silent.
  void OnSign(int64_t connection, const v1::AlignerEvent& event);
  // It is connected, and has not said for too long what it owes (AlignerPulse).
  bool IsSilent(absl::Time now) const;
  // Since when an exchange is at work; InfiniteFuture if none is.
  absl::Time exchanging_since() const;
  // Since when the pipeline owes the plan of the round after last_completed, in whichever
  // generation it was gathered first; InfiniteFuture if it owes none.
  absl::Time unplanned_since() const;

 private:
  struct GatheredState {
    Generation generation;
    GatheredRound round;
    bool abandon = false;
    bool taken = false;  // by the pipeline
    std::optional<uint64_t> digest;
  };

  void SendHeadLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SendOfferLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void HandOutLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  v1::AlignerCommand* AddCommandLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Lets what was added be sent, and the pipeline look around. Under no lock.
  void FlushLine();
  void WakePipeline();
  // Waits for news, with the lock released: true at the deadline, or after Wake. May return early.
  bool AwaitNewsLocked(absl::Time deadline) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  OfferHeader Complete(OfferHeader head) const;

  const Options options_;
  const RecordCodec codec_;
  const RecordCodec head_codec_{/*window_max=*/0};  // of a head by itself

  mutable Mutex mutex_;  // guards all below
  CondVar changed_;      // for a pipeline without a line to attend

  RoundId last_completed_ ABSL_GUARDED_BY(mutex_);
  std::string stored_offer_ ABSL_GUARDED_BY(mutex_);  // record; empty: none
  uint64_t stored_digest_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stored_abandon_ ABSL_GUARDED_BY(mutex_) = false;

  // Of round last_completed_ + 1.
  std::string planned_offer_ ABSL_GUARDED_BY(mutex_);  // record; empty: none
  std::optional<OfferHeader> head_ ABSL_GUARDED_BY(mutex_);
  std::string offer_ ABSL_GUARDED_BY(mutex_);  // record as published; empty: none
  std::optional<GatheredState> gathered_ ABSL_GUARDED_BY(mutex_);

  Generation generation_ ABSL_GUARDED_BY(mutex_);  // newest opened
  std::vector<int> node_of_rank_ ABSL_GUARDED_BY(mutex_);
  Generation handed_ ABSL_GUARDED_BY(mutex_);  // newest that an aligner was told of
  int64_t connection_ ABSL_GUARDED_BY(mutex_) = 0;
  bool connected_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<AlignerLine> line_ ABSL_GUARDED_BY(mutex_);  // shared with its reader
  std::deque<v1::AlignerCommand> commands_ ABSL_GUARDED_BY(mutex_);
  AlignerPulse pulse_ ABSL_GUARDED_BY(mutex_);
  absl::Time unplanned_since_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  bool back_is_head_ ABSL_GUARDED_BY(mutex_) = false;  // the last command is a head only

  bool wake_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status end_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace odb
