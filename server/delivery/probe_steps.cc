#include "server/delivery/probe_steps.h"

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>

#include "batching/grouping.h"
#include "server/delivery/arena_size.h"

namespace odb {
namespace {

// The largest n-th root that is whole.
int64_t WholeRoot(int64_t value, int n) {
  int64_t low = 0;
  int64_t high = value;
  while (low < high) {
    const int64_t middle = low + (high - low + 1) / 2;
    int64_t left = value;
    for (int i = 0; i < n; ++i) left /= middle;
    if (left > 0) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

// The sizes of one sample's tensor of up to `elements_max` elements, all that vary being equal.
std::vector<int64_t> LargestSizes(const ExtraTensorSpec& spec, int64_t length,
                                  int64_t elements_max) {
  std::vector<int64_t> sizes = spec.shape;
  int num_varying = 0;
  int64_t fixed = 1;
  for (int64_t& size : sizes) {
    if (size == kTokenSize) size = length;
    num_varying += size == kAnySize ? 1 : 0;
    if (size > 0) fixed *= size;
  }
  if (num_varying == 0) return sizes;
  const int64_t varying = WholeRoot(elements_max / fixed, num_varying);
  std::replace(sizes.begin(), sizes.end(), kAnySize, varying);
  return sizes;
}

StepLayout LayoutOf(const StepShape& shape, const TensorFormat& format, int64_t elements_max) {
  Sample sample;
  for (const ExtraTensorSpec& spec : format.extras) {
    sample.extras.emplace_back().shape = LargestSizes(spec, shape.length, elements_max);
  }
  const std::vector<const Sample*> samples(static_cast<size_t>(shape.rows), &sample);
  return MakeLayout(shape, samples, format);
}

std::string Element(ElementType type, int64_t value) {
  std::string bytes;
  AppendElement(type, value, &bytes);
  return bytes;
}

// What every element of the tensor may be; for offsets also the distance of one to the next.
void Fill(const TensorPlace& place, const TensorFormat& format, v1::ProbeTensor* tensor) {
  if (place.name == "input_ids") {
    tensor->set_element(Element(format.ids, format.pad_token_id));
  } else if (place.name == "labels") {
    tensor->set_element(Element(ElementType::kInt64, format.pad_token_id));
  } else if (place.name == "attention_mask") {
    const bool is_bool = format.mask == MaskType::kBool;
    tensor->set_element(Element(is_bool ? ElementType::kBool : ElementType::kInt64, 1));
  } else if (place.name == "position_ids") {
    tensor->set_element(Element(ElementType::kInt64, 0));  // which every model has
  }
}

v1::ProbeStep Describe(const StepLayout& layout, const TensorFormat& format) {
  v1::ProbeStep step;
  step.set_samples(layout.shape.rows);
  step.set_length(layout.shape.length);
  for (const TensorPlace& place : layout.tensors) {
    v1::ProbeTensor* const tensor = step.add_tensors();
    tensor->set_name(place.name);
    tensor->set_dtype(place.dtype);
    for (const int64_t size : place.shape) tensor->add_shape(size);
    Fill(place, format, tensor);
  }
  int first = step.tensors_size();
  for (const ExtraTensorSpec& spec : format.extras) {
    first -= spec.layout == ExtraLayout::kConcatenate ? 2 : 1;
  }
  for (const ExtraTensorSpec& spec : format.extras) {
    v1::ProbeTensor* const values = step.mutable_tensors(first++);
    values->set_element(spec.padding);
    if (spec.layout != ExtraLayout::kConcatenate) continue;
    v1::ProbeTensor* const offsets = step.mutable_tensors(first++);
    offsets->set_element(Element(ElementType::kInt64, 0));
    offsets->set_increment(values->shape(0) / layout.shape.rows);
  }
  return step;
}

}  // namespace

std::vector<StepShape> LargestShapes(const PlanOptions& plan, int64_t longest,
                                     int64_t samples_max) {
  const auto rows = [&](int64_t length) {
    int64_t most = std::min(plan.budget / length, samples_max);
    if (plan.max_samples > 0) most = std::min<int64_t>(most, plan.max_samples);
    return std::max<int64_t>(1, most);
  };
  const int64_t pad = plan.pad_to_multiple_of;
  const auto length_of = [&](int64_t num_rows) {
    return std::max(pad, plan.budget / num_rows / pad * pad);
  };
  const auto tokens = static_cast<int32_t>(std::min<int64_t>(longest, INT32_MAX));
  const int64_t length = PaddedLength(tokens, plan.pad_to_multiple_of, plan.shape_buckets);

  std::vector<StepShape> shapes = {{1, length}, {rows(length), length}};
  for (const int32_t bucket : plan.shape_buckets) {
    if (bucket <= length) shapes.push_back({rows(bucket), bucket});
  }
  if (plan.shape_buckets.empty()) {
    const int64_t full = length_of((plan.budget + length - 1) / length);
    shapes.push_back({rows(full), full});
    const int64_t shortest = std::min(length, length_of(rows(pad)));
    shapes.push_back({rows(shortest), shortest});
  }
  const auto key = [](const StepShape& shape) {
    return std::make_tuple(-shape.padded_tokens(), -shape.length);
  };
  std::sort(shapes.begin(), shapes.end(),
            [&key](const StepShape& a, const StepShape& b) { return key(a) < key(b); });
  const auto same = [&key](const StepShape& a, const StepShape& b) { return key(a) == key(b); };
  shapes.erase(std::unique(shapes.begin(), shapes.end(), same), shapes.end());
  return shapes;
}

std::vector<v1::ProbeStep> MakeProbes(const RankRuntime::Options& options, const Dataset& dataset,
                                      int64_t samples_max) {
  const int64_t record = LongestRecord(dataset);
  int64_t longest = record + kTemplateTokensMax;
  if (options.sample_tokens_max > 0) longest = std::min(longest, options.sample_tokens_max);
  std::vector<v1::ProbeStep> probes;
  for (const StepShape& shape :
       LargestShapes(options.plan, longest, std::max<int64_t>(1, samples_max))) {
    int64_t elements_max = RecordElementsMax(record);
    StepLayout layout = LayoutOf(shape, options.tensors, elements_max);
    while (options.arena_bytes > 0 && layout.bytes > options.arena_bytes && elements_max > 0) {
      elements_max /= 2;
      layout = LayoutOf(shape, options.tensors, elements_max);
    }
    probes.push_back(Describe(layout, options.tensors));
  }
  return probes;
}

}  // namespace odb
