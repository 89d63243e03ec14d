#include "server/pipeline/coverage.h"

#include <algorithm>

#include "base/status_macros.h"
#include "batching/grouping.h"

namespace odb {
namespace {

double Share(int64_t part, int64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

}  // namespace

CoverageTracker::CoverageTracker(const Options& options) : options_(options) {}

void CoverageTracker::Begin(int64_t iterator, Epoch epoch, Rank rank, int64_t view_records) {
  MutexLock lock(&mutex_);
  Iteration& iteration = running_[iterator];
  iteration.epoch = epoch;
  iteration.emitted.resize(static_cast<size_t>(options_.num_records));
  iteration.ranks[rank].view_records = view_records;
}

void CoverageTracker::Read(int64_t iterator, Rank rank, absl::Span<const int32_t> lengths) {
  MutexLock lock(&mutex_);
  const auto iteration = running_.find(iterator);
  if (iteration == running_.end()) return;
  std::vector<int32_t>& valid = iteration->second.ranks[rank].lengths;
  for (const int32_t length : lengths) {
    if (length == 0) {
      ++iteration->second.quarantined;
    } else {
      valid.push_back(length);
    }
  }
}

void CoverageTracker::Taken(int64_t iterator, const TakenStep& step) {
  MutexLock lock(&mutex_);
  const auto found = running_.find(iterator);
  if (found == running_.end()) return;
  Iteration& iteration = found->second;
  for (const int64_t record : step.records) {
    uint8_t& times = iteration.emitted[static_cast<size_t>(record)];
    if (times < UINT8_MAX) ++times;
  }
  iteration.tokens += step.tokens;
  iteration.padded_tokens += step.padded_tokens;
  ++iteration.steps;
  iteration.idle_slots += step.records.empty() ? 1 : 0;
}

void CoverageTracker::LeftOver(int64_t iterator, Rank rank, int64_t left_over) {
  MutexLock lock(&mutex_);
  const auto iteration = running_.find(iterator);
  if (iteration != running_.end()) iteration->second.left_over += left_over;
}

void CoverageTracker::End(int64_t iterator, Rank rank, bool complete) {
  MutexLock lock(&mutex_);
  const auto found = running_.find(iterator);
  if (found == running_.end()) return;
  Iteration& iteration = found->second;
  iteration.ranks[rank].ended = true;
  iteration.complete = iteration.complete && complete;

  const auto ended = std::count_if(iteration.ranks.begin(), iteration.ranks.end(),
                                   [](const auto& entry) { return entry.second.ended; });
  if (ended < options_.num_ranks) return;
  // An iteration that was ended early does not hide the last whole epoch.
  if (iteration.complete || finished_ == nullptr || !finished_->complete) {
    finished_ = std::make_unique<Iteration>(std::move(iteration));
  }
  running_.erase(found);
}

v1::Coverage CoverageTracker::Snapshot() const {
  MutexLock lock(&mutex_);
  if (finished_ != nullptr && finished_->complete) return Describe(*finished_, true);
  if (!running_.empty()) return Describe(running_.begin()->second, false);
  if (finished_ != nullptr) return Describe(*finished_, false);
  return v1::Coverage();
}

v1::Coverage CoverageTracker::Describe(const Iteration& iteration, bool finished) const {
  v1::Coverage coverage;
  coverage.set_epoch(iteration.epoch.value());
  coverage.set_finished(finished);
  int64_t records = 0;
  for (const auto& [rank, own] : iteration.ranks) records += own.view_records;
  int64_t emitted = 0;
  int64_t duplicates = 0;
  for (const uint8_t times : iteration.emitted) {
    emitted += times > 0 ? 1 : 0;
    duplicates += times > 1 ? times - 1 : 0;
  }
  coverage.set_records(records);
  coverage.set_emitted(emitted);
  coverage.set_duplicates(duplicates);
  coverage.set_quarantined(iteration.quarantined);
  coverage.set_left_over(iteration.left_over);
  coverage.set_missing(
      std::max<int64_t>(0, records - emitted - iteration.quarantined - iteration.left_over));
  coverage.set_fill(Share(iteration.tokens, iteration.steps * options_.budget));
  coverage.set_real_token_share(Share(iteration.tokens, iteration.padded_tokens));
  coverage.set_steps(iteration.steps / std::max<int64_t>(1, iteration.ranks.size()));
  coverage.set_idle_slots(iteration.idle_slots);
  AddFixedBatches(iteration, &coverage);
  return coverage;
}

void CoverageTracker::AddFixedBatches(const Iteration& iteration, v1::Coverage* coverage) const {
  int32_t longest = 0;
  for (const auto& [rank, own] : iteration.ranks) {
    for (const int32_t length : own.lengths) longest = std::max(longest, length);
  }
  if (longest == 0) return;
  const auto padded_length = [this](int32_t length) {
    return PaddedLength(length, options_.pad_to_multiple_of, options_.shape_buckets);
  };
  const int64_t size = std::max<int64_t>(1, options_.budget / padded_length(longest));

  int64_t tokens = 0;
  int64_t padded_tokens = 0;
  int64_t most_batches = 0;  // the other ranks would idle, or wait, as long
  for (const auto& [rank, own] : iteration.ranks) {
    const auto count = static_cast<int64_t>(own.lengths.size());
    most_batches = std::max(most_batches, (count + size - 1) / size);
    for (int64_t begin = 0; begin < count; begin += size) {
      const int64_t end = std::min(begin + size, count);
      int32_t longest_of_batch = 0;
      for (int64_t i = begin; i < end; ++i) {
        tokens += own.lengths[static_cast<size_t>(i)];
        longest_of_batch = std::max(longest_of_batch, own.lengths[static_cast<size_t>(i)]);
      }
      padded_tokens += (end - begin) * padded_length(longest_of_batch);
    }
  }
  coverage->set_fixed_batch_size(size);
  const auto slots = most_batches * static_cast<int64_t>(iteration.ranks.size());
  coverage->set_fixed_batch_fill(Share(tokens, slots * options_.budget));
  coverage->set_fixed_batch_real_token_share(Share(tokens, padded_tokens));
}

}  // namespace odb
