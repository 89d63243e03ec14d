#include "server/pipeline/epoch_views.h"

#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace odb {

absl::StatusOr<std::unique_ptr<EpochViews>> EpochViews::Create(const Options& options,
                                                               const Dataset& dataset) {
  if (options.world_size < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("a job must have >= 1 ranks, got ", options.world_size));
  }
  if (!options.sources_of_rank.empty()) {
    RETURN_IF_ERROR(
        CheckBoundViews(options.sources_of_rank, options.world_size, dataset.num_sources()));
  }
  return std::unique_ptr<EpochViews>(new EpochViews(options, dataset));
}

EpochViews::EpochViews(const Options& options, const Dataset& dataset)
    : options_(options), num_records_(dataset.size()) {
  for (int32_t source = 0; source < dataset.num_sources(); ++source) {
    const RecordRange records = dataset.records(source);
    ranges_.push_back({records.first, records.count});
  }
  for (int32_t rank = 0; rank < options_.world_size; ++rank) {
    sizes_.push_back(View(Epoch(0), Rank(rank)).size());
  }
}

int64_t EpochViews::total_size() const {
  return std::accumulate(sizes_.begin(), sizes_.end(), int64_t{0});
}

RankView EpochViews::View(Epoch epoch, Rank rank) const {
  const OrderKey key = KeyOf(epoch);
  if (options_.sources_of_rank.empty()) {
    return RankView::Strided(num_records_, key, rank, options_.world_size);
  }
  std::vector<IndexRange> ranges;
  for (const int32_t source : options_.sources_of_rank[static_cast<size_t>(rank.value())]) {
    ranges.push_back(ranges_[static_cast<size_t>(source)]);
  }
  return RankView::Bound(std::move(ranges), key);
}

std::vector<int64_t> EpochViews::ViewHeadedBy(absl::Span<const int64_t> first, Epoch epoch,
                                              Rank rank) const {
  std::vector<bool> is_first(static_cast<size_t>(num_records_), false);
  for (const int64_t record : first) is_first[static_cast<size_t>(record)] = true;
  std::vector<int64_t> view;

  if (!options_.sources_of_rank.empty()) {
    const RankView own = View(epoch, rank);
    std::vector<bool> is_own(static_cast<size_t>(num_records_), false);
    for (int64_t i = 0; i < own.size(); ++i) is_own[static_cast<size_t>(own.at(i))] = true;
    for (const int64_t record : first) {
      if (is_own[static_cast<size_t>(record)]) view.push_back(record);
    }
    for (int64_t i = 0; i < own.size(); ++i) {
      if (!is_first[static_cast<size_t>(own.at(i))]) view.push_back(own.at(i));
    }
    return view;
  }

  int64_t position = 0;  // in the epoch's order, `first` ahead of the others
  const auto deal = [&](int64_t record) {
    if (position++ % options_.world_size == rank.value()) view.push_back(record);
  };
  for (const int64_t record : first) deal(record);
  const Permutation order = Order(epoch);
  for (int64_t i = 0; i < num_records_; ++i) {
    if (!is_first[static_cast<size_t>(order.at(i))]) deal(order.at(i));
  }
  return view;
}

}  // namespace odb
