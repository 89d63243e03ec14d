#include "server/delivery/tensor_writer.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
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

template <typename T>
void FillAs(const std::string& padding, int64_t bytes, char* out) {
  T value;
  std::memcpy(&value, padding.data(), sizeof(T));
  std::fill_n(reinterpret_cast<T*>(out), bytes / static_cast<int64_t>(sizeof(T)), value);
}

// `bytes` of the element `padding`; returns what lies behind them.
char* Fill(const std::string& padding, int64_t bytes, char* out) {
  switch (padding.size()) {
    case 1:
      FillAs<uint8_t>(padding, bytes, out);
      break;
    case 2:
      FillAs<uint16_t>(padding, bytes, out);
      break;
    case 4:
      FillAs<uint32_t>(padding, bytes, out);
      break;
    default:
      FillAs<uint64_t>(padding, bytes, out);
  }
  return out + bytes;
}

// Copies one sample's tensor into its row of a padded one.
class PaddedCopy {
 public:
  // `to` are the sizes of the row, none smaller than those of the tensor.
  PaddedCopy(const ExtraTensorSpec& spec, PaddingSide side, const NamedTensor& tensor,
             absl::Span<const int64_t> to)
      : spec_(spec),
        is_left_(side == PaddingSide::kLeft && spec.is_per_token()),
        from_(tensor.shape),
        to_(to),
        source_(tensor.bytes.data()) {}

  // The block of `axis` and those below it; returns what lies behind it.
  char* Write(size_t axis, char* out) {
    if (from_.subspan(axis) == to_.subspan(axis)) return Copy(BlockBytes(axis), out);
    const int64_t padding = (to_[axis] - from_[axis]) * BlockBytes(axis + 1);
    if (axis == 0 && is_left_) out = Fill(spec_.padding, padding, out);
    if (from_.subspan(axis + 1) == to_.subspan(axis + 1)) {
      out = Copy(from_[axis] * BlockBytes(axis + 1), out);
    } else {
      for (int64_t i = 0; i < from_[axis]; ++i) out = Write(axis + 1, out);
    }
    if (axis == 0 && is_left_) return out;
    return Fill(spec_.padding, padding, out);
  }

 private:
  int64_t BlockBytes(size_t axis) const {
    int64_t bytes = ElementBytes(spec_.type);
    for (const int64_t size : to_.subspan(axis)) bytes *= size;
    return bytes;
  }

  char* Copy(int64_t bytes, char* out) {
    out = std::copy_n(source_, bytes, out);
    source_ += bytes;
    return out;
  }

  const ExtraTensorSpec& spec_;
  const bool is_left_;
  const absl::Span<const int64_t> from_;
  const absl::Span<const int64_t> to_;
  const char* source_;
};

void WriteConcatenated(absl::Span<const Sample* const> samples, size_t index, char* out,
                       char* offsets_out) {
  auto* offset = reinterpret_cast<int64_t*>(offsets_out);
  *offset = 0;
  for (const Sample* const sample : samples) {
    const NamedTensor& tensor = sample->extras[index];
    out = std::copy(tensor.bytes.begin(), tensor.bytes.end(), out);
    offset[1] = offset[0] + tensor.shape.front();
    ++offset;
  }
}

// `next` is the place of the first of them in the layout.
void WriteExtras(absl::Span<const Sample* const> samples, const StepLayout& layout,
                 const TensorFormat& format, size_t next, char* destination) {
  for (size_t i = 0; i < format.extras.size(); ++i) {
    const ExtraTensorSpec& spec = format.extras[i];
    const TensorPlace& place = layout.tensors[next++];
    char* out = destination + place.offset;
    if (spec.layout == ExtraLayout::kConcatenate) {
      WriteConcatenated(samples, i, out, destination + layout.tensors[next++].offset);
      continue;
    }
    const absl::Span<const int64_t> row = absl::MakeConstSpan(place.shape).subspan(1);
    for (const Sample* const sample : samples) {
      out = PaddedCopy(spec, format.padding, sample->extras[i], row).Write(0, out);
    }
  }
}

bool Fits(const NamedTensor& tensor, const ExtraTensorSpec& spec, int64_t num_tokens) {
  if (tensor.name != spec.name || tensor.type != spec.type) return false;
  if (tensor.shape.size() != spec.shape.size()) return false;
  int64_t bytes = ElementBytes(spec.type);
  for (size_t axis = 0; axis < spec.shape.size(); ++axis) {
    const int64_t wanted = spec.shape[axis] == kTokenSize ? num_tokens : spec.shape[axis];
    if (tensor.shape[axis] < 0 || (wanted != kAnySize && tensor.shape[axis] != wanted))
      return false;
    bytes *= tensor.shape[axis];
  }
  return static_cast<int64_t>(tensor.bytes.size()) == bytes;
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
  WriteExtras(samples, layout, format, format.mask == MaskType::kNone ? 2 : 3, destination);
}

absl::Status CheckExtras(const Sample& sample, const TensorFormat& format) {
  const auto refuse = [&sample](absl::string_view what) {
    return absl::InternalError(
        absl::StrCat("sample ", sample.id.source, ":", sample.id.key, " ", what));
  };
  if (sample.extras.size() != format.extras.size()) {
    return refuse(absl::StrCat("has ", sample.extras.size(), " extra tensors, the job ",
                               format.extras.size()));
  }
  for (size_t i = 0; i < format.extras.size(); ++i) {
    if (Fits(sample.extras[i], format.extras[i], sample.length())) continue;
    return refuse(absl::StrCat("has a tensor \"", sample.extras[i].name,
                               "\" that is not as the job's \"", format.extras[i].name, "\""));
  }
  return absl::OkStatus();
}

}  // namespace odb
