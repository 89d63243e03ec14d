#include "server/delivery/stand_in.h"

#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/ids.h"

namespace odb {

absl::StatusOr<Sample> ChooseStandIn(const Dataset& dataset, const Transform& transform,
                                     uint64_t seed) {
  std::optional<Sample> shortest;
  std::string first_bad;
  std::string buffer;
  for (int64_t index = 0; index < dataset.size(); ++index) {
    if (index >= kStandInRecords && shortest.has_value()) break;
    SampleResult result = Preprocess(dataset, transform, index, seed, Epoch(0), &buffer);
    if (const auto* entry = std::get_if<QuarantineEntry>(&result)) {
      if (first_bad.empty()) first_bad = entry->ToString();
      continue;
    }
    Sample& sample = std::get<Sample>(result);
    if (sample.loss_tokens < 1) continue;
    if (!shortest.has_value() || sample.length() < shortest->length()) shortest = std::move(sample);
  }
  if (shortest.has_value()) return *std::move(shortest);
  std::string text = absl::StrCat("none of the ", dataset.size(), " records gives a valid sample");
  if (!first_bad.empty()) absl::StrAppend(&text, "; the first: ", first_bad);
  return absl::FailedPreconditionError(text);
}

}  // namespace odb
