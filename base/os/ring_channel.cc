#include "base/os/ring_channel.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/os/timed_io.h"
#include "base/status_macros.h"

namespace odb {
namespace {

constexpr size_t kSizeBytes = 4;
constexpr size_t kPieceBytes = 16 << 10;  // of a long message, at a time
constexpr int kWakeupReads = 16;          // at a time: a peer may write faster than this end reads

std::string EncodeSize(size_t size) {
  std::string bytes;
  for (size_t i = 0; i < kSizeBytes; ++i) {
    bytes.push_back(static_cast<char>(size >> (8 * i) & 0xff));
  }
  return bytes;
}

size_t DecodeSize(absl::string_view bytes) {
  size_t size = 0;
  for (size_t i = 0; i < kSizeBytes; ++i) {
    size |= static_cast<size_t>(static_cast<unsigned char>(bytes[i])) << (8 * i);
  }
  return size;
}

}  // namespace

absl::StatusOr<std::unique_ptr<RingChannel>> RingChannel::Create(MappedRegion memory,
                                                                 FileDescriptor socket, End end,
                                                                 size_t message_bytes_max) {
  const size_t capacity = memory.size() / 2 - std::min(memory.size() / 2, kByteRingHeaderBytes);
  if (capacity == 0 || (capacity & (capacity - 1)) != 0 || memory.size() != MemoryBytes(capacity)) {
    return absl::InvalidArgumentError(
        absl::StrCat("two rings do not take ", memory.size(), " bytes of memory"));
  }
  return std::unique_ptr<RingChannel>(
      new RingChannel(std::move(memory), std::move(socket), capacity, end, message_bytes_max));
}

RingChannel::RingChannel(MappedRegion memory, FileDescriptor socket, size_t capacity, End end,
                         size_t message_bytes_max)
    : memory_(std::move(memory)),
      socket_(std::move(socket)),
      message_bytes_max_(message_bytes_max),
      writer_(memory_.data() + (end == End::kFirst ? 0 : memory_.size() / 2), capacity),
      reader_(memory_.data() + (end == End::kFirst ? memory_.size() / 2 : 0), capacity) {}

absl::StatusOr<bool> RingChannel::Send(absl::string_view message, Haste haste) {
  if (message.size() > std::numeric_limits<uint32_t>::max()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a message of ", message.size(), " bytes is too long for a ring"));
  }
  ASSIGN_OR_RETURN(const bool written, Flush());
  if (!written) return false;
  unsent_ = EncodeSize(message.size());
  unsent_.append(message.data(), message.size());
  unsent_at_ = 0;
  haste_ = haste;
  RETURN_IF_ERROR(Flush().status());
  return true;
}

absl::StatusOr<bool> RingChannel::Flush() {
  while (unsent_at_ < unsent_.size()) {
    ASSIGN_OR_RETURN(const size_t written,
                     writer_.Write(absl::string_view(unsent_).substr(unsent_at_)));
    unsent_at_ += written;
    // A full ring has to be read, whatever is in it.
    const bool wake = haste_ == Haste::kNow || written == 0;
    if (wake && writer_.TakeReaderWaits()) WakePeer();
    if (written > 0) continue;
    ASSIGN_OR_RETURN(const bool asked, writer_.AskForRoom());
    if (asked) return false;
  }
  return true;
}

absl::StatusOr<std::optional<std::string>> RingChannel::Receive() {
  RETURN_IF_ERROR(error_);
  if (size_bytes_.size() < kSizeBytes) {
    ASSIGN_OR_RETURN(const bool complete, ReadInto(kSizeBytes, &size_bytes_));
    if (!complete) return std::nullopt;
    message_bytes_ = DecodeSize(size_bytes_);
    if (message_bytes_ > message_bytes_max_) {
      return error_ = absl::ResourceExhaustedError(
                 absl::StrCat("a message in a ring has at most ", message_bytes_max_,
                              " bytes, announced are ", message_bytes_));
    }
  }
  ASSIGN_OR_RETURN(const bool complete, ReadInto(message_bytes_, &message_));
  if (!complete) return std::nullopt;
  size_bytes_.clear();
  return std::exchange(message_, std::string());
}

// Reads until `bytes` has `size`; false: not all is there yet. Room is only made for what arrives.
absl::StatusOr<bool> RingChannel::ReadInto(size_t size, std::string* bytes) {
  while (bytes->size() < size) {
    const size_t have = bytes->size();
    const size_t piece = std::min(size - have, kPieceBytes);
    bytes->resize(have + piece);
    const auto got = reader_.Read(piece, &(*bytes)[have]);
    bytes->resize(have + (got.ok() ? *got : 0));
    if (!got.ok()) return error_ = got.status();
    if (*got > 0 && reader_.TakeWriterWaits()) WakePeer();
    if (*got == 0) return false;
  }
  return true;
}

// A buffer that is full of wake-ups wakes as well, and a peer that is gone is noticed by the
// reader.
void RingChannel::WakePeer() const {
  const char byte = 0;
  while (::send(socket_.get(), &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 && errno == EINTR) {
  }
}

bool RingChannel::TakeWakeups() {
  char bytes[64];
  for (int i = 0; i < kWakeupReads && !peer_gone_; ++i) {
    const ssize_t got = ::recv(socket_.get(), bytes, sizeof bytes, MSG_DONTWAIT);
    if (got == static_cast<ssize_t>(sizeof bytes) || (got < 0 && errno == EINTR)) continue;
    peer_gone_ = got == 0 || (got < 0 && errno != EAGAIN);
    break;
  }
  return !peer_gone_;
}

void RingChannel::Wait(absl::Time deadline) {
  const SteadyDeadline until(deadline);
  if (peer_gone_ || !AboutToWait()) return;
  pollfd polled = {socket_.get(), POLLIN, 0};
  if (::poll(&polled, 1, until.PollMillis()) > 0) TakeWakeups();
}

void RingChannel::ShutdownSending() { ::shutdown(socket_.get(), SHUT_WR); }

void RingChannel::Shutdown() { ::shutdown(socket_.get(), SHUT_RDWR); }

}  // namespace odb
