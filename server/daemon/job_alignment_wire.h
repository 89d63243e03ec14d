#pragma once

#include "absl/status/status.h"
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

}  // namespace odb
