#include "server/preprocess/transform.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/hash.h"

namespace odb {

QuarantineEntry Quarantined(const RecordRef& ref, QuarantineReason reason, std::string detail) {
  QuarantineEntry entry;
  entry.id = ref.id();
  entry.line = ref.line;
  entry.byte = ref.offset;
  entry.reason = reason;
  entry.detail = std::move(detail);
  return entry;
}

namespace {

// `raw` is what reading the record at `ref` came to.
SampleResult Transformed(const Dataset& dataset, const Transform& transform, const RecordRef& ref,
                         const absl::StatusOr<absl::string_view>& raw, uint64_t sample_seed) {
  SampleResult result;
  if (raw.ok()) {
    result = transform.Apply(ref, *raw, sample_seed);
  } else {
    const bool too_long = raw.status().code() == absl::StatusCode::kResourceExhausted;
    result = Quarantined(
        ref, too_long ? QuarantineReason::kRecordTooLong : QuarantineReason::kUnreadable,
        std::string(raw.status().message()));
  }
  if (auto* entry = std::get_if<QuarantineEntry>(&result)) {
    entry->file = dataset.name(ref.source);
    const std::string note = dataset.Note(ref);
    if (!note.empty()) absl::StrAppend(&entry->detail, entry->detail.empty() ? "" : "; ", note);
  }
  return result;
}

}  // namespace

SampleResult Preprocess(const Dataset& dataset, const Transform& transform, int64_t index,
                        uint64_t seed, Epoch epoch, std::string* buffer) {
  const RecordRef ref = dataset.ref(index);
  return Transformed(dataset, transform, ref, dataset.Read(ref, buffer),
                     SampleSeed(seed, epoch, ref.id()));
}

SampleResult PreprocessInPlace(const Dataset& dataset, const Transform& transform, int64_t index,
                               uint64_t seed, Epoch epoch, std::string* buffer) {
  const RecordRef ref = dataset.ref(index);
  const uint64_t sample_seed = SampleSeed(seed, epoch, ref.id());
  const auto viewed = dataset.View(ref, buffer);
  SampleResult result = Transformed(dataset, transform, ref, viewed, sample_seed);
  if (!viewed.ok() || dataset.IsStillThere(ref, *viewed)) return result;
  return Transformed(dataset, transform, ref, dataset.Read(ref, buffer), sample_seed);
}

}  // namespace odb
