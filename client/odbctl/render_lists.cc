#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/odbctl/render.h"
#include "client/odbctl/text_format.h"

namespace odb {
namespace {

std::string ShareLine(const std::string& name, double fill, double real, const std::string& more) {
  return absl::StrFormat("  %-20s %8s  %11s  %s\n", name, Percent(fill), Percent(real), more);
}

}  // namespace

bool CoverageIsBroken(const v1::Coverage& coverage) {
  return coverage.finished() && (coverage.missing() > 0 || coverage.duplicates() > 0);
}

std::string RenderCoverage(const v1::Coverage& coverage) {
  const bool is_train = coverage.stream().empty() || coverage.stream() == "train";
  std::string text =
      absl::StrCat(is_train ? "" : coverage.stream(), is_train ? "" : ", ", "epoch ",
                   coverage.epoch(), ": ", coverage.emitted(), " of ", coverage.records());
  absl::StrAppend(&text, coverage.duplicates() == 0
                             ? ", each once"
                             : absl::StrCat(", ", coverage.duplicates(), " more than once"));
  const std::pair<int64_t, const char*> others[] = {
      {coverage.quarantined(), " quarantined"},
      {coverage.left_over(), " left over"},
      {coverage.finished() ? coverage.missing() : 0, " MISSING"},
  };
  for (const auto& [count, what] : others) {
    if (count > 0) absl::StrAppend(&text, ", ", count, what);
  }
  absl::StrAppend(&text, coverage.finished() ? "\n" : " (still running)\n");

  absl::StrAppend(&text, "                           fill  real tokens\n");
  text += ShareLine("odbd", coverage.fill(), coverage.real_token_share(),
                    absl::StrCat(WithCommas(coverage.steps()), " steps, ",
                                 WithCommas(coverage.idle_slots()), " idle"));
  text += ShareLine(absl::StrCat("fixed batch of ", coverage.fixed_batch_size()),
                    coverage.fixed_batch_fill(), coverage.fixed_batch_real_token_share(),
                    "same data and budget");
  return text;
}

std::string RenderQuarantine(const v1::ListQuarantineReply& reply) {
  if (reply.total() == 0) return "nothing is quarantined\n";
  std::vector<std::pair<std::string, int64_t>> reasons;
  for (const v1::ReasonCount& entry : reply.by_reason()) {
    reasons.emplace_back(entry.reason(), entry.count());
  }
  std::sort(reasons.begin(), reasons.end(), [](const auto& a, const auto& b) {
    return a.second != b.second ? a.second > b.second : a.first < b.first;
  });
  std::string text = absl::StrCat(WithCommas(reply.total()), " quarantined");
  const char* before = ": ";
  for (const auto& [reason, count] : reasons) {
    absl::StrAppend(&text, before, WithCommas(count), " ", reason);
    before = ", ";
  }
  absl::StrAppend(&text, "\n");
  for (const v1::QuarantineItem& item : reply.items()) {
    const bool is_train = item.stream().empty() || item.stream() == "train";
    absl::StrAppend(&text, item.file(), ":", item.line(), " (byte ", WithCommas(item.byte()), ") ",
                    is_train ? "" : absl::StrCat("of ", item.stream(), ", "), item.reason(),
                    item.detail().empty() ? "" : ": ", item.detail(), "\n");
  }
  const int64_t more = reply.total() - reply.items_size();
  if (more > 0) absl::StrAppend(&text, "and ", WithCommas(more), " more (--limit)\n");
  return text;
}

}  // namespace odb
