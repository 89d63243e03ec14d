#pragma once

#include <cstdint>

#include "tests/simulation/scenario.h"

namespace odb {

// Which worlds a seed draws from.
struct WorldSizes {
  int least = 2;
  int most = 16;
};

// What happens, drawn from `seed`: ranks and how they lie on nodes, views that differ in size,
// policy, scope, termination, breaks, and how it ends. Same arguments, same scenario.
//
// Worlds of more than 64 ranks get few samples and short windows: every rank gathers everybody's.
Scenario DrawScenario(uint64_t seed, WorldSizes sizes);

// When it happens. `variant` 0 is calm: no faults but those that the scenario's ending needs.
// Others have slow ranks, long pauses, and, where the scenario ends in success, aligners that die
// or hang and results of exchanges that are lost.
Timing DrawTiming(const Scenario& scenario, uint64_t variant);

}  // namespace odb
