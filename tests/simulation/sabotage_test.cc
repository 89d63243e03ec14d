#include <catch2/catch.hpp>
#include <iostream>
#include <string>

#include "tests/simulation/run_seed.h"
#include "tests/simulation/sabotage.h"
#include "tests/simulation/verdict.h"

namespace odb {
namespace {

constexpr uint64_t kSeedsMax = 500;

struct Defect {
  Sabotage sabotage;
  Checker found_by;
  const char* what;
};

// Each is found by its checker alone, with all others switched off.
constexpr Defect kDefects[] = {
    {Sabotage::kReleaseBeforeConfirm, Checker::kAgreement, "released before it is confirmed"},
    {Sabotage::kForgetOffer, Checker::kFailure, "the offer is forgotten"},
    {Sabotage::kChangeOffer, Checker::kDelivery, "the offer is changed"},
    {Sabotage::kNoFence, Checker::kRules, "old generations are listened to"},
    {Sabotage::kNoResync, Checker::kFailure, "no resync"},
    {Sabotage::kPartialWindow, Checker::kDelivery, "a window that is not full"},
    {Sabotage::kPartialWindow, Checker::kContent, "a window that is not full"},
    {Sabotage::kIgnoreDigests, Checker::kAgreement, "digests are not compared"},
    {Sabotage::kDropLeftovers, Checker::kDelivery, "leftovers are lost"},
    {Sabotage::kRepeatStep, Checker::kDelivery, "a step comes twice"},
    {Sabotage::kRepeatStep, Checker::kContent, "a step comes twice"},
    {Sabotage::kNoHandover, Checker::kProgress, "samples are not handed over"},
    {Sabotage::kNoWaitForHandover, Checker::kDelivery, "samples are not waited for"},
    {Sabotage::kPlanNothing, Checker::kProgress, "rounds without steps"},
    {Sabotage::kNoTimer, Checker::kProgress, "no clock"},
    {Sabotage::kLateTimer, Checker::kProgress, "a slow clock"},
    {Sabotage::kSilentNodeLoss, Checker::kProgress, "nobody notices that a node is gone"},
    {Sabotage::kUntoldRank, Checker::kProgress, "a rank is not told the error"},
    {Sabotage::kOwnWords, Checker::kFailure, "each rank has its own error"},
    {Sabotage::kServeAfterError, Checker::kFailure, "steps after the error"},
};

// The checks can fail: each of these defects must be found.
TEST_CASE("Simulation: defects that are built in are found", "[simulation]") {
  const size_t at = GENERATE(range(size_t{0}, std::size(kDefects)));
  const Defect& defect = kDefects[at];
  SeedOptions options;
  options.sabotage = defect.sabotage;
  options.checkers_off = Verdict::AllBut(defect.found_by);
  std::string failure;
  for (options.seed = 1; options.seed <= kSeedsMax && failure.empty(); ++options.seed) {
    failure = RunSeed(options).failure;
  }
  INFO(defect.what << " by " << NameOf(defect.found_by));
  CHECK_FALSE(failure.empty());
  std::cout << defect.what << ": " << failure << "\n";
}

}  // namespace
}  // namespace odb
