#pragma once

#include <functional>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/odb/v1/config.pb.h"
#include "server/daemon/config_fields.h"

namespace odb {

// Reads `text`, the content of the file `name`, over what `config` holds, and notes "name:line" for
// each key in `origins`.
//
// Errors: FailedPrecondition, one sentence with name:line and, for an unknown key, the nearest one.
absl::Status ReadConfigYaml(const std::string& name, const std::string& text, v1::Config* config,
                            std::map<std::string, std::string>* origins);

// Sets a field of kind kViews, kExtraTensors or kStreams from YAML: [{sources: [0]}, {sources: [1,
// 2]}]. Errors: InvalidArgument, a text that follows the field's name.
absl::Status SetFieldFromYaml(const FieldSpec& spec, const std::string& text, v1::Config* config);

}  // namespace odb
