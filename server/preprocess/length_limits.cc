#include "server/preprocess/length_limits.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "server/preprocess/transform.h"

namespace odb {
namespace {

void Truncate(size_t length, Sample* sample) {
  if (sample->mapped_ids.empty()) {
    sample->input_ids.resize(length);
  } else {
    sample->mapped_ids = sample->mapped_ids.first(length);
  }
  if (!sample->labels.empty()) sample->labels.resize(length);
}

}  // namespace

uint64_t LengthLimits::digest() const {
  uint64_t digest = HashCombine(0, static_cast<uint64_t>(max_length));
  digest = HashCombine(digest, static_cast<uint64_t>(over_length));
  return HashCombine(digest, static_cast<uint64_t>(label_shift));
}

SampleResult FitLength(const RecordRef& ref, const LengthLimits& limits, Sample sample) {
  if (sample.length() == 0) return Quarantined(ref, QuarantineReason::kEmptySample, "");
  const int32_t length = sample.length();
  if (limits.max_length > 0 && length > limits.max_length) {
    switch (limits.over_length) {
      case OverLengthPolicy::kQuarantine:
        return Quarantined(ref, QuarantineReason::kOverLength,
                           absl::StrCat(length, " tokens, max_length is ", limits.max_length));
      case OverLengthPolicy::kTruncate:
        Truncate(static_cast<size_t>(limits.max_length), &sample);
        break;
      case OverLengthPolicy::kAlone:
        sample.over_length = true;
        break;
    }
  }
  sample.loss_tokens = CountLossTokens(sample, limits.label_shift);
  if (sample.loss_tokens == 0) {
    return Quarantined(ref, QuarantineReason::kNoLossTokens,
                       length > sample.length() ? absl::StrCat("the first ", sample.length(),
                                                               " of ", length, " tokens hold none")
                                                : absl::StrCat("none of ", length, " tokens"));
  }
  return sample;
}

}  // namespace odb
