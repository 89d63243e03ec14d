#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace odb {

// "<what>: <text of the error number>", with the code that absl gives to that number.
absl::Status SystemError(int error_number, absl::string_view what);

// Owns one file descriptor and closes it. Move-only; -1 means none.
//
// Threads: thread-compatible. Errors: none; an error of close(2) is not reported, since nothing
// here writes to a file whose last error could matter.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(other.Release()) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    if (this != &other) Reset(other.Release());
    return *this;
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  ~FileDescriptor() { Reset(); }

  bool valid() const { return fd_ >= 0; }
  int get() const { return fd_; }

  // Gives the descriptor up to the caller.
  int Release() { return std::exchange(fd_, -1); }

  // Closes what is held and takes `fd`.
  void Reset(int fd = -1);

  // A second descriptor (close-on-exec, number >= 3) of the same open file.
  absl::StatusOr<FileDescriptor> Duplicate() const;

 private:
  int fd_ = -1;
};

struct Pipe {
  FileDescriptor read;
  FileDescriptor write;
};

// Both ends are close-on-exec and have numbers >= 3, so that redirecting 0, 1 and 2 in a child
// never meets them.
absl::StatusOr<Pipe> CreatePipe();

}  // namespace odb
