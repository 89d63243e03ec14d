#pragma once

#include <string>

#include "proto/odb/v1/status.pb.h"

namespace odb {

// The stage that holds up the newest running job, in the words of status.proto.
struct Limiter {
  std::string stage;  // pool | rounds | assembler | trainer | nothing
  std::string text;   // "pool starved: 3 of 4 threads busy"
};

// Judges one snapshot (jobs and pool are filled in). Pure.
//
// A trainer that waits decides: what its job waits for is the limiter. Without one, steps are ready
// faster than they are taken, and the trainers limit, as they should.
Limiter NameLimiter(const v1::Status& status);

}  // namespace odb
