#include "proto/wire/chunk.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace odb {

uint64_t ChunkChecksum(absl::string_view data) { return XXH3_64bits(data.data(), data.size()); }

}  // namespace odb
