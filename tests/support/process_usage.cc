#include "tests/support/process_usage.h"

#include <filesystem>
#include <fstream>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace odb {
namespace {

// The number of the line "<key>: <number> ..."; -1: there is none.
int64_t NumberOf(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!absl::StartsWith(line, key + ":")) continue;
    const std::vector<std::string> words =
        absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
    int64_t number = 0;
    if (words.size() > 1 && absl::SimpleAtoi(words[1], &number)) return number;
  }
  return -1;
}

}  // namespace

absl::StatusOr<ProcessUsage> ReadUsage(pid_t pid) {
  const std::string folder = absl::StrCat("/proc/", pid);
  ProcessUsage usage;
  usage.pss = NumberOf(folder + "/smaps_rollup", "Pss") * 1024;
  usage.anon = NumberOf(folder + "/smaps_rollup", "Pss_Anon") * 1024;
  usage.threads = NumberOf(folder + "/status", "Threads");
  std::error_code error;
  for (auto entry = std::filesystem::directory_iterator(folder + "/fd", error);
       !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    ++usage.descriptors;
  }
  if (error || usage.pss < 0 || usage.anon < 0 || usage.threads < 0) {
    return absl::NotFoundError(absl::StrCat("process ", pid, " cannot be read in /proc"));
  }
  return usage;
}

}  // namespace odb
