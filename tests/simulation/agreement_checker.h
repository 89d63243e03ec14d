#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "aligner/protocol/effects.h"
#include "base/ids.h"
#include "tests/simulation/verdict.h"

namespace odb {

// Agreement: a rank is released its rounds in order, each once; every rank has planned a round,
// with one digest, before anybody is released it; and the ranks' completed rounds differ by at most
// one.
//
// Ownership: `verdict` must outlive it. Threads: one.
class AgreementChecker {
 public:
  AgreementChecker(int world_size, Verdict* verdict)
      : verdict_(verdict), completed_(static_cast<size_t>(world_size)) {}

  void OnPlanned(Rank rank, RoundId round, uint64_t digest);
  void OnReleased(Rank rank, const ReleaseRound& release);

  // How often a rank planned a round that another had completed before: it was redone.
  int64_t num_redone() const { return num_redone_; }

 private:
  struct Round {
    std::map<Rank, uint64_t> planned;   // the last digest of each rank
    std::map<uint64_t, size_t> counts;  // of `planned`
  };

  Verdict* const verdict_;
  std::vector<RoundId> completed_;  // [rank]
  std::map<RoundId, Round> rounds_;
  std::map<RoundId, uint64_t> released_;  // digest of the first release
  int64_t num_redone_ = 0;
};

}  // namespace odb
