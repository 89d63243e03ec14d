#include "base/os/frame_socket.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/os/timed_io.h"
#include "base/status_macros.h"

namespace odb {
namespace {

constexpr uint32_t kMagic = 0x4642444f;  // "ODBF"
// Room for what comes; also how far the buffer grows ahead of the bytes that have come.
constexpr size_t kRoomBytes = size_t{64} << 10;

void Put(uint32_t value, char* bytes) {
  for (int i = 0; i < 4; ++i) bytes[i] = static_cast<char>(value >> (8 * i));
}

uint32_t Get(const char* bytes) {
  uint32_t value = 0;
  for (int i = 0; i < 4; ++i) value |= uint32_t{static_cast<uint8_t>(bytes[i])} << (8 * i);
  return value;
}

absl::Status TooLong(uint64_t bytes, size_t limit) {
  return absl::InvalidArgumentError(
      absl::StrCat("a frame of ", bytes, " bytes is longer than the limit of ", limit));
}

}  // namespace

FrameSocket::FrameSocket(FileDescriptor socket, size_t frame_bytes_max)
    : socket_(std::move(socket)), frame_bytes_max_(frame_bytes_max) {
  const int flags = ::fcntl(socket_.get(), F_GETFL);
  INVARIANT(flags >= 0 && ::fcntl(socket_.get(), F_SETFL, flags | O_NONBLOCK) == 0,
            "a socket can be made non-blocking");
}

absl::StatusOr<bool> FrameSocket::Send(absl::string_view message, absl::string_view body) {
  INVARIANT(unsent_.empty(), "a frame is sent after the one before");
  const uint64_t size = uint64_t{message.size()} + body.size();
  if (size > frame_bytes_max_) return TooLong(size, frame_bytes_max_);
  char head[kHeadBytes];
  Put(kMagic, head);
  Put(static_cast<uint32_t>(message.size()), head + 4);
  Put(static_cast<uint32_t>(body.size()), head + 8);
  const std::array<absl::string_view, 3> parts = {absl::string_view(head, sizeof head), message,
                                                  body};
  std::array<struct iovec, 3> vectors;
  for (size_t i = 0; i < parts.size(); ++i) {
    vectors[i] = {const_cast<char*>(parts[i].data()), parts[i].size()};
  }
  struct msghdr packet = {};
  packet.msg_iov = vectors.data();
  packet.msg_iovlen = vectors.size();
  ssize_t sent = -1;
  do {
    sent = ::sendmsg(socket_.get(), &packet, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (sent < 0 && errno == EINTR);
  if (sent < 0 && errno != EAGAIN) {
    if (errno == EPIPE || errno == ECONNRESET) {
      return absl::UnavailableError("the peer has closed the connection");
    }
    return SystemError(errno, "cannot send a frame");
  }
  size_t gone = sent < 0 ? 0 : static_cast<size_t>(sent);
  for (const absl::string_view part : parts) {
    const size_t skipped = std::min(gone, part.size());
    gone -= skipped;
    absl::StrAppend(&unsent_, part.substr(skipped));
  }
  return unsent_.empty();
}

absl::StatusOr<bool> FrameSocket::Continue() {
  size_t gone = 0;
  while (gone < unsent_.size()) {
    const ssize_t sent = ::send(socket_.get(), unsent_.data() + gone, unsent_.size() - gone,
                                MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      gone += static_cast<size_t>(sent);
    } else if (errno == EAGAIN) {
      break;
    } else if (errno == EPIPE || errno == ECONNRESET) {
      return absl::UnavailableError("the peer has closed the connection");
    } else if (errno != EINTR) {
      return SystemError(errno, "cannot send a frame");
    }
  }
  unsent_.erase(0, gone);
  return unsent_.empty();
}

absl::Status FrameSocket::SendAll(absl::string_view message, absl::string_view body,
                                  absl::Time deadline) {
  ASSIGN_OR_RETURN(bool gone, Send(message, body));
  while (!gone) {
    RETURN_IF_ERROR(WaitWritable(socket_.get(), deadline));
    ASSIGN_OR_RETURN(gone, Continue());
  }
  return absl::OkStatus();
}

void FrameSocket::MakeRoom() {
  if (begin_ == end_) begin_ = end_ = 0;
  if (buffer_.size() - end_ >= kRoomBytes / 2) return;
  std::memmove(buffer_.data(), buffer_.data() + begin_, buffered());
  end_ -= begin_;
  begin_ = 0;
  const size_t size = std::min(std::max(wanted_, kRoomBytes), 2 * end_ + kRoomBytes);
  if (size > buffer_.size()) buffer_.resize(size);
  INVARIANT(end_ < buffer_.size(), "the frames that are complete are taken before more is read");
}

absl::Status FrameSocket::Fill() {
  MakeRoom();
  ssize_t got = -1;
  do {
    got = ::recv(socket_.get(), buffer_.data() + end_, buffer_.size() - end_, MSG_DONTWAIT);
  } while (got < 0 && errno == EINTR);
  if (got > 0) {
    end_ += static_cast<size_t>(got);
    return absl::OkStatus();
  }
  if (got < 0 && errno == EAGAIN) return absl::OkStatus();
  if (got < 0 && errno != ECONNRESET) return SystemError(errno, "cannot receive a frame");
  if (buffered() == 0) return absl::UnavailableError("the peer has closed the connection");
  return absl::UnavailableError(
      absl::StrCat("the peer has closed the connection in the middle of a frame, after ",
                   buffered(), " of ", wanted_, " bytes"));
}

absl::StatusOr<std::optional<FrameSocket::Frame>> FrameSocket::Next() {
  if (buffered() < kHeadBytes) return std::optional<Frame>();
  const char* const head = buffer_.data() + begin_;
  if (Get(head) != kMagic) {
    return absl::InvalidArgumentError("the peer sent bytes that do not begin a frame");
  }
  const size_t message_bytes = Get(head + 4);
  const size_t body_bytes = Get(head + 8);
  if (message_bytes + body_bytes > frame_bytes_max_) {
    return TooLong(message_bytes + body_bytes, frame_bytes_max_);
  }
  wanted_ = kHeadBytes + message_bytes + body_bytes;
  if (buffered() < wanted_) return std::optional<Frame>();
  Frame frame;
  frame.message = absl::string_view(head + kHeadBytes, message_bytes);
  frame.body = absl::string_view(head + kHeadBytes + message_bytes, body_bytes);
  begin_ += wanted_;
  wanted_ = kHeadBytes;
  return std::optional<Frame>(frame);
}

}  // namespace odb
