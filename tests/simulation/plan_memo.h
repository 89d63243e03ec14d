#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "batching/offer.h"
#include "batching/plan.h"

namespace odb {

using OfferTable = std::shared_ptr<const std::vector<Offer>>;
using SharedPlan = std::shared_ptr<const Plan>;

// What all ranks have of a round, kept once: the table of offers, and in large worlds the plan.
// Ranks of a small world each plan for themselves, as real ones do, so that a plan that depended on
// anything else would be seen.
//
// Ownership: what it hands out is shared by the ranks, which keep it longer than it does. Threads:
// one.
class PlanMemo {
 public:
  explicit PlanMemo(bool share_plans) : share_plans_(share_plans) {}

  OfferTable Intern(std::vector<Offer> offers);
  // `offers` must be from Intern, `options` live as long as the memo. Errors: those of MakePlan.
  absl::StatusOr<SharedPlan> PlanOf(const PlanOptions& options, const PlanContext& context,
                                    const OfferTable& offers);

 private:
  struct Planned {
    OfferTable offers;
    const PlanOptions* options = nullptr;
    PlanContext context;
    SharedPlan plan;
  };

  const bool share_plans_;
  // The newest come last. Ranks are at most a round apart, and a round may be gathered again in
  // each of a few generations.
  std::deque<OfferTable> tables_;
  std::deque<Planned> plans_;
};

}  // namespace odb
