#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "aligner/protocol/alignment_machine.h"
#include "aligner/protocol/effects.h"
#include "base/ids.h"
#include "tests/simulation/fake_odbd.h"
#include "tests/simulation/sabotage.h"
#include "tests/simulation/scenario.h"
#include "tests/simulation/simulator.h"

namespace odb {

// One life of an aligner process: the real machine, and a driver that carries out its effects by
// the rules of effects.h. Dies at the crash points that `Host::Dies` says.
//
// Ownership: outlives its death, so that what is under way finds it dead. Threads: one.
class SimAligner {
 public:
  class Host {
   public:
    virtual ~Host() = default;
    virtual void SendToOdbd(Effect effect) = 0;  // on the ordered link
    virtual void Post(SimAligner* aligner, const StartExchange& start) = 0;
    virtual void JoinMesh(SimAligner* aligner, Generation generation) = 0;
    // True: the aligner is dead (or mute) from now on.
    virtual bool Dies(CrashPoint point) = 0;
  };
  SimAligner(const AlignmentMachine::Options& options, Simulator* simulator, Host* host,
             Sabotage sabotage);

  void OnOpen(Generation generation,
              ResumeState resume);     // from odbd: build this mesh
  void OnMesh(Generation generation);  // it stands
  void OnOdbd(OdbdMessage message);
  // Empty table: it failed, perhaps because of `suspected`.
  void OnExchange(ExchangeId id, std::optional<ExchangeTable> table, std::optional<Rank> suspected);

  void Kill() { alive_ = false; }
  bool alive() const { return alive_; }
  Generation open_generation() const { return open_; }

 private:
  // Carries out what the machine said, until this process dies of it.
  void Carry(std::vector<Effect> effects);
  void CarryStart(StartExchange start);
  void SetTimerAt(absl::Time at);
  // True if the process dies here.
  bool Dies(CrashPoint point);
  // What a sabotaged aligner makes of a table.
  void Falsify(ExchangeTable* table) const;

  const AlignmentMachine::Options options_;
  Simulator* const simulator_;
  Host* const host_;
  const Sabotage sabotage_;
  AlignmentMachine machine_;
  bool alive_ = true;
  Generation open_;  // the newest that odbd opened
  ResumeState resume_;
  int64_t timer_ = 0;  // counts SetTimer: only the last one is due
};

}  // namespace odb
