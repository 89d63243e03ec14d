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

// What becomes of a record that could not be read.
SampleResult Unread(const RecordRef& ref, const absl::Status& status) {
  const bool too_long = status.code() == absl::StatusCode::kResourceExhausted;
  return Quarantined(ref,
                     too_long ? QuarantineReason::kRecordTooLong : QuarantineReason::kUnreadable,
                     std::string(status.message()));
}

// Says in an entry what the dataset knows of its record.
SampleResult Noted(const Dataset& dataset, const RecordRef& ref, SampleResult result) {
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
  const auto raw = dataset.Read(ref, buffer);
  if (!raw.ok()) return Noted(dataset, ref, Unread(ref, raw.status()));
  return Noted(dataset, ref, transform.Apply(ref, *raw, SampleSeed(seed, epoch, ref.id())));
}

SampleResult PreprocessInPlace(const Dataset& dataset, const Transform& transform, int64_t index,
                               uint64_t seed, Epoch epoch, std::string* buffer) {
  const RecordRef ref = dataset.ref(index);
  const auto viewed = dataset.View(ref);
  if (viewed.has_value()) {
    SampleResult result = transform.ApplyInPlace(ref, *viewed, SampleSeed(seed, epoch, ref.id()));
    if (dataset.IsStillThere(ref)) return Noted(dataset, ref, std::move(result));
  }
  return Preprocess(dataset, transform, index, seed, epoch, buffer);
}

}  // namespace odb
