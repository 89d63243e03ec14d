#include "base/os/control_group.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace odb {
namespace {

// Version 1 says "no limit" with the largest number of pages.
constexpr int64_t kNoLimitFrom = int64_t{1} << 60;

std::string ReadText(const std::string& path) {
  std::ifstream file(path);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// The first word of a file as a number; -1: there is none ("max", no file).
int64_t ReadNumber(const std::string& path) {
  const std::vector<std::string> words =
      absl::StrSplit(ReadText(path), absl::ByAnyChar(" \n"), absl::SkipEmpty());
  int64_t number = -1;
  if (words.empty() || !absl::SimpleAtoi(words[0], &number)) return -1;
  return number;
}

// The sum of the lines "<key> <number>" of a file with one of two keys.
int64_t SumOfKeys(const std::string& path, absl::string_view first, absl::string_view second) {
  int64_t sum = 0;
  for (const absl::string_view line : absl::StrSplit(ReadText(path), '\n')) {
    const std::vector<absl::string_view> words = absl::StrSplit(line, ' ');
    int64_t number = 0;
    if (words.size() != 2 || (words[0] != first && words[0] != second)) continue;
    if (absl::SimpleAtoi(words[1], &number)) sum += number;
  }
  return sum;
}

// /proc writes a space in a path as \040.
std::string Unescaped(absl::string_view text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool is_octal = text[i] == '\\' && i + 3 < text.size();
    if (!is_octal) {
      plain += text[i];
      continue;
    }
    plain +=
        static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + text[i + 3] - '0');
    i += 3;
  }
  return plain;
}

bool ListHas(absl::string_view list, absl::string_view name) {
  const std::vector<absl::string_view> items = absl::StrSplit(list, ',');
  return std::find(items.begin(), items.end(), name) != items.end();
}

// The group of this process in version 1's hierarchy of `controller`, or (empty) in version 2's;
// empty if it is in none. A line: "4:memory:/docker/17", "0::/system.slice/odbd.service".
std::string GroupOf(const std::string& text, absl::string_view controller) {
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const std::vector<absl::string_view> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3) continue;
    const bool is_it =
        controller.empty() ? parts[0] == "0" && parts[1].empty() : ListHas(parts[1], controller);
    if (is_it) return std::string(parts[2]);
  }
  return "";
}

// Where a hierarchy is mounted, and which of its groups is there. Empty: nowhere.
struct Mount {
  std::string group;
  std::string folder;
};

// A line: "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory".
Mount FindMount(const std::string& mountinfo, absl::string_view controller) {
  for (const absl::string_view line : absl::StrSplit(mountinfo, '\n')) {
    const std::pair<absl::string_view, absl::string_view> halves = absl::StrSplit(line, " - ");
    const std::vector<absl::string_view> left = absl::StrSplit(halves.first, ' ');
    const std::vector<absl::string_view> right = absl::StrSplit(halves.second, ' ');
    if (left.size() < 5 || right.size() < 3) continue;
    const bool is_it = controller.empty() ? right[0] == "cgroup2"
                                          : right[0] == "cgroup" && ListHas(right[2], controller);
    if (is_it) return {Unescaped(left[3]), Unescaped(left[4])};
  }
  return {};
}

// The folders of the process's group and of all groups above it that can be seen.
std::vector<std::string> Folders(const std::string& root, absl::string_view controller) {
  const std::string group = GroupOf(ReadText(absl::StrCat(root, "/proc/self/cgroup")), controller);
  const Mount mount = FindMount(ReadText(absl::StrCat(root, "/proc/self/mountinfo")), controller);
  if (group.empty() || mount.folder.empty()) return {};
  // In a container the mount shows the container's group, and the path may still be the host's; one
  // that leads out of the mount says only that the process is at its root.
  absl::string_view below = group;
  if (mount.group != "/" && !absl::ConsumePrefix(&below, mount.group)) below = "";
  if (absl::StrContains(below, "..")) below = "";
  std::string path(absl::StripSuffix(below, "/"));
  std::vector<std::string> folders;
  while (true) {
    folders.push_back(absl::StrCat(root, mount.folder, path));
    if (path.empty()) return folders;
    path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
  }
}

struct MemoryNames {
  absl::string_view controller;
  std::vector<std::string> limits;
  std::string used;
  absl::string_view cache[2];
};

void AddMemory(const std::string& root, const MemoryNames& names, ControlGroupLimits* limits) {
  for (const std::string& folder : Folders(root, names.controller)) {
    for (const std::string& name : names.limits) {
      const std::string path = absl::StrCat(folder, "/", name);
      const int64_t bytes = ReadNumber(path);
      if (bytes <= 0 || bytes >= kNoLimitFrom) continue;
      const int64_t cache =
          SumOfKeys(absl::StrCat(folder, "/memory.stat"), names.cache[0], names.cache[1]);
      const int64_t used =
          std::max<int64_t>(0, ReadNumber(absl::StrCat(folder, "/", names.used)) - cache);
      const int64_t left = std::max<int64_t>(0, bytes - used);
      const bool is_first = limits->memory_bytes == 0;
      limits->memory_left = is_first ? left : std::min(limits->memory_left, left);
      if (!is_first && bytes >= limits->memory_bytes) continue;
      limits->memory_bytes = bytes;
      limits->memory_file = path.substr(root.size());
    }
  }
}

void AddCpu(int64_t quota, int64_t period, const std::string& file, ControlGroupLimits* limits) {
  if (quota <= 0 || period <= 0) return;
  const int64_t millis = std::max<int64_t>(1, quota * 1000 / period);
  if (limits->cpu_millis > 0 && millis >= limits->cpu_millis) return;
  limits->cpu_millis = millis;
  limits->cpu_file = file;
}

}  // namespace

ControlGroupLimits ReadControlGroups(const std::string& root) {
  ControlGroupLimits limits;
  AddMemory(root,
            {"", {"memory.max", "memory.high"}, "memory.current", {"inactive_file", "active_file"}},
            &limits);
  AddMemory(root,
            {"memory",
             {"memory.limit_in_bytes"},
             "memory.usage_in_bytes",
             {"total_inactive_file", "total_active_file"}},
            &limits);
  for (const std::string& folder : Folders(root, "")) {
    const std::string path = absl::StrCat(folder, "/cpu.max");  // "250000 100000", "max 100000"
    const std::vector<std::string> words =
        absl::StrSplit(ReadText(path), absl::ByAnyChar(" \n"), absl::SkipEmpty());
    int64_t period = 0;
    if (words.size() != 2 || !absl::SimpleAtoi(words[1], &period)) continue;
    AddCpu(ReadNumber(path), period, path.substr(root.size()), &limits);
  }
  for (const std::string& folder : Folders(root, "cpu")) {
    const std::string path = absl::StrCat(folder, "/cpu.cfs_quota_us");
    AddCpu(ReadNumber(path), ReadNumber(absl::StrCat(folder, "/cpu.cfs_period_us")),
           path.substr(root.size()), &limits);
  }
  return limits;
}

int64_t ReadMachineMemory(const std::string& root) {
  for (const absl::string_view line :
       absl::StrSplit(ReadText(absl::StrCat(root, "/proc/meminfo")), '\n')) {
    const std::vector<absl::string_view> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    int64_t kibibytes = 0;
    if (words.size() == 3 && words[0] == "MemTotal:" && absl::SimpleAtoi(words[1], &kibibytes)) {
      return kibibytes * 1024;
    }
  }
  return 0;
}

int32_t UsableCpus(int32_t in_mask, int64_t cpu_millis) {
  int64_t cpus = std::max(1, in_mask);
  if (cpu_millis > 0) cpus = std::min(cpus, (cpu_millis + 999) / 1000);
  return static_cast<int32_t>(cpus);
}

}  // namespace odb
