#include "server/daemon/nearest_name.h"

#include <algorithm>

#include "absl/strings/match.h"

namespace odb {

int EditDistance(absl::string_view a, absl::string_view b) {
  const size_t columns = b.size() + 1;
  std::vector<int> before_last(columns), last(columns), row(columns);
  for (size_t j = 0; j < columns; ++j) last[j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j < columns; ++j) {
      row[j] =
          std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before_last[j - 2] + 1);
      }
    }
    std::swap(before_last, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

std::string NearestName(absl::string_view word, const std::vector<std::string>& names) {
  std::string nearest;
  int nearest_distance = std::max(2, static_cast<int>(word.size()) / 3) + 1;
  for (const std::string& name : names) {
    int distance = EditDistance(word, name);
    // `budget` means token_budget, however long the rest is.
    if (word.size() >= 4 && absl::StrContains(name, word)) distance = std::min(distance, 1);
    if (distance < nearest_distance) {
      nearest_distance = distance;
      nearest = name;
    }
  }
  return nearest;
}

}  // namespace odb
