#pragma once

#include <cstdint>

namespace odb {

// Defects that the simulation can build in, to show that its checks find them.
enum class Sabotage : uint8_t {
  kNone = 0,
  kReleaseBeforeConfirm = 1,  // odbd releases a round as soon as it has planned it
  kForgetOffer = 2,           // odbd does not keep the offer that it was planning with
  kChangeOffer = 3,           // ... or keeps another: the window without its last sample
  kNoFence = 4,               // odbd listens to generations that it has declared over
  kNoResync = 5,              // aligners take it that all ranks got as far as they did
  kPartialWindow = 6,         // odbd offers what it has when asked, not a full window
  kIgnoreDigests = 7,         // confirm records say what the others say
};

}  // namespace odb
