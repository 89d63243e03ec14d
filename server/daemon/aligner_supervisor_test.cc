// AlignerSupervisor with real processes that stand in for aligners.
#include "server/daemon/aligner_supervisor.h"

#include <sys/stat.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "base/os/temp_directory.h"
#include "tests/support/status_matchers.h"
#include "tests/support/wait_until.h"

namespace odb {
namespace {

constexpr Rank kRank(0);

absl::Time Soon() { return absl::Now() + absl::Seconds(60); }

// A program that takes any flags and lives until it is killed.
std::string MakeIdleProgram(const TempDirectory& directory) {
  const std::string path = absl::StrCat(directory.path(), "/idle");
  std::ofstream(path) << "#!/bin/sh\nexec sleep 1000\n";
  REQUIRE(chmod(path.c_str(), 0700) == 0);
  return path;
}

// Hooks with nothing to say; connections are dropped.
AlignerSupervisor::Hooks QuietHooks() {
  AlignerSupervisor::Hooks hooks;
  hooks.on_started = [](Rank, FileDescriptor) { return absl::OkStatus(); };
  hooks.last_completed = [] { return RoundId(); };
  hooks.silent_ranks = [] { return std::vector<Rank>(); };
  hooks.late_ranks = [] { return std::vector<Rank>(); };
  hooks.check = [] { return absl::OkStatus(); };
  hooks.on_failed = [](const absl::Status&) {};
  return hooks;
}

TEST_CASE("AlignerSupervisor: a late aligner is replaced, however long it is late", "[alignment]") {
  auto directory = TempDirectory::Create("/tmp", "odb");
  REQUIRE(directory.status() == absl::OkStatus());
  auto spawner = Spawner::Start({});
  REQUIRE(spawner.status() == absl::OkStatus());
  std::atomic<int> started{0};
  AlignerSupervisor::Options options;
  options.aligner_path = MakeIdleProgram(*directory);
  AlignerSupervisor::Hooks hooks = QuietHooks();
  hooks.on_started = [&](Rank rank, FileDescriptor socket) {
    started += rank == kRank && socket.valid();
    return absl::OkStatus();
  };
  hooks.late_ranks = [&] { return std::vector<Rank>(started == 1 ? 1 : 0, kRank); };
  auto supervisor = AlignerSupervisor::Start(options, hooks, spawner->get());
  REQUIRE(supervisor.status() == absl::OkStatus());

  (*supervisor)->Add(kRank);

  CHECK(WaitUntil([&] { return started == 2; }, Soon()));
  CHECK((*supervisor)->restarts() == 1);
}

TEST_CASE("AlignerSupervisor: what a silent aligner owed is not laid to the next one",
          "[alignment]") {
  auto directory = TempDirectory::Create("/tmp", "odb");
  REQUIRE(directory.status() == absl::OkStatus());
  auto spawner = Spawner::Start({});
  REQUIRE(spawner.status() == absl::OkStatus());
  std::atomic<bool> silent{false};  // as the connection of the aligner says, until it is gone
  std::atomic<int> looks{0};
  AlignerSupervisor::Options options;
  options.aligner_path = MakeIdleProgram(*directory);
  AlignerSupervisor::Hooks hooks = QuietHooks();
  hooks.silent_ranks = [&] {
    if (!silent) return std::vector<Rank>();
    ++looks;
    return std::vector<Rank>{kRank};
  };
  auto supervisor = AlignerSupervisor::Start(options, hooks, spawner->get());
  REQUIRE(supervisor.status() == absl::OkStatus());
  const auto pid = [&] {
    const auto pids = (*supervisor)->pids();
    return pids.empty() ? 0 : pids.front().second;
  };
  (*supervisor)->Add(kRank);
  REQUIRE(WaitUntil([&] { return pid() != 0; }, Soon()));
  const int64_t first = pid();

  silent = true;
  REQUIRE(WaitUntil([&] { return (*supervisor)->restarts() == 1; }, Soon()));
  const int from = looks;
  const bool looked = WaitUntil([&] { return looks >= from + 50; }, Soon());

  CHECK(looked);
  CHECK(pid() == 0);  // not before the old connection is gone
  silent = false;
  CHECK(WaitUntil([&] { return pid() != 0; }, Soon()));
  CHECK(pid() != first);
  CHECK((*supervisor)->restarts() == 1);
}

}  // namespace
}  // namespace odb
