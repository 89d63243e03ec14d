#include "server/pipeline/plan_memo.h"

#include <cstddef>
#include <utility>

#include "base/status_macros.h"

namespace odb {
namespace {

bool IsSameContext(const PlanContext& a, const PlanContext& b) {
  return a.epoch == b.epoch && a.iterator == b.iterator && a.round == b.round &&
         a.emitted_before == b.emitted_before;
}

// As far as the plan and its steps depend on them: not the generation, for one.
bool AreSameOffers(const std::vector<Offer>& a, const std::vector<Offer>& b) {
  if (a.size() != b.size()) return false;
  for (size_t rank = 0; rank < a.size(); ++rank) {
    const OfferHeader& head = a[rank].header;
    const OfferHeader& other = b[rank].header;
    if (head.state != other.state || head.dropped != other.dropped || head.unread != other.unread ||
        head.modality_mask != other.modality_mask || !(a[rank].window == b[rank].window)) {
      return false;
    }
  }
  return true;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const PlannedRound>> PlanMemo::Get(const PlanOptions& options,
                                                                  const PlanContext& context,
                                                                  std::vector<Offer> offers) {
  std::shared_ptr<Entry> entry;
  while (true) {
    std::shared_ptr<Entry> last;
    {
      MutexLock lock(&mutex_);
      last = last_;
    }
    // Thousands of samples: compared without the lock, which is why last_ may be another one then.
    if (last != nullptr && IsSameContext(last->round.context, context) &&
        AreSameOffers(last->round.offers, offers)) {
      MutexLock lock(&mutex_);
      while (!last->done) done_.Wait(&mutex_);
      RETURN_IF_ERROR(last->status);
      return std::shared_ptr<const PlannedRound>(last, &last->round);
    }
    MutexLock lock(&mutex_);
    if (last_ != last) continue;
    entry = std::make_shared<Entry>();
    entry->round.context = context;
    entry->round.offers = std::move(offers);
    last_ = entry;
    ++num_made_;
    break;
  }
  absl::StatusOr<Plan> plan = MakePlan(options, context, entry->round.offers);
  if (plan.ok()) entry->round.plan = *std::move(plan);
  {
    MutexLock lock(&mutex_);
    entry->status = plan.status();
    entry->done = true;
    done_.NotifyAll();
  }
  RETURN_IF_ERROR(plan.status());
  return std::shared_ptr<const PlannedRound>(entry, &entry->round);
}

int64_t PlanMemo::num_made() const {
  MutexLock lock(&mutex_);
  return num_made_;
}

}  // namespace odb
