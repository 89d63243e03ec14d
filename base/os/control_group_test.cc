#include "base/os/control_group.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/os/temp_directory.h"

namespace odb {
namespace {

constexpr int64_t kMib = int64_t{1} << 20;

// The files of a machine, in a folder.
class Machine {
 public:
  Machine() : folder_(TempDirectory::Create("/tmp", "cgroup").value()) {}

  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root() + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  void Write(const std::string& path, int64_t number) {
    Write(path, std::to_string(number) + "\n");
  }
  std::string root() const { return folder_.path(); }
  ControlGroupLimits Read() const { return ReadControlGroups(root()); }

 private:
  TempDirectory folder_;
};

Machine VersionTwo(const std::string& group) {
  Machine machine;
  machine.Write("/proc/self/cgroup", "0::" + group + "\n");
  machine.Write("/proc/self/mountinfo",
                "23 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
                "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n");
  return machine;
}

TEST_CASE("ControlGroup: of nested groups the smallest limit counts, max is none", "[os]") {
  Machine machine = VersionTwo("/slurm/job_7/step");
  machine.Write("/sys/fs/cgroup/slurm/memory.max", 8192 * kMib);
  machine.Write("/sys/fs/cgroup/slurm/job_7/memory.max", 1024 * kMib);
  machine.Write("/sys/fs/cgroup/slurm/job_7/step/memory.max", "max\n");
  machine.Write("/sys/fs/cgroup/slurm/job_7/step/memory.high", 2048 * kMib);
  machine.Write("/sys/fs/cgroup/slurm/cpu.max", "250000 100000\n");
  machine.Write("/sys/fs/cgroup/slurm/job_7/step/cpu.max", "max 100000\n");

  const ControlGroupLimits limits = machine.Read();

  CHECK(limits.memory_bytes == 1024 * kMib);
  CHECK(limits.memory_file == "/sys/fs/cgroup/slurm/job_7/memory.max");
  CHECK(limits.cpu_millis == 2500);
  CHECK(limits.cpu_file == "/sys/fs/cgroup/slurm/cpu.max");
}

TEST_CASE("ControlGroup: memory.high limits as memory.max does", "[os]") {
  Machine machine = VersionTwo("/a");
  machine.Write("/sys/fs/cgroup/a/memory.max", 512 * kMib);
  machine.Write("/sys/fs/cgroup/a/memory.high", 256 * kMib);
  CHECK(machine.Read().memory_bytes == 256 * kMib);
  CHECK(machine.Read().memory_file == "/sys/fs/cgroup/a/memory.high");
}

TEST_CASE("ControlGroup: what is left counts what others use, and no cache of files", "[os]") {
  Machine machine = VersionTwo("/a/b");
  machine.Write("/sys/fs/cgroup/a/memory.max", 1000 * kMib);
  machine.Write("/sys/fs/cgroup/a/memory.current", 900 * kMib);
  machine.Write("/sys/fs/cgroup/a/memory.stat", "anon 1\ninactive_file " +
                                                    std::to_string(300 * kMib) + "\nactive_file " +
                                                    std::to_string(100 * kMib) + "\n");
  machine.Write("/sys/fs/cgroup/a/b/memory.max", 600 * kMib);

  CHECK(machine.Read().memory_bytes == 600 * kMib);
  CHECK(machine.Read().memory_left == 500 * kMib);  // 1000 - (900 - 400), less than 600
}

TEST_CASE("ControlGroup: a container with a namespace of its own sees its group as the root",
          "[os]") {
  Machine machine = VersionTwo("/");
  machine.Write("/sys/fs/cgroup/memory.max", 300 * kMib);
  machine.Write("/sys/fs/cgroup/cpu.max", "50000 100000\n");
  CHECK(machine.Read().memory_bytes == 300 * kMib);
  CHECK(machine.Read().cpu_millis == 500);

  // Moved out of the namespace's root: the path leads out of what is mounted.
  machine.Write("/proc/self/cgroup", "0::/../other\n");
  CHECK(machine.Read().memory_bytes == 300 * kMib);
}

TEST_CASE("ControlGroup: version 1, whose largest number means none", "[os]") {
  Machine machine;
  machine.Write("/proc/self/cgroup", "4:memory:/docker/17\n3:cpu,cpuacct:/docker/17\n0::/\n");
  machine.Write("/proc/self/mountinfo",
                "35 31 0:32 /docker /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
                "36 31 0:33 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n");
  const std::string memory = "/sys/fs/cgroup/memory/17/";
  machine.Write(memory + "memory.limit_in_bytes", int64_t{9223372036854771712});
  machine.Write("/sys/fs/cgroup/cpu,cpuacct/docker/17/cpu.cfs_quota_us", -1);
  machine.Write("/sys/fs/cgroup/cpu,cpuacct/docker/17/cpu.cfs_period_us", 100000);
  CHECK(machine.Read().memory_bytes == 0);
  CHECK(machine.Read().cpu_millis == 0);

  machine.Write(memory + "memory.limit_in_bytes", 700 * kMib);
  machine.Write(memory + "memory.usage_in_bytes", 200 * kMib);
  machine.Write(memory + "memory.stat",
                "inactive_file 5\ntotal_inactive_file " + std::to_string(50 * kMib) + "\n");
  machine.Write("/sys/fs/cgroup/cpu,cpuacct/docker/17/cpu.cfs_quota_us", 300000);
  CHECK(machine.Read().memory_bytes == 700 * kMib);
  CHECK(machine.Read().memory_left == 550 * kMib);
  CHECK(machine.Read().memory_file == memory + "memory.limit_in_bytes");
  CHECK(machine.Read().cpu_millis == 3000);
}

TEST_CASE("ControlGroup: a mount point with a space is found", "[os]") {
  Machine machine;
  machine.Write("/proc/self/cgroup", "0::/a\n");
  machine.Write("/proc/self/mountinfo", "30 23 0:26 / /my\\040groups rw - cgroup2 none rw\n");
  machine.Write("/my groups/a/memory.max", 12 * kMib);
  CHECK(machine.Read().memory_bytes == 12 * kMib);
}

TEST_CASE("ControlGroup: what is not there limits nothing", "[os]") {
  Machine machine;
  CHECK(machine.Read().memory_bytes == 0);
  CHECK(machine.Read().cpu_millis == 0);
  CHECK(ReadMachineMemory(machine.root()) == 0);
  machine.Write("/proc/self/cgroup", "no colon\n0::/a\n");
  machine.Write("/proc/self/mountinfo", "30 23\nx - y\n");
  CHECK(machine.Read().memory_bytes == 0);
  machine.Write("/proc/meminfo", "MemFree:  5 kB\nMemTotal:       24576 kB\n");
  CHECK(ReadMachineMemory(machine.root()) == 24 * kMib);
}

TEST_CASE("UsableCpus: the smaller of mask and quota, a part of a CPU counts as one", "[os]") {
  CHECK(UsableCpus(8, 0) == 8);
  CHECK(UsableCpus(8, 2500) == 3);
  CHECK(UsableCpus(8, 2000) == 2);
  CHECK(UsableCpus(2, 2500) == 2);
  CHECK(UsableCpus(8, 100) == 1);
  CHECK(UsableCpus(0, 0) == 1);
}

}  // namespace
}  // namespace odb
