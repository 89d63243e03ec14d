#include "base/os/unix_listener.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "base/os/process_watch.h"
#include "base/os/timed_io.h"
#include "base/os/unix_socket.h"
#include "base/status_macros.h"

namespace odb {
namespace {

constexpr absl::Duration kLockTimeout = absl::Seconds(5);
constexpr absl::Duration kLockRetry = absl::Milliseconds(5);
constexpr absl::Duration kProbeTimeout = absl::Seconds(1);

std::string DirectoryOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string DescribeOwner(const struct stat& info) {
  return absl::StrFormat("uid %d, gid %d, mode %04o", info.st_uid, info.st_gid,
                         info.st_mode & 07777);
}

std::string DescribeSelf(uid_t uid, gid_t gid) {
  return absl::StrFormat("this process has uid %d, gid %d", uid, gid);
}

absl::Status NotAllowed(const std::string& what, const struct stat& info, uid_t uid, gid_t gid) {
  return absl::PermissionDeniedError(
      absl::StrCat(what, " (", DescribeOwner(info), "); ", DescribeSelf(uid, gid)));
}

// Opens and locks the directory; the lock ends with the descriptor, also by kill -9. flock(2) has
// no timeout, and another user could hold a lock on a shared directory for ever, so it is tried
// again for a while. Only daemons that start at the same moment ever meet here.
absl::StatusOr<FileDescriptor> LockDirectory(const std::string& directory,
                                             const struct stat& info) {
  FileDescriptor fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid() && (errno == EACCES || errno == EPERM)) {
    return NotAllowed(absl::StrCat("cannot read directory ", directory), info, ::geteuid(),
                      ::getegid());
  }
  if (!fd.valid()) return SystemError(errno, absl::StrCat("cannot open directory ", directory));
  const SteadyDeadline until(absl::Now() + kLockTimeout);
  while (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) {
      return SystemError(errno, absl::StrCat("cannot lock directory ", directory));
    }
    if (until.Passed()) {
      return absl::DeadlineExceededError(absl::StrCat("another process keeps directory ", directory,
                                                      " locked for longer than ",
                                                      absl::FormatDuration(kLockTimeout)));
    }
    absl::SleepFor(kLockRetry);
  }
  return fd;
}

absl::Status InUse(const std::string& path, int connection) {
  const absl::StatusOr<PeerCredentials> owner = GetPeerCredentials(connection);
  if (!owner.ok() || owner->pid == 0) {
    return absl::AlreadyExistsError(
        absl::StrCat("socket ", path, " is in use by a process of another PID namespace"));
  }
  const std::string name = ProcessName(owner->pid);
  return absl::AlreadyExistsError(absl::StrCat("socket ", path, " is in use by process ",
                                               owner->pid, name.empty() ? "" : " (", name,
                                               name.empty() ? "" : ")"));
}

// Makes `path` free, if what is there is a socket that nobody listens on. Under the directory's
// lock.
absl::Status RemoveStaleSocket(const std::string& path) {
  struct stat info;
  if (::lstat(path.c_str(), &info) != 0) {
    if (errno == ENOENT) return absl::OkStatus();
    return SystemError(errno, absl::StrCat("cannot examine ", path));
  }
  if (!S_ISSOCK(info.st_mode)) {
    return absl::FailedPreconditionError(absl::StrCat(path, " is not a socket, not removed"));
  }
  const absl::StatusOr<FileDescriptor> connection = ConnectUnix(path, absl::Now() + kProbeTimeout);
  if (connection.ok()) return InUse(path, connection->get());
  switch (connection.status().code()) {
    case absl::StatusCode::kUnavailable:  // nobody listens: stale
      break;
    case absl::StatusCode::kNotFound:  // its owner removed it just now
      return absl::OkStatus();
    case absl::StatusCode::kDeadlineExceeded:
      return absl::AlreadyExistsError(
          absl::StrCat("socket ", path, " is in use by a process that does not accept"));
    case absl::StatusCode::kPermissionDenied:
      return NotAllowed(absl::StrCat("socket ", path, " is another user's, not removed"), info,
                        ::geteuid(), ::getegid());
    default:
      return connection.status();
  }
  if (::unlink(path.c_str()) == 0 || errno == ENOENT) return absl::OkStatus();
  return NotAllowed(absl::StrCat("cannot remove the stale socket ", path), info, ::geteuid(),
                    ::getegid());
}

absl::StatusOr<FileDescriptor> BindAndListen(const std::string& path, const struct sockaddr_un& at,
                                             const struct stat& directory,
                                             const UnixListenerOptions& options) {
  FileDescriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return SystemError(errno, "cannot create a socket");
  if (::bind(socket.get(), reinterpret_cast<const struct sockaddr*>(&at), sizeof at) != 0) {
    if (errno == EACCES || errno == EPERM || errno == EROFS) {
      return NotAllowed(absl::StrCat("cannot create socket ", path, " in its directory"), directory,
                        ::geteuid(), ::getegid());
    }
    return SystemError(errno, absl::StrCat("cannot create socket ", path));
  }
  // Between bind and listen nobody can connect, whatever the mode that the umask left.
  if (::chmod(path.c_str(), options.mode) != 0 ||
      ::listen(socket.get(), options.num_pending) != 0) {
    const int error = errno;
    ::unlink(path.c_str());
    return SystemError(error, absl::StrCat("cannot listen on socket ", path));
  }
  return socket;
}

}  // namespace

absl::Status CheckSocketDirectory(const std::string& directory, const struct stat& info, uid_t uid,
                                  gid_t gid) {
  const bool sticky = (info.st_mode & S_ISVTX) != 0;
  if (info.st_uid == uid || info.st_uid == 0 || sticky) return absl::OkStatus();
  return NotAllowed(absl::StrCat("directory ", directory, " of the socket is another user's"), info,
                    uid, gid);
}

absl::StatusOr<std::unique_ptr<UnixListener>> UnixListener::Listen(
    const std::string& path, const UnixListenerOptions& options) {
  struct sockaddr_un address;
  RETURN_IF_ERROR(MakeUnixAddress(path, &address));
  const std::string directory = DirectoryOf(path);
  struct stat info;
  if (::stat(directory.c_str(), &info) != 0) {
    return SystemError(errno, absl::StrCat("cannot use directory ", directory, " of the socket"));
  }
  if (!S_ISDIR(info.st_mode)) {
    return absl::FailedPreconditionError(absl::StrCat(directory, " is not a directory"));
  }
  RETURN_IF_ERROR(CheckSocketDirectory(directory, info, ::geteuid(), ::getegid()));
  ASSIGN_OR_RETURN(const FileDescriptor lock, LockDirectory(directory, info));
  RETURN_IF_ERROR(RemoveStaleSocket(path));
  ASSIGN_OR_RETURN(FileDescriptor socket, BindAndListen(path, address, info, options));
  struct stat made;
  if (::lstat(path.c_str(), &made) != 0) {
    return SystemError(errno, absl::StrCat("cannot examine the new socket ", path));
  }
  return std::unique_ptr<UnixListener>(
      new UnixListener(path, std::move(socket), made.st_dev, made.st_ino));
}

UnixListener::UnixListener(std::string path, FileDescriptor socket, dev_t device, ino_t inode)
    : path_(std::move(path)), socket_(std::move(socket)), device_(device), inode_(inode) {}

UnixListener::~UnixListener() {
  struct stat info;
  if (::lstat(path_.c_str(), &info) != 0) return;
  if (info.st_dev == device_ && info.st_ino == inode_) ::unlink(path_.c_str());
}

absl::StatusOr<FileDescriptor> UnixListener::Accept(absl::Time deadline) {
  while (true) {
    RETURN_IF_ERROR(WaitReadable(socket_.get(), deadline));
    if (shut_down_) return absl::CancelledError(absl::StrCat("socket ", path_, " was shut down"));
    const int fd = ::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) return FileDescriptor(fd);
    switch (errno) {
      case EMFILE:
      case ENFILE:
      case ENOMEM:
      case ENOBUFS:
        return absl::ResourceExhaustedError(
            SystemError(errno, absl::StrCat("cannot accept on socket ", path_)).message());
      case EINVAL:  // shut down meanwhile
      case EAGAIN:
      case EINTR:
      case ECONNABORTED:
        continue;
      default:
        return SystemError(errno, absl::StrCat("cannot accept on socket ", path_));
    }
  }
}

void UnixListener::Shutdown() {
  shut_down_ = true;
  ::shutdown(socket_.get(), SHUT_RDWR);  // makes the socket readable, which wakes poll
}

}  // namespace odb
