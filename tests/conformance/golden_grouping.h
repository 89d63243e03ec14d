#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/conformance/package_round.h"

namespace odb {

// One line of testdata/grouping_golden.jsonl.
struct GoldenGrouping {
  int64_t number = 0;  // "case"
  PackageRoundInput input;
  std::vector<std::vector<int64_t>> ids;   // [rank][position in the rank's samples]
  std::vector<PackageRankOutput> outputs;  // [rank], with positions for ids
};

// Errors: NotFound if the file cannot be read; InvalidArgument naming the line that is not as its
// README says.
absl::StatusOr<std::vector<GoldenGrouping>> ReadGoldenGroupings(const std::string& path);

}  // namespace odb
