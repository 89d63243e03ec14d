#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/odb/v1/config.pb.h"

namespace odb {

// The stream that `data` is, and what a loader gets that names none.
constexpr char kTrainStream[] = "train";

// One stream as a configuration of its own, in which everything is set and no stream is left: what
// is true of `data` and `token_budget` of a daemon with one stream is true of these.
struct StreamConfig {
  std::string name;
  bool aligned = true;  // align: all; false: each trainer reads all of it by itself
  v1::Config config;
};

// "train", then those of `streams` in their order.
//
// Errors: FailedPrecondition, one sentence that names the stream and the key: a name that is none,
// is given twice or is "train"; no data.
absl::StatusOr<std::vector<StreamConfig>> StreamsOf(const v1::Config& config);

// Whether a stream may set the field of Config with this name.
bool IsStreamField(absl::string_view name);

// Sets a field of `stream` that IsStreamField names as `config` has it.
void CopyStreamField(absl::string_view name, const v1::Config& config, v1::Stream* stream);

// As YAML, one {name: ..., ...} per stream, with what it sets.
std::string StreamsToYaml(const v1::Config& config);

}  // namespace odb
