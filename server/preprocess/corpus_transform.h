#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "server/preprocess/length_limits.h"
#include "server/preprocess/transform.h"
#include "server/sources/indexed_corpus.h"

namespace odb {

struct CorpusOptions {
  LengthLimits limits;
  int32_t vocab_size = 0;              // ids must be below; 0 = any
  std::vector<TokenType> token_types;  // of each source of the dataset
};

// Sequences of token ids as an indexed corpus stores them: labels are the ids themselves. An id out
// of range is quarantined as bad_tensor, with its place.
//
// Errors: InvalidArgument (max_length < 0, a source that holds text).
absl::StatusOr<std::unique_ptr<Transform>> MakeCorpusTransform(CorpusOptions options);

}  // namespace odb
