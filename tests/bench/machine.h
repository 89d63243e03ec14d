#pragma once

#include <string>

namespace odb {

// What a benchmark ran on: the processor's name and how many CPUs there are.
std::string Machine();

}  // namespace odb
