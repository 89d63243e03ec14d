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

SampleResult Preprocess(const Dataset& dataset, const Transform& transform, int64_t index,
                        uint64_t seed, Epoch epoch, std::string* buffer) {
  const RecordRef ref = dataset.ref(index);
  const auto raw = dataset.Read(ref, buffer);
  SampleResult result;
  if (raw.ok()) {
    result = transform.Apply(ref, *raw, SampleSeed(seed, epoch, ref.id()));
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

}  // namespace odb
