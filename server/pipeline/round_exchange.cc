#include "server/pipeline/round_exchange.h"

#include "base/hash.h"

namespace odb {

uint64_t AbandonDigest(RoundId round) {
  return HashCombine(Hash64("abandon"), static_cast<uint64_t>(round.value()));
}

}  // namespace odb
