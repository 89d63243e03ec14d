#include "server/delivery/tensor_writer.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "server/delivery/streaming_stores.h"
#include "server/delivery/tensor_output.h"

namespace odb {
namespace {

// Steps from this size on are out of the cache before a trainer reads them, so they are written
// around it.
constexpr int64_t kStreamedBytes = int64_t{16} << 20;

// One row of `length` elements: the values and, before or behind them, the padding.
template <typename T>
void WriteRow(absl::Span<const int32_t> values, int64_t length, PaddingSide side, T padding,
              TensorOutput* out) {
  const int64_t num_padding = length - static_cast<int64_t>(values.size());
  if (side == PaddingSide::kLeft) out->Fill<T>(num_padding, padding);
  out->Convert<T>(values);
  if (side == PaddingSide::kRight) out->Fill<T>(num_padding, padding);
}

template <typename T>
void WriteIds(absl::Span<const Sample* const> samples, const StepLayout& layout,
              const TensorFormat& format, TensorOutput* out) {
  for (const Sample* const sample : samples) {
    WriteRow<T>(sample->ids(), layout.shape.length, format.padding, format.pad_token_id, out);
  }
}

void WriteLabels(absl::Span<const Sample* const> samples, const StepLayout& layout,
                 const TensorFormat& format, TensorOutput* out) {
  const bool first_is_ignored =
      format.padding == PaddingSide::kLeft && format.label_shift == LabelShift::kModel;
  for (const Sample* const sample : samples) {
    absl::Span<const int32_t> labels = sample->label_values();
    INVARIANT(labels.size() == sample->ids().size(), "a token without its label");
    // One more element of padding in its place: both are kIgnoredLabel.
    if (first_is_ignored) labels.remove_prefix(1);
    WriteRow<int64_t>(labels, layout.shape.length, format.padding, kIgnoredLabel, out);
  }
}

template <typename T>
void WriteMask(absl::Span<const Sample* const> samples, const StepLayout& layout,
               const TensorFormat& format, TensorOutput* out) {
  for (const Sample* const sample : samples) {
    const int64_t padding = layout.shape.length - sample->length();
    const bool is_left = format.padding == PaddingSide::kLeft;
    out->Fill<T>(is_left ? padding : sample->length(), T{!is_left});
    out->Fill<T>(is_left ? sample->length() : padding, T{is_left});
  }
}

void WritePositions(absl::Span<const Sample* const> samples, const StepLayout& layout,
                    const TensorFormat& format, TensorOutput* out) {
  for (const Sample* const sample : samples) {
    const int64_t padding = layout.shape.length - sample->length();
    if (format.padding == PaddingSide::kLeft) out->Fill<int64_t>(padding, 0);
    out->Count(sample->length());
    if (format.padding == PaddingSide::kRight) out->Fill<int64_t>(padding, sample->length() - 1);
  }
}

// Copies one sample's tensor into its row of a padded one.
class PaddedCopy {
 public:
  // `to` are the sizes of the row, none smaller than those of the tensor.
  PaddedCopy(const ExtraTensorSpec& spec, PaddingSide side, const NamedTensor& tensor,
             absl::Span<const int64_t> to, TensorOutput* out)
      : spec_(spec),
        is_left_(side == PaddingSide::kLeft && spec.is_per_token()),
        from_(tensor.shape),
        to_(to),
        source_(tensor.bytes.data()),
        out_(out) {}

  // The block of `axis` and those below it.
  void Write(size_t axis) {
    if (from_.subspan(axis) == to_.subspan(axis)) return Copy(BlockBytes(axis));
    const int64_t padding = (to_[axis] - from_[axis]) * BlockBytes(axis + 1);
    const bool is_first = axis == 0 && is_left_;
    if (is_first) out_->FillElements(spec_.padding, padding);
    if (from_.subspan(axis + 1) == to_.subspan(axis + 1)) {
      Copy(from_[axis] * BlockBytes(axis + 1));
    } else {
      for (int64_t i = 0; i < from_[axis]; ++i) Write(axis + 1);
    }
    if (!is_first) out_->FillElements(spec_.padding, padding);
  }

 private:
  int64_t BlockBytes(size_t axis) const {
    int64_t bytes = ElementBytes(spec_.type);
    for (const int64_t size : to_.subspan(axis)) bytes *= size;
    return bytes;
  }

  void Copy(int64_t bytes) {
    out_->Copy(source_, bytes);
    source_ += bytes;
  }

  const ExtraTensorSpec& spec_;
  const bool is_left_;
  const absl::Span<const int64_t> from_;
  const absl::Span<const int64_t> to_;
  const char* source_;
  TensorOutput* const out_;
};

void WriteConcatenated(absl::Span<const Sample* const> samples, size_t index, TensorOutput* out,
                       TensorOutput* offsets) {
  int64_t offset = 0;
  offsets->Fill<int64_t>(1, offset);
  for (const Sample* const sample : samples) {
    const NamedTensor& tensor = sample->extras[index];
    out->Copy(tensor.bytes.data(), static_cast<int64_t>(tensor.bytes.size()));
    offset += tensor.shape.front();
    offsets->Fill<int64_t>(1, offset);
  }
}

// `next` is the place of the first of them in the layout. Returns the bytes written.
int64_t WriteExtras(absl::Span<const Sample* const> samples, const StepLayout& layout,
                    const TensorFormat& format, size_t next, Stores stores, char* destination) {
  int64_t written = 0;
  for (size_t i = 0; i < format.extras.size(); ++i) {
    const ExtraTensorSpec& spec = format.extras[i];
    const TensorPlace& place = layout.tensors[next++];
    TensorOutput out(destination + place.offset, stores);
    if (spec.layout == ExtraLayout::kConcatenate) {
      TensorOutput offsets(destination + layout.tensors[next++].offset, stores);
      WriteConcatenated(samples, i, &out, &offsets);
      written += offsets.written_bytes();
    } else {
      const absl::Span<const int64_t> row = absl::MakeConstSpan(place.shape).subspan(1);
      for (const Sample* const sample : samples) {
        PaddedCopy(spec, format.padding, sample->extras[i], row, &out).Write(0);
      }
    }
    written += out.written_bytes();
  }
  return written;
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

int64_t WriteTensors(absl::Span<const Sample* const> samples, const StepLayout& layout,
                     const TensorFormat& format, char* destination) {
  INVARIANT(static_cast<int64_t>(samples.size()) == layout.shape.rows, "rows without samples");
  for (const Sample* const sample : samples) {
    INVARIANT(sample->length() <= layout.shape.length, "a sample longer than its step");
  }
  const Stores stores = layout.bytes >= kStreamedBytes ? Stores::kStreaming : Stores::kCached;
  const auto at = [&](size_t tensor) {
    return TensorOutput(destination + layout.tensors[tensor].offset, stores);
  };
  TensorOutput ids = at(0);
  if (format.ids == ElementType::kInt32) {
    WriteIds<int32_t>(samples, layout, format, &ids);
  } else {
    WriteIds<int64_t>(samples, layout, format, &ids);
  }
  TensorOutput labels = at(1);
  WriteLabels(samples, layout, format, &labels);
  int64_t written = ids.written_bytes() + labels.written_bytes();
  if (format.mask != MaskType::kNone) {
    TensorOutput mask = at(2);
    if (format.mask == MaskType::kBool) WriteMask<uint8_t>(samples, layout, format, &mask);
    if (format.mask == MaskType::kInt64) WriteMask<int64_t>(samples, layout, format, &mask);
    written += mask.written_bytes();
  }
  const auto num_token_tensors = static_cast<size_t>(NumTokenTensors(format));
  if (format.position_ids) {
    TensorOutput positions = at(num_token_tensors - 1);
    WritePositions(samples, layout, format, &positions);
    written += positions.written_bytes();
  }
  written += WriteExtras(samples, layout, format, num_token_tensors, stores, destination);
  if (stores == Stores::kStreaming) FlushStores();
  return written;
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
