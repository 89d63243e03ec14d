#include "server/delivery/step_layout.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "server/delivery/arena.h"

namespace odb {
namespace {

constexpr const char* kTensorNames[] = {"input_ids", "labels", "attention_mask"};
constexpr int64_t kNumTensors = 3;
constexpr int64_t kElementBytes = sizeof(int64_t);

void WriteRow(const std::vector<int32_t>& values, int64_t length, int64_t padding, int64_t* row) {
  std::copy(values.begin(), values.end(), row);
  std::fill(row + values.size(), row + length, padding);
}

}  // namespace

int64_t StepLayout::tensor_bytes() const {
  const int64_t bytes = rows * length * kElementBytes;
  return (bytes + Arena::kAlignment - 1) / Arena::kAlignment * Arena::kAlignment;
}

int64_t StepLayout::bytes() const { return kNumTensors * tensor_bytes(); }

int64_t StepBytesMax(int64_t padded_tokens) { return StepLayout{1, padded_tokens}.bytes(); }

void WriteTensors(absl::Span<const Sample* const> samples, const StepLayout& layout,
                  int32_t pad_token_id, char* destination) {
  INVARIANT(static_cast<int64_t>(samples.size()) == layout.rows, "rows without samples");
  auto* input_ids = reinterpret_cast<int64_t*>(destination);
  auto* labels = reinterpret_cast<int64_t*>(destination + layout.tensor_bytes());
  auto* attention_mask = reinterpret_cast<int64_t*>(destination + 2 * layout.tensor_bytes());
  for (const Sample* const sample : samples) {
    INVARIANT(sample->length() <= layout.length, "a sample longer than its step");
    INVARIANT(sample->labels.size() == sample->input_ids.size(), "a sample without labels");
    WriteRow(sample->input_ids, layout.length, pad_token_id, input_ids);
    WriteRow(sample->labels, layout.length, kIgnoredLabel, labels);
    std::fill(attention_mask, attention_mask + sample->length(), 1);
    std::fill(attention_mask + sample->length(), attention_mask + layout.length, 0);
    input_ids += layout.length;
    labels += layout.length;
    attention_mask += layout.length;
  }
}

void DescribeTensors(const StepLayout& layout, int64_t offset, v1::Step* step) {
  for (int64_t i = 0; i < kNumTensors; ++i) {
    v1::Tensor* const tensor = step->add_tensors();
    tensor->set_name(kTensorNames[i]);
    tensor->set_dtype(v1::DTYPE_INT64);
    tensor->add_shape(layout.rows);
    tensor->add_shape(layout.length);
    tensor->set_offset(static_cast<uint64_t>(offset + i * layout.tensor_bytes()));
    tensor->set_bytes(static_cast<uint64_t>(layout.rows * layout.length * kElementBytes));
  }
}

absl::Status CheckHasLayout(const Sample& sample) {
  if (sample.extras.empty()) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(
      "sample ", sample.id.source, ":", sample.id.key, " has the tensor \"",
      sample.extras.front().name, "\"; steps carry input_ids, labels and attention_mask only"));
}

}  // namespace odb
