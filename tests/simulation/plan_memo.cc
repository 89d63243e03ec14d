#include "tests/simulation/plan_memo.h"

#include <cstddef>
#include <utility>

namespace odb {
namespace {

constexpr size_t kKept = 4;

// Everything that a plan, or an odbd, depends on.
bool Same(const Offer& a, const Offer& b) {
  const OfferHeader& x = a.header;
  const OfferHeader& y = b.header;
  return x.rank == y.rank && x.epoch == y.epoch && x.iterator == y.iterator && x.round == y.round &&
         x.generation == y.generation && x.state == y.state && x.waiting == y.waiting &&
         x.closing_reason == y.closing_reason && x.position == y.position &&
         x.dropped == y.dropped && x.unread == y.unread && x.plan_digest == y.plan_digest &&
         a.window == b.window;
}

bool Same(const std::vector<Offer>& a, const std::vector<Offer>& b) {
  if (a.size() != b.size()) return false;
  for (size_t rank = 0; rank < a.size(); ++rank) {
    if (!Same(a[rank], b[rank])) return false;
  }
  return true;
}

bool Same(const PlanContext& a, const PlanContext& b) {
  return a.epoch == b.epoch && a.iterator == b.iterator && a.round == b.round &&
         a.emitted_before == b.emitted_before;
}

}  // namespace

OfferTable PlanMemo::Intern(std::vector<Offer> offers) {
  for (auto table = tables_.rbegin(); table != tables_.rend(); ++table) {
    if (Same(**table, offers)) return *table;
  }
  tables_.push_back(std::make_shared<const std::vector<Offer>>(std::move(offers)));
  if (tables_.size() > kKept) tables_.pop_front();
  return tables_.back();
}

absl::StatusOr<SharedPlan> PlanMemo::PlanOf(const PlanOptions& options, const PlanContext& context,
                                            const OfferTable& offers) {
  for (const Planned& planned : plans_) {
    if (planned.offers == offers && planned.options == &options && Same(planned.context, context)) {
      return planned.plan;
    }
  }
  absl::StatusOr<Plan> plan = MakePlan(options, context, *offers);
  if (!plan.ok()) return plan.status();
  SharedPlan shared = std::make_shared<const Plan>(*std::move(plan));
  if (!share_plans_) return shared;
  plans_.push_back({offers, &options, context, shared});
  if (plans_.size() > kKept) plans_.pop_front();
  return shared;
}

}  // namespace odb
