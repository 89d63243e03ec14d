#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <variant>
#include <vector>

#include "aligner/protocol/alignment_machine.h"
#include "aligner/protocol/effects.h"
#include "base/ids.h"
#include "batching/plan.h"
#include "tests/simulation/fake_pipeline.h"
#include "tests/simulation/handover.h"
#include "tests/simulation/history.h"
#include "tests/simulation/plan_memo.h"
#include "tests/simulation/sabotage.h"
#include "tests/simulation/scenario.h"
#include "tests/simulation/simulator.h"

namespace odb {

// odbd's answer to DeliverGathered.
struct PlannedMessage {
  Generation generation;
  RoundId round;
  uint64_t digest = 0;
};
using OdbdMessage = std::variant<LocalState, Offer, PlannedMessage>;

// DeliverGathered, with the table as all ranks share it.
struct GatheredMessage {
  Generation generation;
  RoundId round;
  DecisionKind decision = DecisionKind::kPlan;
  OfferTable offers;
};

// What one rank's odbd does around alignment, by the rules of effects.h: holds all lasting state,
// plans with the real MakePlan, and serves one trainer.
//
// Ownership: the pointers must outlive it. Threads: one, on the simulator.
class FakeOdbd {
 public:
  struct Options {
    Rank rank;
    const Scenario* scenario = nullptr;
    const Timing* timing = nullptr;
    Sabotage sabotage = Sabotage::kNone;
  };
  struct Dependencies {
    Simulator* simulator = nullptr;
    History* history = nullptr;
    PlanMemo* memo = nullptr;
    Handover* handover = nullptr;  // of its node
  };
  FakeOdbd(const Options& options, const Dependencies& deps);

  // An aligner came (again): `send` receives what is true now and every change of it.
  void Connect(std::function<void(OdbdMessage)> send);
  void Disconnect() { send_ = nullptr; }
  // From now on older generations are not listened to.
  ResumeState Open(Generation generation);
  void OnDeliver(const GatheredMessage& gathered);
  void OnRelease(const ReleaseRound& release);
  // The job's one error: its trainer gets nothing more.
  void Fail();

  // The trainer's calls. One at a time; `done` is called later.
  void BeginEpoch(int64_t epoch);
  void AskStep(std::function<void(std::optional<DeliveredStep>)> done);  // nothing: epoch is over
  void Break(std::function<void()> done);
  void CloseSession();
  void LoseTrainer();

  bool session_is_closed() const { return session_is_closed_; }
  RoundId last_completed() const { return last_completed_; }

 private:
  struct Gathered {
    GatheredMessage message;
    SharedPlan plan;  // kPlan, once it is made
    uint64_t digest = 0;
  };

  void Preprocess(int64_t epoch);
  void MakePlan(Generation generation);
  void Complete();
  void AfterAbandon();
  // Something changed: offers, hands out, ends what can end, and tells the aligner.
  void Update();
  void SendState();
  void ServeTrainer();
  LocalState CurrentState() const;
  bool IsOld(Generation generation) const;

  const Options options_;
  Simulator* const simulator_;
  History* const history_;
  FakePipeline pipeline_;
  std::function<void(OdbdMessage)> send_;
  std::optional<LocalState> sent_;  // the last one, to this aligner

  Generation fence_;
  RoundId last_completed_;
  uint64_t stored_digest_ = 0;
  std::optional<Offer> stored_offer_;
  std::optional<Offer> planned_offer_;
  std::optional<Offer> offer_;  // of last_completed_ + 1
  std::optional<Gathered> gathered_;

  bool attached_ = false;
  int64_t iterator_ = 0;
  int64_t position_ = 0;
  ClosingReason closing_ = ClosingReason::kNone;
  bool session_is_closed_ = false;
  bool failed_ = false;
  std::function<void(std::optional<DeliveredStep>)> asked_;
  std::function<void()> break_done_;
};

}  // namespace odb
