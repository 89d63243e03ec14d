#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/os/file_descriptor.h"

namespace odb {

// Frames over a connected stream socket, each with two parts: a message, and a body of raw bytes
// that nobody has to decode to read the message.
//
//   0 u32 magic "ODBF"   4 u32 message bytes   8 u32 body bytes   12 message, body
//
// Integers are little endian. Nothing in here blocks, but SendAll.
//
// Ownership: owns the socket, and makes it non-blocking. Threads: one may send while another
// receives. Errors: Unavailable if the peer is gone; InvalidArgument for bytes that are no frame,
// or a frame that is too long; then the socket is of no further use.
class FrameSocket {
 public:
  static constexpr size_t kHeadBytes = 12;
  // Of message and body together. A length that a peer claims costs memory only as its bytes come.
  static constexpr size_t kFrameBytesMax = size_t{1} << 30;

  // Valid until the next call of Fill.
  struct Frame {
    absl::string_view message;
    absl::string_view body;
  };

  explicit FrameSocket(FileDescriptor socket, size_t frame_bytes_max = kFrameBytesMax);

  int fd() const { return socket_.get(); }

  // --- sending ---

  // In one system call if the peer has room. False: a rest is kept; nothing else may be sent until
  // Continue, to be called when the socket is writable, has returned true.
  absl::StatusOr<bool> Send(absl::string_view message, absl::string_view body);
  absl::StatusOr<bool> Continue();
  // Send and Continue until all is gone. Errors: DeadlineExceeded, too.
  absl::Status SendAll(absl::string_view message, absl::string_view body, absl::Time deadline);

  // --- receiving ---

  // Takes what has come, in one system call, once Next has given all that came before. OK as well
  // if nothing has come. Unavailable at the end, "in the middle of a frame" if that is where it is.
  absl::Status Fill();
  // The next frame of what was taken; none if it is not complete.
  absl::StatusOr<std::optional<Frame>> Next();

  // What the receiving side holds.
  size_t buffer_bytes() const { return buffer_.size(); }

 private:
  size_t buffered() const { return end_ - begin_; }
  void MakeRoom();

  const FileDescriptor socket_;
  const size_t frame_bytes_max_;

  std::string unsent_;

  std::vector<char> buffer_;  // [begin_, end_) is what was taken and not given
  size_t begin_ = 0;
  size_t end_ = 0;
  size_t wanted_ = kHeadBytes;  // bytes of the frame at begin_, as far as known
};

}  // namespace odb
