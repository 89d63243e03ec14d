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
  kDropLeftovers = 8,         // what a round leaves over does not return to the window
  kRepeatStep = 9,            // the last step is given again when the mesh is a new one
  kNoHandover = 10,           // odbd keeps samples that another rank of its node is to have
  kNoWaitForHandover = 11,    // ... or does not wait for those that it is to get
  kPlanNothing = 12,          // rounds are agreed on, and no step is in them
  kNoTimer = 13,              // aligners have no clock: silence never ends
  kLateTimer = 14,            // ... or one that is much too slow
  kSilentNodeLoss = 15,       // the arbiter is not told that a node is gone
  kUntoldRank = 16,           // one rank is not told that the job has failed
  kOwnWords = 17,             // each rank has words of its own for the job's error
  kServeAfterError = 18,      // steps are given to a trainer that got the error
};

}  // namespace odb
