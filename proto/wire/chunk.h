#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"

namespace odb {

// The bytes of one Chunk (trainer.proto), at most: with what stands around them, half of the 4 MB
// that gRPC takes in one message unless it is told otherwise.
inline constexpr int64_t kChunkBytesMax = int64_t{2} << 20;

// Chunk.checksum: XXH3-64 (xxHash 0.8, seed 0) of its data. The same on every machine.
uint64_t ChunkChecksum(absl::string_view data);

// Where a call over TCP carries the daemon's job_token.
inline constexpr char kJobTokenMetadata[] = "odb-job-token-bin";

}  // namespace odb
