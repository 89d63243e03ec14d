#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/odb/v1/status.pb.h"
#include "tests/support/process_usage.h"

namespace odb {

// One look at a run.
struct Observation {
  int64_t steps = 0;  // taken by a trainer so far
  ProcessUsage daemon;
  ProcessUsage trainers;  // of the process that all of them are in
  v1::Status status;
};

// What the trainers counted themselves, all ranks, from the beginning to the end.
struct ClientCounts {
  int64_t steps = 0;  // of each rank
  int64_t samples = 0;
  int64_t idle = 0;
  int64_t bad_records = 0;  // as the ends of the epochs said
};

// What is wrong with a run, one sentence each; empty if nothing is. Pure.
//
// Flat means: after a warm-up, the first third of the observations, the last third never takes more
// than the second third did, and a little: memory 4 MiB or 3 %, threads 2, descriptors 4 (gRPC has
// threads and connections that come and go with those who ask for the status).
std::vector<std::string> CheckFlat(const std::vector<Observation>& run);

// No counter of the status goes down, and read = emitted + quarantined + in flight + abandoned in
// each.
std::vector<std::string> CheckCounters(const std::vector<Observation>& run);

// The last status and what the trainers counted are the same.
std::vector<std::string> CheckAgreement(const v1::Status& last, const ClientCounts& counts);

}  // namespace odb
