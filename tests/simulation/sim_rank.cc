#include "tests/simulation/sim_rank.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "aligner/protocol/describe.h"

namespace odb {
namespace {

std::vector<Crash> CrashesOf(Rank rank, const Scenario& scenario, const Timing& timing) {
  std::vector<Crash> crashes;
  if (scenario.fate.has_value()) crashes.push_back(*scenario.fate);
  crashes.insert(crashes.end(), timing.crashes.begin(), timing.crashes.end());
  crashes.erase(std::remove_if(crashes.begin(), crashes.end(),
                               [rank](const Crash& crash) { return crash.rank != rank; }),
                crashes.end());
  return crashes;
}

std::string DescribePost(const StartExchange& start) {
  std::string text =
      absl::StrCat("posts ", start.id.generation.value(), ":", start.id.sequence, " ");
  if (const auto* resync = std::get_if<ResyncRecord>(&start.record)) {
    absl::StrAppend(&text, "RESYNC ", resync->last_completed_round.value());
  } else if (const auto* offer = std::get_if<Offer>(&start.record)) {
    absl::StrAppend(&text, Describe(offer->header.state), " round ", offer->header.round.value(),
                    ", ", offer->window.size(), " samples");
  } else {
    absl::StrAppend(&text, "CONFIRM round ", std::get<ConfirmRecord>(start.record).round.value());
  }
  return text;
}

}  // namespace

SimRank::SimRank(const Options& options, const FakeOdbd::Dependencies& deps, StepBarrier* barrier,
                 Owner* owner)
    : options_(options),
      simulator_(deps.simulator),
      history_(deps.history),
      memo_(deps.memo),
      owner_(owner),
      crashes_(CrashesOf(options.rank, *options.scenario, *options.timing)),
      odbd_({options.rank, options.scenario, options.timing, options.sabotage}, deps),
      trainer_(options.rank, options.scenario, options.timing, simulator_, &odbd_, barrier,
               history_),
      to_odbd_(simulator_, options.timing->slowest_message),
      to_aligner_(simulator_, options.timing->slowest_message) {}

bool SimRank::IsMissing() const {
  return options_.scenario->ending == Ending::kRankMissing &&
         options_.scenario->culprit == options_.rank;
}

void SimRank::Start() {
  StartAligner();
  if (IsMissing()) return;
  const auto at = static_cast<size_t>(options_.rank.value());
  simulator_->After(options_.timing->attach_time[at], [this] {
    history_->OnAttached(options_.rank);
    owner_->OnAttached(this);
    trainer_.Start();
  });
}

void SimRank::OpenGeneration(Generation generation) {
  if (!alive_ || generation <= open_) return;
  open_ = generation;
  if (aligner_ != nullptr) HandOut();
}

void SimRank::TakeFailure(const Fail& fail) {
  if (!alive_ || failed_) return;
  failed_ = true;
  odbd_.Fail();
  history_->OnFailed(options_.rank, fail);
}

void SimRank::Kill() {
  alive_ = false;
  trainer_.Kill();
  LeaveMesh();
  to_aligner_.Cut();
  to_odbd_.Cut();
  odbd_.Disconnect();
  if (aligner_ != nullptr) aligner_->Kill();
  aligner_ = nullptr;
}

void SimRank::OnMesh(SimAligner* aligner, Generation generation) {
  if (aligner != aligner_) return;
  connected_ = generation;
  aligner->OnMesh(generation);
}

void SimRank::SendToOdbd(Effect effect) {
  if (auto* deliver = std::get_if<DeliverGathered>(&effect)) {
    const GatheredMessage gathered = {deliver->generation, deliver->round, deliver->decision,
                                      memo_->Intern(std::move(deliver->offers))};
    return to_odbd_.Send([this, gathered] { OnGathered(gathered); });
  }
  to_odbd_.Send([this, effect = std::move(effect)] { OnAligner(effect); });
}

void SimRank::Post(SimAligner* aligner, const StartExchange& start) {
  if (history_->tracing()) Trace(DescribePost(start));
  mesh_->Post(
      options_.rank, start.id, start.record,
      [aligner](ExchangeId id, std::optional<ExchangeTable> table, std::optional<Rank> suspected) {
        aligner->OnExchange(id, std::move(table), suspected);
      });
}

void SimRank::JoinMesh(SimAligner* aligner, Generation generation) {
  LeaveMesh();
  owner_->JoinMesh(this, aligner, generation);
}

void SimRank::LeaveMesh() {
  if (mesh_ != nullptr) mesh_->Leave(options_.rank);
  mesh_ = nullptr;
}

bool SimRank::Dies(CrashPoint point) {
  for (size_t i = 0; i < crashes_.size(); ++i) {
    Crash& crash = crashes_[i];
    if (crash.point != point || crash.countdown-- > 0) continue;
    const Crash now = crash;
    if (now.kind != Crash::Kind::kLoops) {
      crashes_.erase(crashes_.begin() + static_cast<std::ptrdiff_t>(i));
    }
    history_->OnCrash(now);
    if (now.kind == Crash::Kind::kTakesNode) {
      owner_->Lose();
    } else if (now.kind != Crash::Kind::kHangs) {
      BuryAligner();
    }
    return true;
  }
  return false;
}

void SimRank::StartAligner() {
  if (!alive_) return;
  AlignmentMachine::Options options;
  options.rank = options_.rank;
  options.world_size = options_.scenario->world_size;
  options.config_digest = 0xc0ffee;
  options.heartbeat_interval = options_.timing->heartbeat_interval;
  options.exchange_timeout = options_.timing->exchange_timeout;
  lives_.push_back(std::make_unique<SimAligner>(options, simulator_, this, options_.sabotage));
  SimAligner* const aligner = lives_.back().get();
  aligner_ = aligner;
  odbd_.Connect([this, aligner](OdbdMessage message) {
    to_aligner_.Send([aligner, message = std::move(message)] { aligner->OnOdbd(message); });
  });
  if (open_ > handed_out_) HandOut();
}

void SimRank::HandOut() {
  handed_out_ = open_;
  SimAligner* const aligner = aligner_;
  to_aligner_.Send([aligner, generation = open_, resume = odbd_.Open(open_)] {
    aligner->OnOpen(generation, resume);
  });
  simulator_->After(options_.timing->mesh_timeout(), [this, aligner, generation = open_] {
    if (aligner != aligner_ || open_ != generation) return;
    if (aligner->open_generation() == generation && aligner->alive()) return;
    Trace("aligner is replaced: it does not answer");
    aligner->Kill();
    BuryAligner();
  });
}

void SimRank::BuryAligner() {
  LeaveMesh();
  to_aligner_.Cut();
  SimAligner* const aligner = aligner_;
  to_odbd_.Send([this, aligner] {
    if (aligner != aligner_) return;
    odbd_.Disconnect();
    aligner_ = nullptr;
    owner_->OnMeshFailed(this, handed_out_, "its aligner died", options_.rank);
    simulator_->After(simulator_->Between(absl::Milliseconds(1), absl::Milliseconds(100)),
                      [this] { StartAligner(); });
  });
}

void SimRank::OnGathered(const GatheredMessage& gathered) {
  if (history_->tracing()) {
    Trace(absl::StrCat("odbd is delivered round ", gathered.round.value()));
  }
  odbd_.OnDeliver(gathered);
}

void SimRank::OnAligner(const Effect& effect) {
  if (const auto* release = std::get_if<ReleaseRound>(&effect)) {
    if (history_->tracing()) {
      Trace(absl::StrCat("odbd is released round ", release->round.value(), " of generation ",
                         release->generation.value()));
    }
    const bool was_closed = odbd_.session_is_closed();
    odbd_.OnRelease(*release);
    if (!was_closed && odbd_.session_is_closed()) owner_->OnClosed(this);
  } else if (const auto* report = std::get_if<ReportWaiting>(&effect)) {
    if (history_->tracing()) Trace(DescribeWait(*report, simulator_->now()));
  } else if (const auto* fail = std::get_if<Fail>(&effect)) {
    owner_->OnFailed(*fail);
  } else if (const auto* request = std::get_if<RequestNewGeneration>(&effect)) {
    if (history_->tracing()) {
      Trace(absl::StrCat("wants a generation after ", request->broken.value(), ": ",
                         request->reason));
    }
    owner_->OnMeshFailed(this, request->broken, request->reason, request->suspected);
  }
}

}  // namespace odb
