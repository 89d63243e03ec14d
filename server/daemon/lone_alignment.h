#pragma once

#include <memory>

#include "server/daemon/job_alignment.h"

namespace odb {

// The agreement of a job that has one rank and shares nothing (align: none): every round is planned
// at once, by no other process and no other node.
//
// Ownership, threads: as JobAlignment. Errors: Attach says InvalidArgument for a rank but 0, and
// the job's error once it has failed. on_failed is never called: nothing here can fail.
std::unique_ptr<JobAlignment> MakeLoneAlignment();

}  // namespace odb
