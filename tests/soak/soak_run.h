#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/soak/soak_check.h"

namespace odb {

// What a trainer loses on purpose, to see that it is found.
enum class Leak : uint8_t { kNone, kMemory, kDescriptors, kThreads };

struct SoakOptions {
  int64_t steps = 200'000;  // at least; whole epochs are run
  int32_t records = 20'000;
  int32_t ranks = 2;
  int32_t observations = 60;
  Leak leak = Leak::kNone;
};

struct SoakReport {
  std::vector<Observation> run;
  v1::Status last;  // once everything was taken
  ClientCounts counts;
  int64_t epochs = 0;
  double seconds = 0;
};

// Trains for many steps: a real odbd with its aligners, data of random lengths of which every
// thousandth record is bad, and trainers in threads of this process that read every tensor. Looks
// at both processes meanwhile.
//
// Errors: what ended a session, or odbd.
absl::StatusOr<SoakReport> RunSoak(const SoakOptions& options);

// All complaints about it.
std::vector<std::string> CheckSoak(const SoakReport& report);

}  // namespace odb
