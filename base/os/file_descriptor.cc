#include "base/os/file_descriptor.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "base/status_macros.h"

namespace odb {
namespace {

constexpr int kFirstAfterStdio = 3;

absl::StatusOr<FileDescriptor> AboveStdio(FileDescriptor fd) {
  if (fd.get() >= kFirstAfterStdio) return fd;
  return fd.Duplicate();
}

}  // namespace

absl::Status SystemError(int error_number, absl::string_view what) {
  return absl::ErrnoToStatus(error_number, what);
}

void FileDescriptor::Reset(int fd) {
  // Not repeated on EINTR: Linux has released the number already, and another thread may own it.
  if (fd_ >= 0) ::close(fd_);
  fd_ = fd;
}

absl::StatusOr<FileDescriptor> FileDescriptor::Duplicate() const {
  const int fd = ::fcntl(fd_, F_DUPFD_CLOEXEC, kFirstAfterStdio);
  if (fd < 0) return SystemError(errno, "cannot duplicate a file descriptor");
  return FileDescriptor(fd);
}

absl::StatusOr<Pipe> CreatePipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return SystemError(errno, "cannot create a pipe");
  FileDescriptor read(ends[0]), write(ends[1]);
  Pipe pipe;
  ASSIGN_OR_RETURN(pipe.read, AboveStdio(std::move(read)));
  ASSIGN_OR_RETURN(pipe.write, AboveStdio(std::move(write)));
  return pipe;
}

}  // namespace odb
