#pragma once

#include <map>
#include <set>

#include "absl/strings/string_view.h"
#include "aligner/protocol/effects.h"
#include "base/ids.h"
#include "tests/simulation/scenario.h"
#include "tests/simulation/verdict.h"

namespace odb {

// Failure: a job fails only if its scenario asks for it, and as it asks. Then every rank that is
// left gets one error, in the same words, which names the culprit (for a node: all its ranks), and
// nothing is delivered to it afterwards.
//
// Ownership: the pointers must outlive it. Threads: one.
class FailureChecker {
 public:
  FailureChecker(const Scenario* scenario, Verdict* verdict)
      : scenario_(scenario), verdict_(verdict) {}

  // `fail.culprits` is empty where the arbiter says it.
  void OnFailed(Rank rank, const Fail& fail);
  void OnStep(Rank rank);
  void OnNodeLost(int32_t node);
  void CheckEnd();

  // Every rank that is left has its error.
  bool all_failed() const { return !failures_.empty() && failures_.size() == NumLeft(); }

 private:
  // The ranks that the error must name.
  std::set<Rank> Culprits() const;
  // Ranks whose trainers are there to be told.
  size_t NumLeft() const;

  const Scenario* const scenario_;
  Verdict* const verdict_;
  std::map<Rank, Fail> failures_;
  std::set<Rank> lost_;
};

// The ranks that `text` names: 0, 1, 3 and 7 in "ranks 0, 1 and 3 ...; rank 7 ...".
std::set<Rank> RanksNamedIn(absl::string_view text);

}  // namespace odb
