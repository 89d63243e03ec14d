#include "server/daemon/alignment_fixture.h"

#include <grpcpp/grpcpp.h>
#include <stdlib.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/os/signals.h"
#include "base/status_macros.h"

namespace odb {
namespace {

constexpr absl::Duration kSlice = absl::Milliseconds(100);

}  // namespace

AlignmentServer::AlignmentServer() : rendezvous_service_(&rendezvous_) {
  IgnoreSigpipe();
  char folder[] = "/tmp/odbXXXXXX";
  INVARIANT(mkdtemp(folder) != nullptr, "a folder can be made in /tmp");
  folder_ = folder;
  socket_path_ = folder_ + "/s";
  auto spawner = Spawner::Start({});
  INVARIANT(spawner.ok(), "a spawner can be started");
  spawner_ = *std::move(spawner);
  grpc::ServerBuilder builder;
  builder.AddListeningPort("unix:" + socket_path_, grpc::InsecureServerCredentials());
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
  builder.RegisterService(&rendezvous_service_);
  server_ = builder.BuildAndStart();
  INVARIANT(server_ != nullptr, "the server starts");
}

void AlignmentServer::Stop() {
  server_->Shutdown(absl::ToChronoTime(absl::Now() + absl::Milliseconds(200)));
}

AlignmentServer::~AlignmentServer() {
  Stop();
  server_->Wait();
  unlink(socket_path_.c_str());
  rmdir(folder_.c_str());
}

std::string AlignmentServer::tcp_target() const { return absl::StrCat("127.0.0.1:", port_); }

JobAlignment::Dependencies AlignmentServer::dependencies() {
  JobAlignment::Dependencies deps;
  deps.rendezvous = &rendezvous_;
  deps.spawner = spawner_.get();
  return deps;
}

JobAlignment::Options TestOptions(const AlignmentServer& server, int world_size) {
  JobAlignment::Options options;
  options.job = 7;
  options.job_key = "none-127.0.0.1-29500";
  options.job_token = "secret";
  options.world_size = world_size;
  options.window_max = 8;
  options.rendezvous = "unix:" + server.socket_path();
  options.digests = {{"config", "0xc0ffee"}, {"sources", "0xbeef"}};
  options.config_digest = 0xc0ffee;
  options.heartbeat_interval = absl::Milliseconds(50);
  options.exchange_timeout = absl::Seconds(2);
  options.attach_timeout = absl::Seconds(30);
  const char* const aligner = std::getenv("ODB_TEST_ALIGNER");
  options.aligner_path = aligner == nullptr ? "" : aligner;
  return options;
}

FakePipeline::FakePipeline(Rank rank, RoundExchange* exchange, int64_t rounds, absl::Time deadline,
                           PipelineHook hook)
    : rank_(rank),
      exchange_(exchange),
      rounds_(rounds),
      deadline_(deadline),
      hook_(std::move(hook)) {}

void FakePipeline::Start() {
  thread_ = Thread(absl::StrCat("pipeline-", rank_.value()), [this] { status_ = Run(); });
}

uint64_t FakePipeline::IdOf(Rank rank, RoundId round) {
  return static_cast<uint64_t>(round.value() * 1000 + rank.value());
}

absl::Status FakePipeline::Run() {
  for (int64_t round = 1; round <= rounds_; ++round) RETURN_IF_ERROR(RunRound(RoundId(round)));
  return absl::OkStatus();
}

absl::Status FakePipeline::RunRound(RoundId round) {
  Offer offer;
  offer.header.round = round;
  offer.header.epoch = Epoch(0);
  offer.header.state = OfferState::kNotReady;
  offer.header.not_ready_reason = NotReadyReason::kPoolStarved;
  exchange_->SetState(offer.header);
  if (hook_) hook_(rank_, round, Point::kBeforePublish);
  offer.header.state = OfferState::kReady;
  offer.header.not_ready_reason = NotReadyReason::kNone;
  offer.window.resize(1);
  offer.window[0].length = 1;
  offer.window[0].loss_tokens = 1;
  offer.window[0].id_hash = IdOf(rank_, round);
  exchange_->Publish(offer);
  while (absl::Now() < deadline_) {
    const auto gathered = exchange_->WaitGathered(absl::Now() + kSlice);
    if (absl::IsDeadlineExceeded(gathered.status())) continue;
    if (!gathered.ok()) return gathered.status();
    if (hook_) hook_(rank_, round, Point::kBeforePlanned);
    Released released;
    released.round = gathered->round;
    uint64_t digest = static_cast<uint64_t>(round.value());
    for (const Offer& one : gathered->offers) {
      for (const SampleShape& sample : one.window) {
        released.ids.push_back(sample.id_hash);
        digest = digest * 1000003 + sample.id_hash;
      }
    }
    exchange_->Planned(round, digest);
    if (hook_) hook_(rank_, round, Point::kBeforeReleased);
    absl::Status status = absl::DeadlineExceededError("");
    while (absl::IsDeadlineExceeded(status) && absl::Now() < deadline_) {
      status = exchange_->WaitReleased(round, absl::Now() + kSlice);
    }
    if (absl::IsAborted(status)) {
      ++aborts_;
      continue;
    }
    if (!status.ok()) return status;
    released_.push_back(std::move(released));
    return absl::OkStatus();
  }
  return absl::DeadlineExceededError(
      absl::StrCat("rank ", rank_.value(), " is stuck in round ", round.value()));
}

std::string CheckNothingLostOrDoubled(const std::vector<std::unique_ptr<FakePipeline>>& pipelines,
                                      int64_t rounds) {
  for (size_t rank = 0; rank < pipelines.size(); ++rank) {
    const FakePipeline& pipeline = *pipelines[rank];
    const std::string who = absl::StrCat("rank ", rank, ": ");
    if (!pipeline.status().ok()) return who + pipeline.status().ToString();
    if (pipeline.released().size() != static_cast<size_t>(rounds)) {
      return absl::StrCat(who, pipeline.released().size(), " rounds of ", rounds);
    }
    for (int64_t i = 0; i < rounds; ++i) {
      const FakePipeline::Released& released = pipeline.released()[i];
      if (released.round != RoundId(i + 1))
        return absl::StrCat(who, "round ", i + 1, " is another");
      if (released.ids.size() != pipelines.size()) {
        return absl::StrCat(who, "round ", i + 1, " has ", released.ids.size(), " samples");
      }
      for (size_t peer = 0; peer < pipelines.size(); ++peer) {
        if (released.ids[peer] != FakePipeline::IdOf(Rank(peer), RoundId(i + 1))) {
          return absl::StrCat(who, "round ", i + 1, " has another sample of rank ", peer);
        }
      }
    }
  }
  return "";
}

bool Eventually(absl::Time deadline, const std::function<bool()>& claim) {
  Mutex mutex;
  CondVar never;
  while (!claim()) {
    const absl::Time now = absl::Now();
    if (now >= deadline) return false;
    MutexLock lock(&mutex);
    never.WaitUntil(&mutex, now + absl::Milliseconds(5));
  }
  return true;
}

}  // namespace odb
