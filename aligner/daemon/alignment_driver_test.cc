#include "aligner/daemon/alignment_driver.h"

#include <catch2/catch.hpp>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "aligner/transport/in_memory_transport.h"
#include "tests/support/status_matchers.h"

namespace odb {
namespace {

constexpr int64_t kWindowMax = 4;
constexpr int64_t kRounds = 30;

RecordSizes Sizes() {
  const WireRecordSizes sizes = RecordCodec(kWindowMax).sizes();
  return {sizes.resync, sizes.offer, sizes.confirm};
}

// An idler that has nothing to read: the tests bring commands on threads of their own.
class QuietLink : public OdbdLink {
 public:
  void Idle() override {
    MutexLock lock(&idle_mutex_);
    while (!std::exchange(woken_, false)) idle_changed_.Wait(&idle_mutex_);
  }
  void Wake() override {
    MutexLock lock(&idle_mutex_);
    woken_ = true;
    idle_changed_.NotifyAll();
  }
  void OnCallBegin() override {}
  void OnCallEnd() override {}

 private:
  Mutex idle_mutex_;  // guards all below
  CondVar idle_changed_;
  bool woken_ ABSL_GUARDED_BY(idle_mutex_) = false;
};

// odbd as one driver sees it: keeps what effects.h asks odbd to keep, answers tables with a digest
// of their ids, and goes on until kRounds rounds are released.
class FakeOdbd final : public QuietLink {
 public:
  FakeOdbd(int rank, int world_size, InMemoryNetwork* network)
      : rank_(rank),
        world_size_(world_size),
        codec_(kWindowMax),
        driver_(
            this,
            [network](const v1::AlignerSetup& setup,
                      const RecordSizes&) -> absl::StatusOr<std::unique_ptr<Transport>> {
              return network->CreateTransport(Rank(setup.rank()));
            },
            &clock_) {}

  void Start(absl::Duration exchange_timeout) {
    v1::AlignerCommand command;
    v1::AlignerSetup* const setup = command.mutable_setup();
    setup->set_rank(rank_);
    setup->set_world_size(world_size_);
    setup->set_window_max(kWindowMax);
    setup->set_heartbeat_interval_us(20'000);
    setup->set_exchange_timeout_us(absl::ToInt64Microseconds(exchange_timeout));
    driver_.OnCommand(command);
    thread_ = std::thread([this] { run_ = driver_.Run(); });
  }
  void Join() {
    driver_.OnStreamEnd();
    if (thread_.joinable()) thread_.join();
  }

  // The driver answers within OnCommand, so no lock is held here.
  void OpenGeneration(int64_t generation) {
    v1::AlignerCommand command;
    v1::OpenGeneration* const open = command.mutable_open_generation();
    std::optional<v1::AlignerCommand> offer;
    {
      MutexLock lock(&mutex_);
      generation_ = generation;
      open->set_generation(generation);
      open->set_last_completed_round(completed_);
      open->set_stored_offer(stored_);
      open->set_stored_plan_digest(stored_digest_);
      open->set_planned_offer(planned_);
      offer = NextOfferLocked();
    }
    driver_.OnCommand(command);
    if (offer.has_value()) driver_.OnCommand(*offer);
  }

  bool Send(v1::AlignerEvent event) override {
    MutexLock lock(&mutex_);
    changed_.NotifyAll();
    if (event.has_gathered() && event.gathered().generation() == generation_) {
      OnGatheredLocked(event.gathered());
    } else if (event.has_released() && event.released().generation() == generation_) {
      ++releases_[event.released().round()];
      completed_ = event.released().round();
      stored_ = planned_;
      planned_.clear();
      stored_digest_ = digest_;
      // Send is called by the thread that handles events: this one is only queued.
      const auto offer = NextOfferLocked();
      if (offer.has_value()) driver_.OnCommand(*offer);
    } else if (event.has_mesh_failure()) {
      broken_ = std::max<int64_t>(broken_, event.mesh_failure().generation());
    } else if (event.has_mesh_ready()) {
      ready_ = event.mesh_ready().generation();
    } else if (event.has_failure()) {
      failure_ = event.failure().message();
    }
    return true;
  }

  template <typename Claim>
  bool WaitFor(Claim claim) {
    MutexLock lock(&mutex_);
    const absl::Time deadline = absl::Now() + absl::Seconds(60);
    while (!claim()) {
      if (changed_.WaitUntil(&mutex_, deadline)) return false;
    }
    return true;
  }
  bool WaitForRound(int64_t round) {
    return WaitFor([&] { return completed_ >= round || !failure_.empty(); });
  }
  bool WaitForBroken(int64_t generation) {
    return WaitFor([&] { return broken_ >= generation; });
  }
  bool WaitForReady(int64_t generation) {
    return WaitFor([&] { return ready_ >= generation; });
  }
  std::map<int64_t, int> releases() {
    MutexLock lock(&mutex_);
    return releases_;
  }
  std::string failure() {
    MutexLock lock(&mutex_);
    return failure_;
  }
  const absl::Status& run() const { return run_; }
  AlignmentDriver* driver() { return &driver_; }

 private:
  std::optional<v1::AlignerCommand> NextOfferLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (completed_ >= kRounds) return std::nullopt;
    Offer offer;
    offer.header.rank = Rank(rank_);
    offer.header.round = RoundId(completed_ + 1);
    offer.header.state = OfferState::kReady;
    offer.window.resize(1);
    offer.window[0].length = 1;
    offer.window[0].id_hash = completed_ * 100 + rank_;
    v1::AlignerCommand command;
    command.mutable_offer()->set_record(codec_.EncodeOffer(offer));
    return command;
  }

  void OnGatheredLocked(const v1::Gathered& gathered) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const size_t size = codec_.sizes().offer;
    digest_ = 1;
    for (int rank = 0; rank < world_size_; ++rank) {
      const auto offer =
          codec_.DecodeOffer(absl::string_view(gathered.table()).substr(rank * size, size));
      if (!offer.ok()) {
        failure_ = offer.status().ToString();
        return;
      }
      digest_ = digest_ * 31 + offer->window.at(0).id_hash;
    }
    planned_ = gathered.table().substr(rank_ * size, size);
    v1::AlignerCommand command;
    command.mutable_planned()->set_round(gathered.round());
    command.mutable_planned()->set_generation(gathered.generation());
    command.mutable_planned()->set_plan_digest(digest_);
    driver_.OnCommand(command);
  }

  const int rank_;
  const int world_size_;
  const RecordCodec codec_;
  RealClock clock_;
  AlignmentDriver driver_;
  absl::Status run_;
  std::thread thread_;

  Mutex mutex_;  // guards all below
  CondVar changed_;
  int64_t generation_ = 0;
  int64_t completed_ = 0;
  std::string stored_;
  std::string planned_;
  uint64_t stored_digest_ = 0;
  uint64_t digest_ = 0;
  int64_t broken_ = 0;
  int64_t ready_ = 0;
  std::string failure_;
  std::map<int64_t, int> releases_;
};

struct Ranks {
  Ranks(int world_size, absl::Duration exchange_timeout) : network(world_size, Sizes()) {
    for (int rank = 0; rank < world_size; ++rank) {
      odbds.push_back(std::make_unique<FakeOdbd>(rank, world_size, &network));
      odbds.back()->Start(exchange_timeout);
    }
  }
  ~Ranks() {
    for (auto& odbd : odbds) odbd->Join();
  }
  void OpenGeneration(int64_t generation) {
    for (auto& odbd : odbds) odbd->OpenGeneration(generation);
  }

  InMemoryNetwork network;
  std::vector<std::unique_ptr<FakeOdbd>> odbds;
};

// Rounds 1 .. kRounds, each released once.
std::map<int64_t, int> AllOnce() {
  std::map<int64_t, int> releases;
  for (int64_t round = 1; round <= kRounds; ++round) releases[round] = 1;
  return releases;
}

TEST_CASE("AlignmentDriver: ranks go through all rounds", "[aligner][driver]") {
  const int world_size = GENERATE(1, 2, 4);
  Ranks ranks(world_size, absl::Seconds(30));

  ranks.OpenGeneration(1);

  for (auto& odbd : ranks.odbds) {
    CHECK(odbd->WaitForRound(kRounds));
    CHECK(odbd->failure() == "");
    CHECK(odbd->releases() == AllOnce());
  }
}

TEST_CASE("F6: a mesh that breaks in any round is rebuilt, each round is released once",
          "[aligner][driver]") {
  const int64_t break_at = GENERATE(0, 1, 10, 29);
  Ranks ranks(3, absl::Seconds(30));
  ranks.OpenGeneration(1);
  REQUIRE(ranks.odbds[0]->WaitForRound(break_at));

  ranks.network.BreakMesh(Rank(1));
  ranks.OpenGeneration(2);

  for (auto& odbd : ranks.odbds) {
    CHECK(odbd->WaitForRound(kRounds));
    CHECK(odbd->failure() == "");
    CHECK(odbd->releases() == AllOnce());
  }
}

TEST_CASE("AlignmentDriver: a generation that opens while an exchange is blocked takes over",
          "[aligner][driver]") {
  Ranks ranks(2, absl::Seconds(600));
  ranks.network.FreezeRank(Rank(1));
  ranks.OpenGeneration(1);  // rank 1 does not even join
  ranks.network.Thaw(Rank(1));
  REQUIRE(ranks.odbds[0]->WaitForReady(1));
  ranks.network.FreezeRank(Rank(1));

  ranks.OpenGeneration(2);
  ranks.network.Thaw(Rank(1));

  for (auto& odbd : ranks.odbds) {
    CHECK(odbd->WaitForRound(kRounds));
    CHECK(odbd->releases() == AllOnce());
  }
}

TEST_CASE("F6: a rank that hangs breaks the mesh after exchange_timeout", "[aligner][driver]") {
  Ranks ranks(2, absl::Milliseconds(200));
  ranks.OpenGeneration(1);
  for (auto& odbd : ranks.odbds) REQUIRE(odbd->WaitForReady(1));
  ranks.network.FreezeRank(Rank(1));
  // Unless all rounds were through before: then the heartbeats break it.
  REQUIRE(ranks.odbds[0]->WaitForBroken(1));

  ranks.network.Thaw(Rank(1));
  ranks.OpenGeneration(2);

  for (auto& odbd : ranks.odbds) {
    CHECK(odbd->WaitForRound(kRounds));
    CHECK(odbd->releases() == AllOnce());
  }
}

// Notes what mesh it is asked for; a mesh of one rank.
class NotingTransport final : public Transport {
 public:
  explicit NotingTransport(MeshSpec* asked) : asked_(asked) {}
  OpenResult Open(const MeshSpec& mesh, absl::Time) override {
    *asked_ = mesh;
    return {};
  }
  ExchangeResult Exchange(ExchangeKind, absl::string_view record, absl::Time) override {
    return {absl::OkStatus(), std::nullopt, std::string(record)};
  }
  void Close() override {}
  void Interrupt(Generation) override {}

 private:
  MeshSpec* const asked_;
};

// Ends the driver as soon as its mesh stands.
class QuittingLink final : public QuietLink {
 public:
  bool Send(v1::AlignerEvent event) override { return !event.has_mesh_ready(); }
};

TEST_CASE("AlignmentDriver: the nodes of the ranks reach the transport", "[aligner][driver]") {
  MeshSpec asked;
  QuittingLink link;
  RealClock clock;
  AlignmentDriver driver(
      &link,
      [&](const v1::AlignerSetup&, const RecordSizes&) {
        return std::make_unique<NotingTransport>(&asked);
      },
      &clock);
  v1::AlignerCommand setup;
  setup.mutable_setup()->set_world_size(1);
  setup.mutable_setup()->set_heartbeat_interval_us(20'000);
  setup.mutable_setup()->set_exchange_timeout_us(1'000'000);
  v1::AlignerCommand open;
  open.mutable_open_generation()->set_generation(3);
  for (const int node : {4, 4, 7}) open.mutable_open_generation()->add_node_of_rank(node);

  driver.OnCommand(setup);
  driver.OnCommand(open);
  CHECK(driver.Run() == absl::OkStatus());

  CHECK(asked.generation == Generation(3));
  CHECK(asked.node_of_rank == std::vector<int>{4, 4, 7});
}

TEST_CASE("AlignmentDriver: commands that make no sense end it", "[aligner][driver]") {
  InMemoryNetwork network(1, Sizes());
  FakeOdbd odbd(0, 1, &network);
  v1::AlignerCommand command;

  SECTION("an offer before the setup") {
    command.mutable_offer();
    odbd.driver()->OnCommand(command);
    CHECK_THAT(odbd.driver()->Run(), HasMessage("before the setup"));
  }
  SECTION("a record that is none") {
    odbd.Start(absl::Seconds(30));
    command.mutable_offer()->set_record("short");
    odbd.driver()->OnCommand(command);
    odbd.Join();
    CHECK_THAT(odbd.run(), HasCode(absl::StatusCode::kInvalidArgument));
  }
}

TEST_CASE("AlignmentDriver: options that make no sense are odbd's failure to report",
          "[aligner][driver]") {
  InMemoryNetwork network(1, Sizes());
  FakeOdbd odbd(0, 1, &network);

  odbd.Start(absl::Microseconds(1));  // less than two heartbeat intervals

  CHECK(odbd.WaitForRound(1));
  CHECK(odbd.failure().find("exchange_timeout") != std::string::npos);
  odbd.Join();
  CHECK(odbd.run() == absl::OkStatus());
}

}  // namespace
}  // namespace odb
