#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "aligner/protocol/effects.h"
#include "base/ids.h"
#include "batching/offer.h"

namespace odb {

// The words operators read. "pool starved", "arena full", ...; "unknown" for no such reason.
absl::string_view Describe(NotReadyReason reason);

// "left the loop", "closed its loader", "lost its trainer", ...
absl::string_view Describe(ClosingReason reason);

// "READY", "NOT_READY", "DRY", "CLOSING"; "unknown" for no such state.
absl::string_view Describe(OfferState state);

// "rank 3"; "ranks 0, 1 and 3".
std::string DescribeRanks(const std::vector<Rank>& ranks);

// "0x00000000deadbeef": digests are printed so.
std::string DescribeDigest(uint64_t digest);

// Why a rank holds the round up: "pool starved", or "has not left the loop (step 12)".
std::string DescribeWait(const WaitedRank& who);

// "round 812 waits for rank 3: pool starved (4.1 s); rank 5: planning (0.2 s)".
std::string DescribeWait(const ReportWaiting& report, absl::Time now);

}  // namespace odb
