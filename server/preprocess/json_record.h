#pragma once

#include <simdjson.h>

#include <string>
#include <variant>

#include "absl/strings/string_view.h"
#include "server/preprocess/quarantine.h"

namespace odb {

// Why a record is refused, before it is known which record it is.
struct Rejection {
  QuarantineReason reason = QuarantineReason::kTransformError;
  std::string detail;
};

// Parses one record as a JSON object; the object lives until the parser is used again.
//
// Stricter than simdjson in one thing: a lone surrogate, which is no character and which a
// tokenizer could not encode, is refused. Threads: one parser per thread. Errors: a Rejection with
// the reasons record bytes can have (quarantine.h) and the place of the first fault.
std::variant<simdjson::dom::object, Rejection> ParseJsonRecord(absl::string_view raw,
                                                               simdjson::dom::parser* parser);

// The value as Python's json.dumps(value, ensure_ascii=False) writes it: ", " and ": " as
// separators, keys in their order, 2.0 as 2.0. What chat templates show of tools and arguments.
void AppendCanonicalJson(simdjson::dom::element value, std::string* out);

// "the keys are "text", "meta"": for a record none of whose keys is known.
std::string DescribeKeys(simdjson::dom::object record);

// A double as Python's repr writes it.
std::string FormatDouble(double value);

// `text` for a message: quoted, control characters escaped, cut after a few dozen bytes.
std::string Quoted(absl::string_view text);

}  // namespace odb
