#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "proto/odb/v1/config.pb.h"

namespace odb {

// What must be equal at all nodes of a job, by name: every field that plans depend on with its
// value, and what the data, the tokenizer and the transform say of themselves. A refusal names the
// key and shows both values.
using ConfigDigests = std::vector<std::pair<std::string, std::string>>;

// Digests of what the fields' values do not show; see Dataset, Tokenizer and Transform.
struct ContentDigests {
  uint64_t sources = 0;
  uint64_t tokenizer = 0;
  uint64_t transform = 0;
};

ConfigDigests DigestConfig(const v1::Config& config, const ContentDigests& content);

// One number over all of them; part of every record that ranks exchange.
uint64_t CombinedDigest(const ConfigDigests& digests);

}  // namespace odb
