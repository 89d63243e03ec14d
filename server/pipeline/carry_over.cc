#include "server/pipeline/carry_over.h"

#include "base/hash.h"

namespace odb {

void CarryOver::AddEmitted(absl::Span<const Offer> offers, const Plan& plan) {
  for (size_t rank = 0; rank < offers.size(); ++rank) {
    for (const PlannedGroup& group : plan.groups[rank]) {
      for (const SampleRef ref : group.samples) emitted_.insert(ShapeOf(offers, ref).id_hash);
    }
  }
}

std::vector<int64_t> CarryOver::NotEmitted(const EpochViews& views, const Dataset& dataset,
                                           Epoch epoch) const {
  std::vector<int64_t> records;
  const Permutation order = views.Order(epoch);
  for (int64_t i = 0; i < order.size(); ++i) {
    const int64_t record = order.at(i);
    if (emitted_.count(HashSampleId(dataset.ref(record).id())) == 0) records.push_back(record);
  }
  return records;
}

}  // namespace odb
