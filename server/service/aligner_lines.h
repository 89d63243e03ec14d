#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "base/os/file_descriptor.h"
#include "base/os/frame_line.h"
#include "base/os/mutex.h"

namespace odb {

class AlignmentHub;
class AlignerConnection;

// The connections of a job's aligner processes to its hub: a pair of sockets for each, which only
// the two processes have. Frames (base/os/frame_socket.h) carry AlignerEvent in and AlignerCommand
// out; `Gathered.table` and `LocalOffer.record` travel as the frame's body. The first event is
// `hello`.
//
// A connection ends when the aligner goes, sends what is no event, or a newer aligner of the rank
// connects; an aligner whose connection has ended exits by itself.
//
// Ownership: `hub` must outlive it. Threads: thread-safe; has one of its own ("align-lines"), on
// which the hub is called for whoever does not attend his line.
class AlignerLines {
 public:
  // How long an aligner may take from its start to its hello, and from the end of its connection to
  // its own.
  static constexpr absl::Duration kHelloTimeout = absl::Seconds(60);
  static constexpr absl::Duration kExitTimeout = absl::Seconds(5);

  // Errors: what the kernel refused.
  static absl::StatusOr<std::unique_ptr<AlignerLines>> Start(uint64_t job, AlignmentHub* hub);
  // Ends all connections; the hub is not called any more. Not from a call of the hub.
  ~AlignerLines();

  // odbd's end of the socket of a process that was just started. Errors: what the kernel refused.
  absl::Status Add(Rank rank, FileDescriptor socket);

  // Ranks whose last aligner is late with its hello, or with its end: it lives and is of no use.
  std::vector<Rank> LateRanks(absl::Time now) const;

 private:
  AlignerLines(uint64_t job, AlignmentHub* hub, std::unique_ptr<FrameLines> lines);

  const uint64_t job_;
  AlignmentHub* const hub_;

  mutable Mutex mutex_;  // guards all below
  std::map<Rank, std::shared_ptr<AlignerConnection>> last_ ABSL_GUARDED_BY(mutex_);

  // Last, so that no handler runs when the rest goes.
  const std::unique_ptr<FrameLines> lines_;
};

}  // namespace odb
