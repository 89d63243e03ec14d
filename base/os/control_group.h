#pragma once

#include <cstdint>
#include <string>

namespace odb {

// What the control groups of a process allow it. A group is bound by its own limits and by those of
// all groups above it, so of each kind the smallest counts.
struct ControlGroupLimits {
  int64_t memory_bytes = 0;  // memory.max and memory.high, or memory.limit_in_bytes; 0 = none
  std::string memory_file;   // where it stands
  // The least that any of these groups has left: its limit without what is in use, page cache of
  // files not counted, which the kernel gives back. Meaningless without a limit.
  int64_t memory_left = 0;
  int64_t cpu_millis = 0;  // thousandths of a CPU: cpu.max, or cpu.cfs_quota_us; 0 = none
  std::string cpu_file;
};

// Reads the limits of this process below `root` ("" for the machine's own files): /proc/self/cgroup
// and /proc/self/mountinfo, then the files of each group on the way up to its mount, version 2 and
// 1. What is not there, or cannot be read, limits nothing.
ControlGroupLimits ReadControlGroups(const std::string& root);

// Memory of the machine (MemTotal of <root>/proc/meminfo); 0 if it cannot be read.
int64_t ReadMachineMemory(const std::string& root);

// CPUs that `in_mask` CPUs of an affinity mask and a quota leave: a quota of 2.5 CPUs keeps three
// threads busy in turns. At least 1.
int32_t UsableCpus(int32_t in_mask, int64_t cpu_millis);

}  // namespace odb
