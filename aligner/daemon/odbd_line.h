#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "aligner/daemon/alignment_driver.h"
#include "base/os/file_descriptor.h"
#include "base/os/frame_line.h"
#include "base/os/mutex.h"

namespace odb {

// The connection to odbd: frames (base/os/frame_socket.h) with AlignerEvent out and AlignerCommand
// in; `Gathered.table` and `LocalOffer.record` travel as the frame's body.
//
// Commands are read by the mesh worker's thread while it is idle, by a stand-in ("odbd-line") while
// it is in an exchange, or is not there yet.
//
// Ownership: of main. The driver must outlive it, or Close. Threads: as OdbdLink; one of its own.
class OdbdLine final : public OdbdLink {
 public:
  // odbd reads at once; a write that takes longer means that it is stopped or stuck.
  static constexpr absl::Duration kReadTimeout = absl::Seconds(60);

  // Takes the socket that odbd gave to this process. Errors: what the kernel refused.
  static absl::StatusOr<std::unique_ptr<OdbdLine>> Start(FileDescriptor socket);

  // Once: commands, and the end, go to `driver` from now on.
  void Open(AlignmentDriver* driver);
  // No command comes any more once it has returned. Not from the driver.
  void Close();

  // Why no more commands came; OK if this side closed it, or while it is open.
  absl::Status end() const;

  bool Send(v1::AlignerEvent event) override;
  void Idle() override { line_->Attend(absl::InfiniteFuture()); }
  void Wake() override { line_->Wake(); }
  void OnCallBegin() override { line_->Leave(); }
  void OnCallEnd() override { line_->Return(); }

 private:
  OdbdLine() = default;
  absl::Status OnFrame(const FrameLine::Frame& frame);
  void OnEnd(const absl::Status& status);

  AlignmentDriver* driver_ = nullptr;  // constant from Open on
  std::shared_ptr<FrameLine> line_;    // shared with lines_

  mutable Mutex mutex_;  // guards all below
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status end_ ABSL_GUARDED_BY(mutex_);

  // Last, so that no handler runs when the rest goes.
  std::unique_ptr<FrameLines> lines_;
};

}  // namespace odb
