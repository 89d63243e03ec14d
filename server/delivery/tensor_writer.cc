#include "server/delivery/tensor_writer.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace odb {
namespace {

// One row of `length` elements: the values and, before or behind them, the padding. Returns the
// start of the next row.
template <typename T>
T* WriteRow(absl::Span<const int32_t> values, int64_t length, PaddingSide side, T padding, T* row) {
  T* const end = row + length;
  if (side == PaddingSide::kLeft) row = std::fill_n(row, end - row - values.size(), padding);
  row = std::copy(values.begin(), values.end(), row);
  std::fill(row, end, padding);
  return end;
}

template <typename T>
void WriteIds(absl::Span<const Sample* const> samples, const StepLayout& layout,
              const TensorFormat& format, char* destination) {
  T* row = reinterpret_cast<T*>(destination);
  for (const Sample* const sample : samples) {
    row = WriteRow<T>(sample->input_ids, layout.shape.length, format.padding, format.pad_token_id,
                      row);
  }
}

void WriteLabels(absl::Span<const Sample* const> samples, const StepLayout& layout,
                 const TensorFormat& format, char* destination) {
  const bool first_is_ignored =
      format.padding == PaddingSide::kLeft && format.label_shift == LabelShift::kModel;
  auto* row = reinterpret_cast<int64_t*>(destination);
  for (const Sample* const sample : samples) {
    INVARIANT(sample->labels.size() == sample->input_ids.size(), "a sample without labels");
    absl::Span<const int32_t> labels = sample->labels;
    // One more element of padding in its place: both are kIgnoredLabel.
    if (first_is_ignored) labels.remove_prefix(1);
    row = WriteRow<int64_t>(labels, layout.shape.length, format.padding, kIgnoredLabel, row);
  }
}

template <typename T>
void WriteMask(absl::Span<const Sample* const> samples, const StepLayout& layout,
               const TensorFormat& format, char* destination) {
  T* row = reinterpret_cast<T*>(destination);
  for (const Sample* const sample : samples) {
    const int64_t padding = layout.shape.length - sample->length();
    const bool is_left = format.padding == PaddingSide::kLeft;
    row = std::fill_n(row, is_left ? padding : sample->length(), T{!is_left});
    row = std::fill_n(row, is_left ? sample->length() : padding, T{is_left});
  }
}

}  // namespace

void WriteTensors(absl::Span<const Sample* const> samples, const StepLayout& layout,
                  const TensorFormat& format, char* destination) {
  INVARIANT(static_cast<int64_t>(samples.size()) == layout.shape.rows, "rows without samples");
  for (const Sample* const sample : samples) {
    INVARIANT(sample->length() <= layout.shape.length, "a sample longer than its step");
  }
  const auto at = [&](size_t tensor) { return destination + layout.tensors[tensor].offset; };
  if (format.ids == ElementType::kInt32) {
    WriteIds<int32_t>(samples, layout, format, at(0));
  } else {
    WriteIds<int64_t>(samples, layout, format, at(0));
  }
  WriteLabels(samples, layout, format, at(1));
  if (format.mask == MaskType::kBool) WriteMask<uint8_t>(samples, layout, format, at(2));
  if (format.mask == MaskType::kInt64) WriteMask<int64_t>(samples, layout, format, at(2));
}

absl::Status CheckHasLayout(const Sample& sample) {
  if (sample.extras.empty()) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(
      "sample ", sample.id.source, ":", sample.id.key, " has the tensor \"",
      sample.extras.front().name, "\"; steps carry input_ids, labels and attention_mask only"));
}

}  // namespace odb
