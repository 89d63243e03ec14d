#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace odb {

// Who holds a run against what is promised.
enum class Checker : uint8_t {
  kRules = 0,      // the parts keep to effects.h: the order of messages, lockstep on
                   // a mesh
  kAgreement = 1,  // a round has one plan, and is released when all ranks have it
  kDelivery = 2,   // every rank takes the steps that planning alone gives, and
                   // samples come once
  kProgress = 3,   // rounds and virtual time are bounded
  kFailure = 4,    // a job fails only as its scenario asks, with one error that
                   // names the culprit
  kContent = 5,    // another timing gives the same steps
};
constexpr int kNumCheckers = 6;

inline const char* NameOf(Checker checker) {
  static constexpr const char* kNames[kNumCheckers] = {"rules",    "agreement", "delivery",
                                                       "progress", "failure",   "content"};
  return kNames[static_cast<size_t>(checker)];
}

struct Violation {
  Checker checker = Checker::kRules;
  std::string text;
};

// What the checkers found in one run. Those that are switched off are not heard, which shows that
// each of them finds something by itself.
class Verdict {
 public:
  explicit Verdict(uint32_t checkers_off = 0) : checkers_off_(checkers_off) {}

  void Add(Checker checker, std::string text) {
    if ((checkers_off_ & Bit(checker)) != 0) return;
    violations_.push_back({checker, std::move(text)});
  }

  bool ok() const { return violations_.empty(); }
  const std::vector<Violation>& violations() const { return violations_; }

  static constexpr uint32_t Bit(Checker checker) { return 1u << static_cast<uint32_t>(checker); }
  // Hears `checker` alone.
  static constexpr uint32_t AllBut(Checker checker) {
    return ((1u << kNumCheckers) - 1) & ~Bit(checker);
  }

 private:
  const uint32_t checkers_off_;
  std::vector<Violation> violations_;
};

}  // namespace odb
