#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "batching/plan.h"
#include "server/pipeline/window.h"

namespace odb {

// One step of one rank: planned and confirmed by all ranks, not assembled yet.
struct PlannedStep {
  Epoch epoch;
  int64_t iterator = 0;
  RoundId round;
  int64_t index = 0;                  // in this iteration, from 0; equal on all ranks
  std::vector<WindowSample> samples;  // empty = IDLE
  StepTotals totals;                  // all ranks
  int64_t emitted_samples = 0;        // this iteration, all ranks, up to and with this step
  int64_t total_samples = 0;          // of the epoch, all ranks, quarantined ones not counted
  uint32_t modality_mask = 0;         // of all ranks
};

// No step of this iteration follows.
struct IterationEnd {
  Epoch epoch;
  int64_t iterator = 0;
  bool abandoned = false;           // all ranks left the loop after `steps` steps
  int64_t steps = 0;                // equal on all ranks
  int64_t samples = 0;              // emitted, all ranks
  int64_t quarantined = 0;          // of the epoch, all ranks
  std::vector<SampleId> left_over;  // of this rank, non-join only; kLeftOverListed at most
};

// What EpochEnd names of the samples left over; coverage counts all.
constexpr int64_t kLeftOverListed = 100'000;

using PipelineOutput = std::variant<PlannedStep, IterationEnd>;

}  // namespace odb
