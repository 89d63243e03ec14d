#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "aligner/protocol/effects.h"
#include "base/ids.h"
#include "tests/simulation/fake_odbd.h"
#include "tests/simulation/fake_trainer.h"
#include "tests/simulation/history.h"
#include "tests/simulation/sabotage.h"
#include "tests/simulation/scenario.h"
#include "tests/simulation/sim_aligner.h"
#include "tests/simulation/sim_mesh.h"
#include "tests/simulation/simulator.h"

namespace odb {

// One rank: its part of an odbd with the supervisor of its aligner, its trainer, and the aligner's
// lives.
//
// Ownership: the pointers must outlive it. Threads: one, on the simulator.
class SimRank : public SimAligner::Host {
 public:
  // Its node.
  class Owner {
   public:
    virtual ~Owner() = default;
    virtual void OnAttached(SimRank* rank) = 0;
    virtual void OnClosed(SimRank* rank) = 0;
    virtual void OnMeshFailed(SimRank* rank, Generation broken, const std::string& reason,
                              std::optional<Rank> suspected) = 0;
    virtual void OnFailed(const Fail& fail) = 0;
    virtual void Lose() = 0;  // the whole node dies
    virtual void JoinMesh(SimRank* rank, SimAligner* aligner, Generation generation) = 0;
  };
  struct Options {
    Rank rank;
    const Scenario* scenario = nullptr;
    const Timing* timing = nullptr;
    Sabotage sabotage = Sabotage::kNone;
  };
  SimRank(const Options& options, const FakeOdbd::Dependencies& deps, StepBarrier* barrier,
          Owner* owner);

  void Start();
  // From the arbiter, by its node.
  void OpenGeneration(Generation generation);
  void TakeFailure(const Fail& fail);
  // With its node.
  void Kill();

  void OnMesh(SimAligner* aligner, Generation generation);
  void set_mesh(std::shared_ptr<SimMesh> mesh) { mesh_ = std::move(mesh); }

  Rank rank() const { return options_.rank; }
  bool session_is_closed() const { return odbd_.session_is_closed(); }
  RoundId last_completed() const { return odbd_.last_completed(); }
  // The last generation whose mesh it had.
  Generation connected() const { return connected_; }

  // From its aligner.
  void SendToOdbd(Effect effect) override;
  void Post(SimAligner* aligner, const StartExchange& start) override;
  void JoinMesh(SimAligner* aligner, Generation generation) override;
  bool Dies(CrashPoint point) override;

 private:
  bool IsMissing() const;
  void StartAligner();
  // Resume state to the aligner; who does not come to the mesh then is replaced.
  void HandOut();
  // The process is gone. What it had sent still arrives, then the end of its stream.
  void BuryAligner();
  void LeaveMesh();
  void OnGathered(const GatheredMessage& gathered);
  void OnAligner(const Effect& effect);
  void Trace(absl::string_view what) const { history_->Trace(options_.rank, what); }

  const Options options_;
  Simulator* const simulator_;
  History* const history_;
  PlanMemo* const memo_;
  Owner* const owner_;
  std::vector<Crash> crashes_;  // of this rank, still to come
  FakeOdbd odbd_;
  FakeTrainer trainer_;
  OrderedLink to_odbd_;
  OrderedLink to_aligner_;
  bool alive_ = true;
  bool failed_ = false;
  Generation open_;        // the arbiter's newest
  Generation handed_out_;  // the last one that an aligner was told
  Generation connected_;
  std::shared_ptr<SimMesh> mesh_;
  SimAligner* aligner_ = nullptr;  // connected, though it may be dead already
  std::vector<std::unique_ptr<SimAligner>> lives_;
};

}  // namespace odb
