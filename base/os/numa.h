#pragma once

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace odb {

inline constexpr int kNoNumaNode = -1;

// The memory node next to a PCI device, `bus_id` as CUDA writes it ("0000:C1:00.0"), from the files
// below `root` ("" for the machine's own). kNoNumaNode: the machine has only one memory node, or
// the kernel does not know (virtual machines often say so).
int NumaNodeOfPciDevice(const std::string& root, absl::string_view bus_id);

// Has the pages of [address, address + bytes) that nobody touched yet come from the memory of
// `node` as long as it has any; pages that exist stay where they are. `address` is the start of a
// page. For shared memory this holds for the memory itself, whoever touches a page first through
// whatever mapping. `node` >= 0.
// Errors: what the kernel refused; Docker's default seccomp profile allows it only with
// CAP_SYS_NICE.
absl::Status PreferNumaNode(void* address, size_t bytes, int node);

}  // namespace odb
