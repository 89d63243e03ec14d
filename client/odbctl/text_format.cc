#include "client/odbctl/text_format.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace odb {
namespace {

bool StartsCharacter(char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }

}  // namespace

std::string WithCommas(int64_t number) {
  std::string digits = absl::StrCat(number);
  const size_t first = number < 0 ? 1 : 0;
  for (size_t at = digits.size(); at > first + 3;) {
    at -= 3;
    digits.insert(at, ",");
  }
  return digits;
}

std::string Percent(double share) { return absl::StrFormat("%.1f %%", share * 100); }

std::string Clock(double seconds) {
  const auto whole = static_cast<int64_t>(seconds);
  return absl::StrFormat("%d:%02d:%02d", whole / 3600, whole / 60 % 60, whole % 60);
}

std::string Gibibytes(int64_t bytes) {
  const double value = static_cast<double>(bytes) / (int64_t{1} << 30);
  if (bytes == 0) return "0";
  if (value < 0.005) return "<0.01";
  return value < 0.95 ? absl::StrFormat("%.2f", value) : absl::StrFormat("%.1f", value);
}

std::string TimeSpan(int64_t microseconds) {
  if (microseconds < 1000) return absl::StrCat(microseconds, " us");
  if (microseconds < 100'000) return absl::StrCat(microseconds / 1000, " ms");
  const double seconds = static_cast<double>(microseconds) / 1e6;
  return seconds < 100 ? absl::StrFormat("%.1f s", seconds) : Clock(seconds);
}

size_t Columns(absl::string_view text) {
  size_t columns = 0;
  for (const char c : text) columns += StartsCharacter(c) ? 1 : 0;
  return columns;
}

std::string Cut(absl::string_view text, size_t columns) {
  if (Columns(text) <= columns) return std::string(text);
  constexpr absl::string_view kMark = "...";
  const size_t keep = columns < kMark.size() ? 0 : columns - kMark.size();
  size_t at = 0;
  for (size_t seen = 0; at < text.size(); ++at) {
    if (StartsCharacter(text[at]) && seen++ == keep) break;
  }
  return absl::StrCat(text.substr(0, at), kMark.substr(0, columns));
}

}  // namespace odb
