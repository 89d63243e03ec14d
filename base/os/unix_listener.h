#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <atomic>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/os/file_descriptor.h"

namespace odb {

struct UnixListenerOptions {
  mode_t mode = 0600;    // of the socket file, whatever the umask: who may connect
  int num_pending = 64;  // connections that wait to be accepted
};

// A listening stream socket at a path, which it removes when it ends.
//
// A path is taken only if nothing is there, or if what is there is a socket on which nobody listens
// any more (its owner was killed): that one is removed. Two daemons that start at once are kept
// apart by flock(2) on the directory, so no lock file is ever left behind.
//
// Threads: Accept and Shutdown may be called by any thread; at the destructor no call may be
// running. Errors of Listen, each one sentence with the path; nothing is removed then:
//   AlreadyExists       somebody listens there; the message has the pid
//   InvalidArgument     the path is too long (length and limit), empty, or holds a zero byte
//   FailedPrecondition  something that is not a stream socket is there, and stays
//   PermissionDenied    the directory (or the old socket) is another user's: uid, gid and mode
//   NotFound            the directory does not exist
//   DeadlineExceeded    another process has held the lock on the directory for seconds
class UnixListener {
 public:
  static absl::StatusOr<std::unique_ptr<UnixListener>> Listen(const std::string& path,
                                                              const UnixListenerOptions& options);
  ~UnixListener();
  UnixListener(const UnixListener&) = delete;
  UnixListener& operator=(const UnixListener&) = delete;

  // The next connection (non-blocking, close-on-exec).
  // Errors: DeadlineExceeded; Cancelled after Shutdown; ResourceExhausted without descriptors.
  absl::StatusOr<FileDescriptor> Accept(absl::Time deadline);

  // Refuses new connections from now on and lets every Accept return Cancelled. The file stays
  // until the destructor.
  void Shutdown();

  int fd() const { return socket_.get(); }
  const std::string& path() const { return path_; }

 private:
  UnixListener(std::string path, FileDescriptor socket, dev_t device, ino_t inode);

  const std::string path_;
  const FileDescriptor socket_;
  const dev_t device_;  // of the file that this listener made, so that it removes no other
  const ino_t inode_;
  std::atomic<bool> shut_down_{false};
};

// Whether a process with these ids may keep a socket in a directory without trusting another user:
// the directory is its own or root's, or it is sticky, where only an owner can replace a file.
// Errors: PermissionDenied, with uid, gid and mode. Pure.
absl::Status CheckSocketDirectory(const std::string& directory, const struct stat& info, uid_t uid,
                                  gid_t gid);

}  // namespace odb
