#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "base/os/mutex.h"
#include "batching/offer.h"
#include "batching/plan.h"

namespace odb {

// What a round became: everybody's offers, and the plan that they make.
struct PlannedRound {
  PlanContext context;
  std::vector<Offer> offers;  // by rank
  Plan plan;
};

// Makes one plan per round and node, however many ranks of the node need it: who comes first
// computes it, the others wait for that and share it.
//
// A round is recognised by all that its plan depends on, compared value by value. So a round that a
// new generation gathers again is planned once too, and a table that is different by mistake gets
// a plan of its own, and with it a digest that the ranks then disagree about.
//
// Ownership: the job's; keeps the last round. Threads: thread-safe. A wait here is for a
// computation and needs no end from outside. Errors: those of MakePlan, to everybody.
class PlanMemo {
 public:
  // `options` must be equal in all calls.
  absl::StatusOr<std::shared_ptr<const PlannedRound>> Get(const PlanOptions& options,
                                                          const PlanContext& context,
                                                          std::vector<Offer> offers);

  int64_t num_made() const;  // plans computed so far

 private:
  struct Entry {
    PlannedRound round;   // context and offers constant, plan constant once done
    bool done = false;    // guarded by mutex_
    absl::Status status;  // the same
  };

  mutable Mutex mutex_;  // guards all below
  CondVar done_;
  // Owners: this object, and whoever computes the plan or uses it.
  std::shared_ptr<Entry> last_ ABSL_GUARDED_BY(mutex_);
  int64_t num_made_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace odb
