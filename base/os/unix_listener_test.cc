#include "base/os/unix_listener.h"

#include <linux/capability.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/os/spawner.h"
#include "base/os/temp_directory.h"
#include "base/os/timed_io.h"
#include "base/os/unix_socket.h"
#include "tests/support/status_matchers.h"

namespace odb {
namespace {

namespace fs = std::filesystem;

absl::Time Soon() { return absl::Now() + absl::Milliseconds(20); }
absl::Time InAMinute() { return absl::Now() + absl::Seconds(60); }

std::set<std::string> FilesIn(const std::string& directory) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory)) {
    names.insert(entry.path().filename().string());
  }
  return names;
}

absl::Status ListenStatus(const std::string& path) {
  return UnixListener::Listen(path, {}).status();
}

// A process that listens at `path` until it is killed; returns when it does.
std::unique_ptr<ChildProcess> StartForeignListener(Spawner* spawner, const std::string& path) {
  const Pipe ready = CreatePipe().value();
  Command command;
  command.arguments = {"base/os/test_process", "listen", path};
  command.stdout_fd = ready.write.get();
  auto child = spawner->Spawn(command).value();
  REQUIRE(ReadExactly(ready.read.get(), 6, InAMinute()).value() == "ready\n");
  return child;
}

TEST_CASE("UnixListener: accepts, and removes its file and nothing else", "[os][socket]") {
  const TempDirectory directory = TempDirectory::Create("/tmp", "odb").value();
  const std::string path = directory.path() + "/s";
  auto listener = UnixListener::Listen(path, {}).value();
  CHECK(FilesIn(directory.path()) == std::set<std::string>{"s"});

  const FileDescriptor client = ConnectUnix(path, InAMinute()).value();
  const FileDescriptor server = listener->Accept(InAMinute()).value();
  REQUIRE(WriteAll(client.get(), "hi", InAMinute()).ok());
  CHECK(ReadExactly(server.get(), 2, InAMinute()).value() == "hi");

  listener.reset();
  CHECK(FilesIn(directory.path()).empty());
}

TEST_CASE("UnixListener: the mode does not depend on the umask", "[os][socket]") {
  const TempDirectory directory = TempDirectory::Create("/tmp", "odb").value();
  UnixListenerOptions options;
  options.mode = 0660;
  const mode_t umask_before = ::umask(0077);
  const auto listener = UnixListener::Listen(directory.path() + "/s", options).value();
  ::umask(umask_before);

  struct stat info;
  REQUIRE(::stat(listener->path().c_str(), &info) == 0);
  CHECK((info.st_mode & 07777) == 0660);
}

TEST_CASE("UnixListener: Shutdown ends a waiting Accept and refuses connections", "[os][socket]") {
  const TempDirectory directory = TempDirectory::Create("/tmp", "odb").value();
  const auto listener = UnixListener::Listen(directory.path() + "/s", {}).value();
  CHECK_THAT(listener->Accept(Soon()).status(), HasCode(absl::StatusCode::kDeadlineExceeded));
  absl::Status accepted;
  std::thread acceptor([&] { accepted = listener->Accept(absl::InfiniteFuture()).status(); });

  listener->Shutdown();
  acceptor.join();

  CHECK_THAT(accepted, HasCode(absl::StatusCode::kCancelled));
  CHECK_THAT(ConnectUnix(listener->path(), InAMinute()).status(),
             HasCode(absl::StatusCode::kUnavailable));
}

TEST_CASE("UnixListener: a second daemon is told the pid of the first", "[os][socket]") {
  const TempDirectory directory = TempDirectory::Create("/tmp", "odb").value();
  const std::string path = directory.path() + "/s";
  const auto spawner = Spawner::Start({}).value();
  const auto first = StartForeignListener(spawner.get(), path);

  const absl::Status second = ListenStatus(path);

  CHECK_THAT(second, HasCode(absl::StatusCode::kAlreadyExists));
  CHECK_THAT(second, HasMessage(absl::StrCat("socket ", path, " is in use by process ",
                                             first->pid(), " (test_process)")));
  CHECK(ConnectUnix(path, InAMinute()).ok());
}

TEST_CASE("UnixListener: the socket of a killed daemon is taken over", "[os][socket]") {
  const TempDirectory directory = TempDirectory::Create("/tmp", "odb").value();
  const std::string path = directory.path() + "/s";
  const auto spawner = Spawner::Start({}).value();
  const auto first = StartForeignListener(spawner.get(), path);
  REQUIRE(first->Signal(SIGKILL).ok());
  REQUIRE(first->Wait(InAMinute()).ok());
  REQUIRE(FilesIn(directory.path()) == std::set<std::string>{"s"});  // and no lock file

  const auto second = UnixListener::Listen(path, {});

  REQUIRE(second.ok());
  CHECK(ConnectUnix(path, InAMinute()).ok());
  CHECK(FilesIn(directory.path()) == std::set<std::string>{"s"});
}

TEST_CASE("UnixListener: of many that find a stale socket exactly one gets it", "[os][socket]") {
  constexpr int kThreads = 8;
  const TempDirectory directory = TempDirectory::Create("/tmp", "odb").value();
  const std::string path = directory.path() + "/s";
  const auto spawner = Spawner::Start({}).value();
  const auto dead = StartForeignListener(spawner.get(), path);
  REQUIRE(dead->Signal(SIGKILL).ok());
  REQUIRE(dead->Wait(InAMinute()).ok());

  std::vector<absl::StatusOr<std::unique_ptr<UnixListener>>> results(kThreads);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] { results[i] = UnixListener::Listen(path, {}); });
  }
  for (std::thread& thread : threads) thread.join();

  int winners = 0, refused = 0;
  for (const auto& result : results) {
    winners += result.ok();
    refused += absl::IsAlreadyExists(result.status());
  }
  CHECK(winners == 1);
  CHECK(refused == kThreads - 1);
  CHECK(ConnectUnix(path, InAMinute()).ok());
}

TEST_CASE("UnixListener: a path that is too long is refused with length and limit",
          "[os][socket]") {
  const std::string path = "/tmp/" + std::string(115, 'x');  // 5 + 115 = 120 characters

  const absl::Status status = ListenStatus(path);

  CHECK_THAT(status, HasCode(absl::StatusCode::kInvalidArgument));
  CHECK_THAT(status, HasMessage("120 bytes long, the limit is 107"));
}

TEST_CASE("UnixListener: the longest allowed path works", "[os][socket]") {
  const TempDirectory directory = TempDirectory::Create("/tmp", "odb").value();
  std::string path = directory.path() + "/";
  path += std::string(kSocketPathBytesMax - path.size(), 'x');

  const auto listener = UnixListener::Listen(path, {});

  REQUIRE(listener.ok());
  CHECK(ConnectUnix(path, InAMinute()).ok());
}

TEST_CASE("UnixListener: a plain file or a link at the path stays", "[os][socket]") {
  const TempDirectory directory = TempDirectory::Create("/tmp", "odb").value();
  const std::string file = directory.path() + "/data.jsonl", link = directory.path() + "/link";
  std::ofstream(file) << "precious";
  fs::create_symlink("/nowhere", link);

  for (const std::string& path : {file, link}) {
    const absl::Status status = ListenStatus(path);
    CHECK_THAT(status, HasCode(absl::StatusCode::kFailedPrecondition));
    CHECK_THAT(status, HasMessage(path + " is not a socket, not removed"));
  }
  CHECK(fs::file_size(file) == 8);
  CHECK(fs::is_symlink(link));
}

TEST_CASE("UnixListener: a missing directory is named", "[os][socket]") {
  const absl::Status status = ListenStatus("/tmp/no/such/directory/s");

  CHECK_THAT(status, HasCode(absl::StatusCode::kNotFound));
  CHECK_THAT(status, HasMessage("/tmp/no/such/directory"));
}

// Takes root's right to write everywhere from the calling thread, and only from it.
void DropCapabilities() {
  struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  struct __user_cap_data_struct none[2] = {};
  ::syscall(SYS_capset, &header, none);
}

TEST_CASE("UnixListener: a directory that may not be written is described", "[os][socket]") {
  const TempDirectory directory = TempDirectory::Create("/tmp", "odb").value();
  REQUIRE(::chmod(directory.path().c_str(), 0555) == 0);
  absl::Status status;
  std::thread([&] {
    DropCapabilities();
    status = ListenStatus(directory.path() + "/s");
  }).join();

  CHECK_THAT(status, HasCode(absl::StatusCode::kPermissionDenied));
  CHECK_THAT(status,
             HasMessage(absl::StrCat("uid ", ::geteuid(), ", gid ", ::getegid(), ", mode 0555")));
  ::chmod(directory.path().c_str(), 0700);
}

TEST_CASE("CheckSocketDirectory: own, root's and sticky directories only", "[os][socket]") {
  struct stat info = {};
  const auto check = [&info](uid_t owner, mode_t mode) {
    info.st_uid = owner;
    info.st_gid = 77;
    info.st_mode = S_IFDIR | mode;
    return CheckSocketDirectory("/run/x", info, /*uid=*/1000, /*gid=*/100);
  };

  CHECK(check(1000, 0700).ok());
  CHECK(check(0, 0755).ok());
  CHECK(check(1001, 01777).ok());
  const absl::Status refused = check(1001, 0775);

  CHECK_THAT(refused, HasCode(absl::StatusCode::kPermissionDenied));
  CHECK_THAT(refused, HasMessage("directory /run/x of the socket is another user's (uid 1001, gid "
                                 "77, mode 0775); this process has uid 1000, gid 100"));
}

}  // namespace
}  // namespace odb
