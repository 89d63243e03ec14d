#include "server/service/aligner_lines.h"

#include <spdlog/spdlog.h>

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "proto/odb/v1/alignment.pb.h"
#include "proto/wire/record_codec.h"
#include "server/service/alignment_hub.h"
#include "server/service/rank_channel.h"

namespace odb {

// One aligner process. Ownership: shared by its channel and AlignerLines.
class AlignerConnection final : public AlignerLine,
                                public std::enable_shared_from_this<AlignerConnection> {
 public:
  AlignerConnection(uint64_t job, Rank rank, AlignmentHub* hub)
      : job_(job), rank_(rank), hub_(hub), late_at_(absl::Now() + AlignerLines::kHelloTimeout) {}

  FrameLine::Handlers MakeHandlers();
  void Open(std::shared_ptr<FrameLine> line) {
    line_ = std::move(line);
    line_->Open();
  }
  absl::Time late_at() const {
    MutexLock lock(&mutex_);
    return late_at_;
  }

  void Flush() override;
  void Attend(absl::Time deadline) override { line_->Attend(deadline); }
  void Wake() override { line_->Wake(); }

 private:
  absl::Status OnFrame(const FrameLine::Frame& frame);
  absl::Status OnHello(const v1::AlignerEvent& event);
  void OnRoom();
  void OnEnd(const absl::Status& status);
  // Sends commands until there is none, or no room for them.
  void SendAll();
  absl::StatusOr<bool> SendNext();

  const uint64_t job_;
  const Rank rank_;
  AlignmentHub* const hub_;
  std::shared_ptr<FrameLine> line_;  // constant from Open on; shared with its FrameLines

  // Of whoever reads; set once, before anybody sends.
  std::shared_ptr<RankChannel> channel_;
  RankChannel::Connection connection_;
  int64_t pid_ = 0;

  mutable Mutex mutex_;  // guards all below
  absl::Time late_at_ ABSL_GUARDED_BY(mutex_);
  bool open_ ABSL_GUARDED_BY(mutex_) = false;     // the hello was accepted
  bool sending_ ABSL_GUARDED_BY(mutex_) = false;  // a thread does, or waits for room
  bool again_ ABSL_GUARDED_BY(mutex_) = false;    // there may be more to send
};

FrameLine::Handlers AlignerConnection::MakeHandlers() {
  // Weak: this owns the line. Nobody misses a connection that is neither the last nor the
  // channel's.
  const std::weak_ptr<AlignerConnection> weak = weak_from_this();
  FrameLine::Handlers handlers;
  handlers.on_frame = [weak](const FrameLine::Frame& frame) {
    const auto self = weak.lock();
    return self == nullptr ? absl::CancelledError("superseded") : self->OnFrame(frame);
  };
  handlers.on_room = [weak] {
    if (const auto self = weak.lock()) self->OnRoom();
  };
  handlers.on_end = [weak](const absl::Status& status) {
    if (const auto self = weak.lock()) self->OnEnd(status);
  };
  return handlers;
}

absl::Status AlignerConnection::OnFrame(const FrameLine::Frame& frame) {
  v1::AlignerEvent event;
  if (!event.ParseFromArray(frame.message.data(), static_cast<int>(frame.message.size()))) {
    return absl::InvalidArgumentError(
        absl::StrCat("it sent ", frame.message.size(), " bytes that are no event"));
  }
  if (channel_ == nullptr) return OnHello(event);
  return hub_->OnEvent(rank_, connection_.number, event, frame.body);
}

absl::Status AlignerConnection::OnHello(const v1::AlignerEvent& event) {
  if (!event.has_hello()) return absl::InvalidArgumentError("its first event is no hello");
  const v1::AlignerHello& hello = event.hello();
  if (hello.wire_version() != kWireVersion) {
    return absl::FailedPreconditionError(absl::StrCat(
        "odb-aligner speaks wire version ", hello.wire_version(), ", odbd ", kWireVersion));
  }
  if (hello.job() != job_ || hello.rank() != rank_.value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("it says that it is of job ", hello.job(), " and rank ", hello.rank()));
  }
  pid_ = hello.pid();
  {
    MutexLock lock(&mutex_);
    late_at_ = absl::InfiniteFuture();
  }
  ASSIGN_OR_RETURN(channel_, hub_->Connect(rank_, pid_, shared_from_this(), &connection_));
  {
    MutexLock lock(&mutex_);
    open_ = true;
  }
  Flush();
  return absl::OkStatus();
}

void AlignerConnection::OnEnd(const absl::Status& status) {
  {
    MutexLock lock(&mutex_);
    open_ = false;
    late_at_ = absl::Now() + AlignerLines::kExitTimeout;
  }
  if (!absl::IsUnavailable(status) && !absl::IsCancelled(status)) {
    spdlog::error("job {}: the connection of the aligner of rank {} (pid {}) was ended: {}", job_,
                  rank_.value(), pid_, std::string(status.message()));
  }
  if (channel_ != nullptr) hub_->Disconnect(rank_, connection_.number);
}

void AlignerConnection::Flush() {
  {
    MutexLock lock(&mutex_);
    again_ = true;
    if (!open_ || std::exchange(sending_, true)) return;
  }
  SendAll();
}

void AlignerConnection::SendAll() {
  while (true) {
    {
      MutexLock lock(&mutex_);
      sending_ = open_ && again_;
      if (!sending_) return;
      again_ = false;
    }
    absl::StatusOr<bool> more = true;
    while (more.ok() && *more) more = SendNext();
    if (more.ok()) continue;
    return;  // without room: until OnRoom; otherwise whoever reads the line finds out
  }
}

void AlignerConnection::OnRoom() {
  {
    MutexLock lock(&mutex_);
    again_ = true;
  }
  SendAll();
}

absl::StatusOr<bool> AlignerConnection::SendNext() {
  absl::StatusOr<std::optional<v1::AlignerCommand>> command =
      channel_->NextCommand(connection_.number);
  if (!command.ok()) line_->Close();
  RETURN_IF_ERROR(command.status());
  if (!command->has_value()) return false;
  std::string record;
  if ((*command)->has_offer()) record.swap(*(*command)->mutable_offer()->mutable_record());
  ASSIGN_OR_RETURN(const bool gone, line_->Send((*command)->SerializeAsString(), record));
  if (!gone) return absl::ResourceExhaustedError("no room for now");
  return true;
}

AlignerLines::AlignerLines(uint64_t job, AlignmentHub* hub, std::unique_ptr<FrameLines> lines)
    : job_(job), hub_(hub), lines_(std::move(lines)) {}

AlignerLines::~AlignerLines() = default;

absl::StatusOr<std::unique_ptr<AlignerLines>> AlignerLines::Start(uint64_t job, AlignmentHub* hub) {
  ASSIGN_OR_RETURN(auto lines, FrameLines::Start("align-lines"));
  return std::unique_ptr<AlignerLines>(new AlignerLines(job, hub, std::move(lines)));
}

absl::Status AlignerLines::Add(Rank rank, FileDescriptor socket) {
  auto connection = std::make_shared<AlignerConnection>(job_, rank, hub_);
  ASSIGN_OR_RETURN(auto line, lines_->Add(std::move(socket), connection->MakeHandlers()));
  {
    MutexLock lock(&mutex_);
    last_[rank] = connection;
  }
  connection->Open(std::move(line));
  return absl::OkStatus();
}

std::vector<Rank> AlignerLines::LateRanks(absl::Time now) const {
  MutexLock lock(&mutex_);
  std::vector<Rank> late;
  for (const auto& [rank, connection] : last_) {
    if (now >= connection->late_at()) late.push_back(rank);
  }
  return late;
}

}  // namespace odb
