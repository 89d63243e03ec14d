// S12: steps of 200 MB, and a trainer that takes none for a long time.
//
// The pause ends when the daemon has been seen in it for a number of snapshots, so the test needs
// no clock. ODB_TEST_PAUSE_S makes it last that many seconds, for a try by hand.

#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/hash.h"
#include "base/os/temp_directory.h"
#include "client/odb_client.h"
#include "client/odbctl/status_client.h"
#include "tests/support/daemon_process.h"
#include "tests/support/process_usage.h"
#include "tests/support/wait_until.h"

namespace odb {
namespace {

constexpr int64_t kMib = int64_t{1} << 20;
constexpr int kRecords = 30;
constexpr int kGroup = 6;
// Each sample has a column or a row of so many numbers; padded along both axes in a step of both
// kinds that makes 6 matrices, 6 x 2041 x 2041 x 8 bytes = 200 MB, out of records of some 15 KB.
constexpr int kSide = 2041;
constexpr int64_t kStepBytes = int64_t{kGroup} * kSide * kSide * 8;
constexpr int kSnapshots = 15;
// As many without a change mean that nothing is on its way any more.
constexpr int kSettled = 5;

absl::Time Soon() { return absl::Now() + absl::Minutes(2); }

void WriteRecords(const std::string& path) {
  std::ofstream out(path, std::ios::binary);
  for (int i = 0; i < kRecords; ++i) {
    std::vector<std::string> numbers;
    for (int k = 0; k < kSide; ++k) numbers.push_back(absl::StrCat((i * 31 + k) % 1000));
    const bool is_column = i % 2 == 0;
    out << "{\"input_ids\": [1, " << i + 2 << ", 3], \"x\": [["
        << absl::StrJoin(numbers, is_column ? "], [" : ", ") << "]]}\n";
  }
}

std::vector<std::string> Flags(const std::string& folder) {
  WriteRecords(folder + "/data.jsonl");
  std::ofstream(folder + "/odbd.yaml")
      << "data: [" << folder << "/data.jsonl]\nformat: tokenized\ntoken_budget: 512\n"
      << "max_samples_per_group: " << kGroup << "\nwindow: 12\nmax_steps_per_round: 2\n"
      << "extra_tensors: [{name: x, dtype: float64, shape: [-1, -1]}]\n"
      // Two steps and something; in any order they leave room for a third.
      << "prefetch_bytes: " << 2 * kStepBytes + 10 * kMib << "\narena_bytes: 640MiB\n"
      << "memory_limit: 1GiB\nworkers: 2\nlog_level: warn\n";
  return {"--config=" + folder + "/odbd.yaml"};
}

v1::Status StatusOf(const std::string& socket) {
  const auto client = StatusClient::Connect(socket, Soon());
  REQUIRE(client.ok());
  const auto status = (*client)->GetStatus();
  REQUIRE(status.ok());
  return *status;
}

uint64_t DigestOf(const ClientStep& step) {
  uint64_t digest = 0;
  for (int i = 0; i < step.num_tensors(); ++i) {
    const TensorView tensor = step.tensor(i);
    digest = Hash64(absl::string_view(tensor.data, static_cast<size_t>(tensor.bytes)), digest);
  }
  return digest;
}

int64_t BytesOf(const ClientStep& step) {
  int64_t bytes = 0;
  for (int i = 0; i < step.num_tensors(); ++i) bytes += step.tensor(i).bytes;
  return bytes;
}

std::string StateOf(const v1::Status& status) {
  for (const v1::JobStatus& job : status.jobs()) {
    if (job.state() == "running" && job.ranks_size() == 1) return job.ranks(0).state();
  }
  return "";
}

// The daemon and this trainer together: what they share, the arena, counts once.
int64_t MemoryOfBoth(pid_t daemon) { return ReadUsage(daemon)->pss + ReadUsage(getpid())->pss; }

struct Spread {
  int64_t least = INT64_MAX;
  int64_t most = 0;
  void Add(int64_t value) {
    least = std::min(least, value);
    most = std::max(most, value);
  }
};

absl::Duration PauseByHand() {
  const char* const seconds = std::getenv("ODB_TEST_PAUSE_S");
  int64_t value = 0;
  return seconds != nullptr && absl::SimpleAtoi(seconds, &value) ? absl::Seconds(value)
                                                                 : absl::ZeroDuration();
}

// The next snapshot after `last`.
v1::Status NextStatus(const std::string& socket, int64_t last) {
  v1::Status status;
  REQUIRE(WaitUntil(
      [&] {
        status = StatusOf(socket);
        return status.snapshot_unix_us() > last;
      },
      Soon()));
  return status;
}

// Waits until the daemon has assembled `steps` steps, may not go on, and nothing changes.
int64_t AwaitPause(const std::string& socket, int64_t steps) {
  const absl::Time deadline = Soon();
  v1::Status last;
  for (int same = 0; same < kSettled;) {
    REQUIRE(absl::Now() < deadline);
    const v1::Status status = NextStatus(socket, last.snapshot_unix_us());
    const bool is_paused =
        StateOf(status) == "backpressured (trainer)" && status.jobs(0).ranks(0).steps() == steps;
    const bool is_same = status.memory().windows() == last.memory().windows() &&
                         status.memory().pool() == last.memory().pool();
    same = is_paused && is_same ? same + 1 : 0;
    last = status;
  }
  return last.snapshot_unix_us();
}

// Watches a daemon whose trainer takes nothing, and checks that nothing changes.
void CheckPause(const std::string& socket, pid_t daemon, int64_t steps) {
  int64_t last_snapshot = AwaitPause(socket, steps);
  Spread memory, arena, windows, pool;
  int snapshots = 0;
  const absl::Time end = absl::Now() + PauseByHand();
  while (snapshots < kSnapshots || absl::Now() < end) {
    const v1::Status status = NextStatus(socket, last_snapshot);
    last_snapshot = status.snapshot_unix_us();
    ++snapshots;
    CHECK(StateOf(status) == "backpressured (trainer)");
    CHECK(status.limiter() == "trainer");
    memory.Add(MemoryOfBoth(daemon));
    arena.Add(status.jobs(0).ranks(0).arena_used());
    windows.Add(status.memory().windows());
    pool.Add(status.memory().pool());
    const v1::MemoryStatus& used = status.memory();
    CHECK(used.windows() + used.arenas() + used.pool() <= used.limit());
  }
  // Reading the status itself takes a little memory, here and there.
  CHECK(memory.most - memory.least < 8 * kMib);
  CHECK(memory.most < 1200 * kMib);
  CHECK(arena.most == arena.least);
  CHECK(windows.most == windows.least);
  CHECK(pool.most == pool.least);
  WARN("paused for " << snapshots << " snapshots with " << memory.most / kMib << " MiB, of which "
                     << arena.most / kMib << " MiB are steps");
}

TEST_CASE("S12: a trainer that pauses between steps of 200 MB costs nothing and loses nothing",
          "[e2e][S12]") {
  const TempDirectory folder = TempDirectory::Create("/tmp", "odb").value();
  const auto daemon = DaemonProcess::Start(Flags(folder.path()));
  INFO(daemon.status());
  REQUIRE(daemon.ok());
  ClientOptions options = *ClientOptions::FromLookup([](const char*) { return std::nullopt; });
  options.socket = (*daemon)->socket();
  options.transport = GENERATE(Transport::kRing, Transport::kStream);
  const auto client = Client::Open(options).value();

  // The same epoch twice: in one go, and with a pause at its second step.
  std::vector<uint64_t> digests[2];
  int64_t largest = 0;
  for (int run = 0; run < 2; ++run) {
    REQUIRE(client->StartEpoch(0).ok());
    StepHandle held;
    while (true) {
      const auto step = client->Next(Soon());
      INFO(step.status());
      REQUIRE(step.ok());
      if (*step == nullptr) break;
      digests[run].push_back(DigestOf(**step));
      largest = std::max(largest, BytesOf(**step));
      held = *step;  // as a loop does
      // One step is held, the next one is ready, and a third would be more than prefetch_bytes.
      if (run == 1 && digests[1].size() == 2) {
        const auto steps = static_cast<int64_t>(digests[0].size()) + 3;
        CheckPause(options.socket, (*daemon)->process()->pid(), steps);
      }
    }
  }

  CHECK(digests[0].size() >= kRecords / kGroup);
  CHECK(digests[0] == digests[1]);
  CHECK(largest > kStepBytes);
  CHECK(client->Close().ok());
}

}  // namespace
}  // namespace odb
