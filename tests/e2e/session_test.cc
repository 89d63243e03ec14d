// The end-to-end claims with trainers in C++: the twin of the Python tests, for the sanitizers too.

#include <signal.h>

#include <catch2/catch.hpp>
#include <map>
#include <set>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/hash.h"
#include "base/os/temp_directory.h"
#include "client/odb_client.h"
#include "tests/support/daemon_process.h"
#include "tests/support/status_matchers.h"

namespace odb {
namespace {

constexpr absl::Duration kDeadline = absl::Minutes(2);

// What one rank saw.
struct Seen {
  absl::Status status;
  std::vector<uint64_t> steps;  // hash of index, totals of all ranks and progress
  std::vector<uint64_t> content;
  std::multiset<std::pair<int, int64_t>> ids;
  int64_t idle = 0;
};

ClientOptions RankOptions(const std::string& socket, int rank, int world) {
  ClientOptions options = *ClientOptions::FromLookup([](const char*) { return std::nullopt; });
  options.socket = socket;
  options.rank = options.local_rank = rank;
  options.world_size = options.local_world_size = world;
  options.run_id = "session_test";
  options.connect_timeout = absl::Seconds(30);
  // Ranks of one job may differ in how they get their steps, and must not in what they get.
  options.transport = rank % 2 == 0 ? Transport::kRing : Transport::kStream;
  return options;
}

void Record(const ClientStep& step, Seen* seen) {
  const v1::Step& message = step.message();
  uint64_t totals = HashCombine(message.index(), message.global().samples());
  totals = HashCombine(totals, message.global().tokens());
  totals = HashCombine(totals, message.global().loss_tokens());
  seen->steps.push_back(HashCombine(totals, message.emitted_samples()));
  seen->idle += message.idle();
  uint64_t content = 0;
  for (int i = 0; i < step.num_tensors(); ++i) {
    const TensorView tensor = step.tensor(i);
    content = Hash64(absl::string_view(tensor.data, tensor.bytes), content);
  }
  seen->content.push_back(content);
  for (int i = 0; i < message.sample_keys_size(); ++i) {
    seen->ids.insert({message.sample_sources(i), message.sample_keys(i)});
  }
}

struct Conduct {
  int epochs = 1;
  int64_t break_after = 0;               // steps of the first epoch; 0 = none
  std::function<void(int64_t)> on_step;  // called by rank 0 with the number of steps so far
};

Seen Train(const ClientOptions& options, const Conduct& conduct) {
  Seen seen;
  absl::StatusOr<std::unique_ptr<Client>> client = Client::Open(options);
  if (!client.ok()) return {client.status(), {}, {}, {}, 0};
  for (int epoch = 0; epoch < conduct.epochs && seen.status.ok(); ++epoch) {
    seen.status = (*client)->StartEpoch(epoch);
    while (seen.status.ok()) {
      absl::StatusOr<StepHandle> step = (*client)->Next(absl::Now() + kDeadline);
      seen.status = step.status();
      if (!step.ok() || *step == nullptr) break;
      Record(**step, &seen);
      const int64_t taken = static_cast<int64_t>(seen.steps.size());
      if (options.rank == 0 && conduct.on_step) conduct.on_step(taken);
      if (epoch == 0 && taken == conduct.break_after) break;
    }
  }
  const absl::Status closed = (*client)->Close();
  if (seen.status.ok()) seen.status = closed;
  return seen;
}

std::vector<Seen> TrainAll(const std::string& socket, int world, const Conduct& conduct) {
  std::vector<Seen> seen(world);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank) {
    threads.emplace_back(
        [&, rank] { seen[rank] = Train(RankOptions(socket, rank, world), conduct); });
  }
  for (std::thread& thread : threads) thread.join();
  return seen;
}

// Every id exactly `times`, and the same steps on every rank.
void CheckCoverage(const std::vector<Seen>& ranks, int records, int times) {
  std::map<std::pair<int, int64_t>, int> count;
  for (const Seen& seen : ranks) {
    INFO(seen.status);
    REQUIRE(seen.status.ok());
    CHECK(seen.steps == ranks[0].steps);
    for (const auto& id : seen.ids) ++count[id];
  }
  CHECK(static_cast<int>(count.size()) == records);
  for (const auto& [id, n] : count) CHECK(n == times);
}

class Fixture {
 public:
  explicit Fixture(int records, std::vector<std::string> more = {})
      : dir_(*TempDirectory::Create("/tmp", "odb")) {
    const std::string data = dir_.path() + "/data.jsonl";
    WriteConversations(data, records, /*seed=*/11);
    flags_ = {"--data=" + data, "--token-budget=1024", "--window=32", "--log-level=warn"};
    flags_.insert(flags_.end(), more.begin(), more.end());
    Restart();
  }

  void Restart() {
    daemon_.reset();
    absl::StatusOr<std::unique_ptr<DaemonProcess>> daemon = DaemonProcess::Start(flags_);
    INFO(daemon.status());
    REQUIRE(daemon.ok());
    daemon_ = *std::move(daemon);
  }
  DaemonProcess& daemon() { return *daemon_; }

 private:
  TempDirectory dir_;
  std::vector<std::string> flags_;
  std::unique_ptr<DaemonProcess> daemon_;
};

TEST_CASE("session: two ranks, two epochs, every sample once in each", "[e2e]") {
  Fixture fixture(200);
  Conduct conduct;
  conduct.epochs = 2;

  const std::vector<Seen> ranks = TrainAll(fixture.daemon().socket(), 2, conduct);

  CheckCoverage(ranks, 200, 2);
  const absl::StatusOr<ExitStatus> ended = fixture.daemon().Drain();
  REQUIRE(ended.ok());
  CHECK(ended->success());
}

TEST_CASE("session: a rank with fewer records idles and ends with the others", "[e2e]") {
  Fixture fixture(3);

  const std::vector<Seen> ranks = TrainAll(fixture.daemon().socket(), 4, {});

  // 3 records over 4 ranks: one step, at which a rank idles. The plan says which.
  CheckCoverage(ranks, 3, 1);
  int idlers = 0;
  for (const Seen& seen : ranks) {
    CHECK(seen.steps.size() == 1);
    CHECK(seen.ids.size() == (seen.idle == 0 ? 1 : 0));
    idlers += seen.idle > 0;
  }
  CHECK(idlers == 1);
}

TEST_CASE("session: a break at the same step everywhere starts the next epoch cleanly", "[e2e]") {
  Fixture fixture(200);
  Conduct conduct;
  conduct.epochs = 2;
  conduct.break_after = 2;

  const std::vector<Seen> ranks = TrainAll(fixture.daemon().socket(), 2, conduct);

  std::set<std::pair<int, int64_t>> ids;
  for (const Seen& seen : ranks) {
    INFO(seen.status);
    REQUIRE(seen.status.ok());
    CHECK(seen.steps == ranks[0].steps);
    ids.insert(seen.ids.begin(), seen.ids.end());
  }
  CHECK(ids.size() == 200);
}

TEST_CASE("session: a killed aligner is replaced, nothing is lost or doubled", "[e2e]") {
  Fixture fixture(300);
  int killed = 0;
  Conduct conduct;
  conduct.on_step = [&](int64_t taken) {
    if (taken % 3 != 0 || killed >= 2) return;
    const std::vector<pid_t> aligners = fixture.daemon().Aligners();
    if (!aligners.empty() && kill(aligners[0], SIGKILL) == 0) ++killed;
  };

  const std::vector<Seen> ranks = TrainAll(fixture.daemon().socket(), 2, conduct);

  CHECK(killed >= 1);
  CheckCoverage(ranks, 300, 1);
}

TEST_CASE("session: pool size does not reach content", "[e2e]") {
  std::vector<std::vector<uint64_t>> content;
  for (const char* workers : {"--workers=1", "--workers=8"}) {
    Fixture fixture(150, {workers});
    const std::vector<Seen> ranks = TrainAll(fixture.daemon().socket(), 2, {});
    CheckCoverage(ranks, 150, 1);
    content.push_back(ranks[0].content);
    content.back().insert(content.back().end(), ranks[1].content.begin(), ranks[1].content.end());
  }
  CHECK(content[0] == content[1]);
}

TEST_CASE("session: a killed daemon is one error with the socket's path", "[e2e]") {
  Fixture fixture(300);
  Conduct conduct;
  conduct.on_step = [&](int64_t taken) {
    if (taken == 2) kill(fixture.daemon().process()->pid(), SIGKILL);
  };

  const Seen seen = Train(RankOptions(fixture.daemon().socket(), 0, 1), conduct);

  CHECK_THAT(seen.status, HasCode(absl::StatusCode::kUnavailable));
  CHECK_THAT(seen.status, HasMessage(fixture.daemon().socket()));
}

}  // namespace
}  // namespace odb
