#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/os/file_descriptor.h"

struct sockaddr_un;

namespace odb {

// Stream sockets with a path. All functions: any thread, no state of their own; descriptors that
// they return are non-blocking and close-on-exec, descriptors that they take may be either.

// Longest path that the kernel takes for a socket, in bytes.
inline constexpr size_t kSocketPathBytesMax = 107;

// Connects to the socket at `path`.
// Errors: InvalidArgument for a path that is empty, longer than the limit or holds a zero byte;
// NotFound if there is nothing; Unavailable if nobody listens there any more; DeadlineExceeded if
// its owner does not accept; PermissionDenied; FailedPrecondition for something that is no such
// socket.
absl::StatusOr<FileDescriptor> ConnectUnix(const std::string& path, absl::Time deadline);

struct PeerCredentials {
  pid_t pid = 0;  // as seen from here; 0 if the process is in another PID namespace
  uid_t uid = 0;
  gid_t gid = 0;
};

// Who is at the other end, by the word of the kernel: for an accepted connection who connected, for
// a connection made here who called listen.
absl::StatusOr<PeerCredentials> GetPeerCredentials(int socket);

// Looks at the next bytes without taking them, waiting until `size` are there, or until the peer
// has closed, and then there may be fewer. Errors: DeadlineExceeded; what recv(2) says.
absl::StatusOr<std::string> PeekBytes(int socket, size_t size, absl::Time deadline);

// Sends `bytes` (at least one) and, with the first of them, a copy of the descriptor `fd`.
// Errors: InvalidArgument without bytes; Unavailable if the peer is gone; DeadlineExceeded.
absl::Status SendWithFd(int socket, absl::string_view bytes, int fd, absl::Time deadline);

struct BytesWithFd {
  std::string bytes;
  FileDescriptor fd;  // invalid if none came
};

// Receives exactly `size` bytes and at most one descriptor with them.
// Errors: Unavailable if the peer closed before; DeadlineExceeded; InvalidArgument if it sent more
// than one descriptor (all are closed).
absl::StatusOr<BytesWithFd> ReceiveWithFd(int socket, size_t size, absl::Time deadline);

// Two connected sockets, for tests and for a pair of processes.
struct SocketPair {
  FileDescriptor first;
  FileDescriptor second;
};
absl::StatusOr<SocketPair> CreateSocketPair();

// The address of `path`. Errors: InvalidArgument as for ConnectUnix.
absl::Status MakeUnixAddress(const std::string& path, struct sockaddr_un* address);

}  // namespace odb
