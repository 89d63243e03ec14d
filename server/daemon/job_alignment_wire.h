#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/ids.h"
#include "proto/odb/v1/alignment.pb.h"
#include "proto/wire/record_codec.h"
#include "server/daemon/job_alignment.h"

namespace odb {

// The options of a JobAlignment checked, and as its aligners and the arbiter are told. Pure, but
// for the host name. Threads: any.

// InvalidArgument naming the option, what was given and what is allowed.
absl::Status ValidateOptions(const JobAlignment::Options& options);

// Complete but for the rank.
v1::AlignerSetup MakeSetup(const JobAlignment::Options& options);

v1::NodeHello MakeHello(const JobAlignment::Options& options, const RecordCodec& codec);

v1::NodeEvent MakeGenerationFailed(Generation generation, const std::string& reason,
                                   std::optional<Rank> suspect, RoundId last_completed,
                                   bool connected);

JobAlignment::Ending ToEnding(const v1::IterationEnding& told);

// A job's error as it is given to pipelines and trainers. To those who wait, DeadlineExceeded means
// "nothing yet, ask again": as the end of a job they would wait through it, so it is Aborted.
absl::Status AsJobError(const absl::Status& status);

// "waiting for ranks 2, 3 to attach (12.0 s)".
std::string DescribeMissing(const std::vector<Rank>& missing, absl::Duration waited);

// The end of the link to the arbiter, as every other node's is told: "node 0 with ranks 0, 1 is
// gone: ...". As it is while no rank is known to be there.
absl::Status NameArbiterNode(const absl::Status& status, const std::vector<int>& node_of_rank);

}  // namespace odb
