#include "aligner/daemon/odbd_line.h"

#include <spdlog/spdlog.h>

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/os/unix_socket.h"
#include "base/status_macros.h"

namespace odb {

absl::StatusOr<std::unique_ptr<OdbdLine>> OdbdLine::Start(FileDescriptor socket) {
  RETURN_IF_ERROR(GetPeerCredentials(socket.get()).status());  // that it is a socket at all
  std::unique_ptr<OdbdLine> self(new OdbdLine());
  OdbdLine* const line = self.get();
  ASSIGN_OR_RETURN(self->lines_, FrameLines::Start("odbd-line"));
  FrameLine::Handlers handlers;
  handlers.on_frame = [line](const FrameLine::Frame& frame) { return line->OnFrame(frame); };
  handlers.on_room = [] {};  // never: all sends wait
  handlers.on_end = [line](const absl::Status& status) { line->OnEnd(status); };
  ASSIGN_OR_RETURN(self->line_, self->lines_->Add(std::move(socket), std::move(handlers)));
  return self;
}

void OdbdLine::Open(AlignmentDriver* driver) {
  driver_ = driver;
  line_->Open();
}

void OdbdLine::Close() {
  {
    MutexLock lock(&mutex_);
    closed_ = true;
  }
  lines_.reset();
}

absl::Status OdbdLine::end() const {
  MutexLock lock(&mutex_);
  return end_;
}

bool OdbdLine::Send(v1::AlignerEvent event) {
  std::string table;
  if (event.has_gathered()) table.swap(*event.mutable_gathered()->mutable_table());
  const absl::Status sent =
      line_->SendAll(event.SerializeAsString(), table, absl::Now() + kReadTimeout);
  if (!sent.ok()) spdlog::error("odbd cannot be told: {}", std::string(sent.message()));
  return sent.ok();
}

absl::Status OdbdLine::OnFrame(const FrameLine::Frame& frame) {
  v1::AlignerCommand command;
  if (!command.ParseFromArray(frame.message.data(), static_cast<int>(frame.message.size()))) {
    return absl::InvalidArgumentError(
        absl::StrCat("it sent ", frame.message.size(), " bytes that are no command"));
  }
  if (command.has_offer()) {
    command.mutable_offer()->set_record(frame.body.data(), frame.body.size());
  }
  driver_->OnCommand(std::move(command));
  return absl::OkStatus();
}

void OdbdLine::OnEnd(const absl::Status& status) {
  {
    MutexLock lock(&mutex_);
    if (closed_) return;
    end_ = status;
  }
  driver_->OnStreamEnd();
}

}  // namespace odb
