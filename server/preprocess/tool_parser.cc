#include "server/preprocess/tool_parser.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace odb {
namespace {

namespace dom = simdjson::dom;

Rejection BadTools(std::string detail) {
  return Rejection{QuarantineReason::kBadTools, std::move(detail)};
}

absl::string_view View(std::string_view text) {
  return absl::string_view(text.data(), text.size());
}

// A string is replaced by the JSON in it. The parser is used for one string at a time: what came of
// an earlier one is gone.
std::optional<Rejection> Unwrap(dom::parser* nested, const char* what, dom::element* value) {
  std::string_view text;
  if (value->get(text) != simdjson::SUCCESS) return std::nullopt;
  const simdjson::error_code error = nested->parse(text.data(), text.size()).get(*value);
  if (error == simdjson::SUCCESS) return std::nullopt;
  return BadTools(absl::StrCat(what, " is a string that is not JSON (",
                               simdjson::error_message(error), "): ", Quoted(View(text))));
}

bool IsAbsent(dom::element value) {
  std::string_view text;
  return value.is_null() ||
         (value.get(text) == simdjson::SUCCESS && absl::StripAsciiWhitespace(View(text)).empty());
}

std::optional<Rejection> ParseCall(dom::element call, dom::parser* nested, ToolCall* out) {
  dom::element function;
  if (call["function"].get(function) != simdjson::SUCCESS) function = call;
  std::string_view name;
  if (function["name"].get(name) != simdjson::SUCCESS || name.empty()) {
    return BadTools("a tool call has no name");
  }
  out->name = std::string(name);
  dom::element arguments;
  if (function["arguments"].get(arguments) != simdjson::SUCCESS || IsAbsent(arguments)) {
    out->arguments = "{}";
    return std::nullopt;
  }
  if (auto rejection = Unwrap(nested, "arguments", &arguments)) return rejection;
  if (!arguments.is_object()) {
    return BadTools(absl::StrCat("the arguments of ", Quoted(View(name)), " are no JSON object"));
  }
  AppendCanonicalJson(arguments, &out->arguments);
  return std::nullopt;
}

}  // namespace

std::optional<Rejection> ParseTools(dom::element tools, dom::parser* nested,
                                    std::vector<std::string>* out) {
  if (IsAbsent(tools)) return std::nullopt;
  if (auto rejection = Unwrap(nested, "tools", &tools)) return rejection;
  dom::array array;
  if (tools.get(array) != simdjson::SUCCESS) return BadTools("tools is no array");
  for (const dom::element tool : array) {
    dom::object object;
    if (tool.get(object) != simdjson::SUCCESS) return BadTools("a tool is no object");
    std::string text;
    AppendCanonicalJson(tool, &text);
    if (object["function"].error() != simdjson::SUCCESS) {
      if (object["name"].error() != simdjson::SUCCESS) {
        return BadTools("a tool has neither function nor name");
      }
      text = absl::StrCat("{\"type\": \"function\", \"function\": ", text, "}");
    }
    out->push_back(std::move(text));
  }
  return std::nullopt;
}

std::optional<Rejection> ParseToolCalls(dom::element calls, dom::parser* nested,
                                        std::vector<ToolCall>* out) {
  if (IsAbsent(calls)) return std::nullopt;
  dom::parser outer;  // arguments within may be a string as well, for which `nested` is then free
  if (auto rejection = Unwrap(&outer, "a tool call", &calls)) return rejection;
  dom::array array;
  if (calls.get(array) == simdjson::SUCCESS) {
    for (const dom::element call : array) {
      if (auto rejection = ParseCall(call, nested, &out->emplace_back())) return rejection;
    }
    return std::nullopt;
  }
  return ParseCall(calls, nested, &out->emplace_back());
}

}  // namespace odb
