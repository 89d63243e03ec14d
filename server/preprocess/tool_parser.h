#pragma once

#include <simdjson.h>

#include <optional>
#include <string>
#include <vector>

#include "server/preprocess/conversation.h"
#include "server/preprocess/json_record.h"

namespace odb {

// Reads a list of tools: an array, or a string that holds one; null and "" are none. A bare
// {name, description, parameters} is written as {"type": "function", "function": {...}}.
std::optional<Rejection> ParseTools(simdjson::dom::element tools, simdjson::dom::parser* nested,
                                    std::vector<std::string>* out);

// Reads the calls of a turn: one call or an array of them, or a string that holds either; null is
// none. A call is {name, arguments} or {function: {name, arguments}}; its arguments are an object,
// a string that holds one, or nothing.
std::optional<Rejection> ParseToolCalls(simdjson::dom::element calls, simdjson::dom::parser* nested,
                                        std::vector<ToolCall>* out);

}  // namespace odb
