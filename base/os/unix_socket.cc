#include "base/os/unix_socket.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/os/timed_io.h"
#include "base/status_macros.h"

namespace odb {
namespace {

// More than we ever accept, so that a peer that sends several is told, not cut.
constexpr size_t kFdsMax = 8;

// A blocking connect obeys SO_SNDTIMEO; a non-blocking one fails at once when the backlog is full.
absl::Status SetSendTimeout(int socket, absl::Time deadline) {
  const SteadyDeadline until(deadline);
  if (until.Left() == absl::InfiniteDuration()) return absl::OkStatus();
  // Zero would mean no limit.
  const absl::Duration left = std::max(until.Left(), absl::Milliseconds(1));
  const struct timeval timeout = absl::ToTimeval(left);
  if (::setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout) != 0) {
    return SystemError(errno, "cannot limit the time of a connect");
  }
  return absl::OkStatus();
}

absl::Status SetNonBlocking(int fd) {
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags < 0 || ::fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0) {
    return SystemError(errno, "cannot make a socket non-blocking");
  }
  return absl::OkStatus();
}

absl::Status ConnectError(int error, const std::string& path) {
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return absl::NotFoundError(absl::StrCat("there is no socket ", path));
    case ECONNREFUSED:
      return absl::UnavailableError(absl::StrCat("nobody listens on socket ", path));
    case EAGAIN:
      return absl::DeadlineExceededError(
          absl::StrCat("the owner of socket ", path, " did not accept before the deadline"));
    case EPROTOTYPE:
      return absl::FailedPreconditionError(absl::StrCat(path, " is not a stream socket"));
    default:
      return SystemError(error, absl::StrCat("cannot connect to socket ", path));
  }
}

// Moves the descriptors of a received message into `fds`.
void CollectFds(struct msghdr* message, std::vector<FileDescriptor>* fds) {
  for (struct cmsghdr* header = CMSG_FIRSTHDR(message); header != nullptr;
       header = CMSG_NXTHDR(message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof fd, sizeof fd);
      fds->emplace_back(fd);
    }
  }
}

}  // namespace

absl::Status MakeUnixAddress(const std::string& path, struct sockaddr_un* address) {
  if (path.empty()) return absl::InvalidArgumentError("the socket path is empty");
  if (path.find('\0') != std::string::npos) {
    return absl::InvalidArgumentError("the socket path holds a zero byte");
  }
  if (path.size() > kSocketPathBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("the socket path is ", path.size(),
                                                   " bytes long, the limit is ",
                                                   kSocketPathBytesMax, ": ", path));
  }
  std::memset(address, 0, sizeof *address);
  address->sun_family = AF_UNIX;
  std::memcpy(address->sun_path, path.data(), path.size());
  return absl::OkStatus();
}

absl::StatusOr<FileDescriptor> ConnectUnix(const std::string& path, absl::Time deadline) {
  struct sockaddr_un address;
  RETURN_IF_ERROR(MakeUnixAddress(path, &address));
  FileDescriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return SystemError(errno, "cannot create a socket");
  while (true) {
    RETURN_IF_ERROR(SetSendTimeout(socket.get(), deadline));
    const int connected =
        ::connect(socket.get(), reinterpret_cast<const struct sockaddr*>(&address), sizeof address);
    if (connected == 0) break;
    if (errno != EINTR) return ConnectError(errno, path);
  }
  RETURN_IF_ERROR(SetNonBlocking(socket.get()));
  return socket;
}

absl::StatusOr<PeerCredentials> GetPeerCredentials(int socket) {
  struct ucred credentials;
  socklen_t size = sizeof credentials;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) {
    return SystemError(errno, "cannot ask who is at the other end of a socket");
  }
  return PeerCredentials{credentials.pid, credentials.uid, credentials.gid};
}

absl::StatusOr<std::string> PeekBytes(int socket, size_t size, absl::Time deadline) {
  // poll(2) would return at once, again and again, while fewer bytes than wanted are there. Edge
  // triggered, epoll reports each arrival once.
  FileDescriptor epoll(::epoll_create1(EPOLL_CLOEXEC));
  struct epoll_event event = {};
  event.events = EPOLLIN | EPOLLRDHUP | EPOLLET;
  if (!epoll.valid() || ::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, socket, &event) != 0) {
    return SystemError(errno, "cannot watch a socket");
  }
  const SteadyDeadline until(deadline);
  std::string bytes(size, '\0');
  bool hung_up = false;
  while (true) {
    const ssize_t got = ::recv(socket, &bytes[0], size, MSG_PEEK | MSG_DONTWAIT);
    if (got < 0 && errno != EAGAIN && errno != EINTR && errno != ECONNRESET) {
      return SystemError(errno, "cannot look at a socket");
    }
    const size_t have = got > 0 ? static_cast<size_t>(got) : 0;
    const bool ended = got == 0 || (got < 0 && errno == ECONNRESET) || hung_up;
    if (have >= size || ended) {
      bytes.resize(have);
      return bytes;
    }
    if (until.Passed()) {
      return absl::DeadlineExceededError(
          absl::StrCat("the peer sent ", have, " of ", size, " bytes before the deadline"));
    }
    const int ready = ::epoll_wait(epoll.get(), &event, 1, until.PollMillis());
    hung_up = ready == 1 && (event.events & (EPOLLRDHUP | EPOLLHUP)) != 0;
  }
}

absl::Status SendWithFd(int socket, absl::string_view bytes, int fd, absl::Time deadline) {
  if (bytes.empty()) {
    return absl::InvalidArgumentError("a descriptor travels with at least one byte");
  }
  alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof fd)] = {};
  struct iovec part = {const_cast<char*>(bytes.data()), bytes.size()};
  struct msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  struct cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof fd);
  std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  while (true) {
    RETURN_IF_ERROR(WaitWritable(socket, deadline));
    const ssize_t sent = ::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) return WriteAll(socket, bytes.substr(static_cast<size_t>(sent)), deadline);
    if (errno == EPIPE || errno == ECONNRESET) {
      return absl::UnavailableError("the peer has closed the connection");
    }
    if (errno != EINTR && errno != EAGAIN) return SystemError(errno, "cannot send a descriptor");
  }
}

absl::StatusOr<BytesWithFd> ReceiveWithFd(int socket, size_t size, absl::Time deadline) {
  BytesWithFd received;
  received.bytes.resize(size);
  std::vector<FileDescriptor> fds;
  size_t have = 0;
  while (have < size) {
    RETURN_IF_ERROR(WaitReadable(socket, deadline));
    alignas(struct cmsghdr) char control[CMSG_SPACE(kFdsMax * sizeof(int))];
    struct iovec part = {&received.bytes[have], size - have};
    struct msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    const ssize_t got = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got < 0 && errno != ECONNRESET) return SystemError(errno, "cannot receive a descriptor");
    if (got <= 0) {
      return absl::UnavailableError(
          absl::StrCat("the peer closed the connection after ", have, " of ", size, " bytes"));
    }
    CollectFds(&message, &fds);
    if (fds.size() > 1 || (message.msg_flags & MSG_CTRUNC) != 0) {
      return absl::InvalidArgumentError("the peer sent more than one descriptor");
    }
    have += static_cast<size_t>(got);
  }
  if (!fds.empty()) received.fd = std::move(fds.front());
  return received;
}

absl::StatusOr<SocketPair> CreateSocketPair() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) {
    return SystemError(errno, "cannot create a pair of sockets");
  }
  return SocketPair{FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

}  // namespace odb
