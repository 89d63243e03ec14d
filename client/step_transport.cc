#include "client/step_transport.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace odb {

void UpdateIntake::Receive(v1::TrainerUpdate update, StepMemory memory) {
  if (update.has_failure()) {
    {
      MutexLock lock(&mutex_);
      failed_ = true;
    }
    inbox_->Fail(absl::Status(static_cast<absl::StatusCode>(update.failure().code()),
                              update.failure().message()));
    outbox_->Close();  // which ends our side too
    return;
  }
  if (!update.has_step() && !update.has_epoch_end() && !update.has_waiting()) return;
  {
    MutexLock lock(&mutex_);
    waiting_text_ = update.has_waiting() ? update.waiting().text() : "";
  }
  if (!update.has_waiting()) inbox_->Push(std::move(update), std::move(memory));
}

bool UpdateIntake::failed() {
  MutexLock lock(&mutex_);
  return failed_;
}

std::string UpdateIntake::waiting_text() {
  MutexLock lock(&mutex_);
  return waiting_text_;
}

bool IsBroken(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsCancelled(status) || absl::IsUnknown(status);
}

absl::Status SaidBy(absl::string_view socket, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat("odbd at ", socket, ": ", status.message()));
}

absl::Status Gone(absl::string_view socket, const v1::OpenSessionReply& session,
                  absl::string_view why) {
  return absl::UnavailableError(
      absl::StrCat("odbd at ", socket, " (pid ", session.daemon_pid(), ") is gone: ", why));
}

absl::Status NotReached(absl::string_view socket, const v1::OpenSessionReply& session,
                        absl::string_view why, absl::Duration tried) {
  return absl::UnavailableError(absl::StrCat("odbd at ", socket, " (pid ", session.daemon_pid(),
                                             " there) is gone or cannot be reached: ", why,
                                             "; gave up after ", absl::FormatDuration(tried)));
}

absl::Status NotTakenBack(absl::string_view socket, absl::string_view why, absl::Duration tried) {
  return absl::DeadlineExceededError(
      absl::StrCat("odbd at ", socket, " lives, but does not take the session back (", why,
                   "); gave up after ", absl::FormatDuration(tried)));
}

}  // namespace odb
