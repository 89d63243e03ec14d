#include "server/daemon/step_estimate.h"

#include <algorithm>
#include <string>
#include <variant>

#include "batching/grouping.h"

namespace odb {

int64_t EstimateSteps(std::vector<int32_t> lengths, int64_t num_records,
                      const StepEstimateOptions& options) {
  if (lengths.empty() || num_records <= 0) return 0;
  // As many samples as a window holds are grouped together; a small sample of the lengths stands
  // for a window by being stretched, a large one is cut.
  std::sort(lengths.begin(), lengths.end());
  const auto size = static_cast<int64_t>(lengths.size());
  const int64_t window = std::max<int64_t>(1, std::min(options.window, num_records));
  int64_t groups = 0;
  int64_t group_size = 0;
  for (int64_t i = 0; i < window; ++i) {  // ascending: the newest sample is the longest
    const int64_t padded = PaddedLength(lengths[static_cast<size_t>(i * size / window)],
                                        options.pad_to_multiple_of, options.shape_buckets);
    const bool full = (group_size + 1) * padded > options.budget ||
                      (options.max_samples > 0 && group_size >= options.max_samples);
    if (group_size == 0 || full) {
      ++groups;
      group_size = 0;
    }
    ++group_size;
  }
  return std::max<int64_t>(1, (groups * num_records + window - 1) / window);
}

std::vector<int32_t> SampleLengths(const Dataset& dataset, const Transform& transform,
                                   uint64_t seed, int64_t count) {
  std::vector<int32_t> lengths;
  std::string buffer;
  count = std::min(count, dataset.size());
  for (int64_t i = 0; i < count; ++i) {
    const int64_t index = i * dataset.size() / count;
    const SampleResult result = Preprocess(dataset, transform, index, seed, Epoch(0), &buffer);
    if (const auto* sample = std::get_if<Sample>(&result)) lengths.push_back(sample->length());
  }
  return lengths;
}

}  // namespace odb
