#include "server/preprocess/json_record.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <optional>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace odb {
namespace {

namespace dom = simdjson::dom;
using Reason = QuarantineReason;

bool IsBlank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

// The number that the four hexadecimal digits at `at` write; -1 if they are none.
int HexAt(absl::string_view text, size_t at) {
  if (at + 4 > text.size()) return -1;
  int value = 0;
  const char* const end = text.data() + at + 4;
  return std::from_chars(text.data() + at, end, value, 16).ptr == end ? value : -1;
}

bool IsHighSurrogate(int unit) { return unit >= 0xd800 && unit < 0xdc00; }
bool IsLowSurrogate(int unit) { return unit >= 0xdc00 && unit < 0xe000; }

// Where the first \u escape of a surrogate without its other half begins. In JSON a backslash
// stands in strings only, so strings need not be followed.
std::optional<size_t> FindLoneSurrogate(absl::string_view raw) {
  size_t at = raw.find('\\');
  while (at != absl::string_view::npos && at + 1 < raw.size()) {
    const int unit = raw[at + 1] == 'u' ? HexAt(raw, at + 2) : -1;
    size_t next = at + 2;
    if (IsLowSurrogate(unit)) return at;
    if (IsHighSurrogate(unit)) {
      const bool paired = raw.substr(std::min(at + 6, raw.size()), 2) == "\\u" &&
                          IsLowSurrogate(HexAt(raw, at + 8));
      if (!paired) return at;
      next = at + 12;
    }
    at = raw.find('\\', next);
  }
  return std::nullopt;
}

// Bytes of the well-formed UTF-8 sequence at the front (Unicode table 3-7); 0 if there is none.
size_t Utf8SequenceLength(absl::string_view text) {
  const auto byte = [&](size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u;
  };
  const auto continues = [&](size_t i) { return (byte(i) & 0xc0) == 0x80; };
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead >= 0xc2 && lead <= 0xdf) return continues(1) ? 2 : 0;
  if (lead >= 0xe0 && lead <= 0xef) {
    const bool overlong = lead == 0xe0 && byte(1) < 0xa0;
    const bool surrogate = lead == 0xed && byte(1) >= 0xa0;
    return continues(1) && continues(2) && !overlong && !surrogate ? 3 : 0;
  }
  if (lead >= 0xf0 && lead <= 0xf4) {
    const bool overlong = lead == 0xf0 && byte(1) < 0x90;
    const bool beyond = lead == 0xf4 && byte(1) >= 0x90;
    return continues(1) && continues(2) && continues(3) && !overlong && !beyond ? 4 : 0;
  }
  return 0;
}

std::optional<size_t> FindInvalidUtf8(absl::string_view raw) {
  if (simdjson::validate_utf8(raw.data(), raw.size())) return std::nullopt;
  size_t at = 0;
  while (at < raw.size()) {
    const size_t length = Utf8SequenceLength(raw.substr(at));
    if (length == 0) return at;
    at += length;
  }
  return std::nullopt;
}

// Behind the first JSON value of the text, found by its brackets and quotes; nullopt if the text
// ends before it does.
std::optional<size_t> FindValueEnd(absl::string_view raw) {
  size_t at = 0;
  while (at < raw.size() && IsBlank(raw[at])) ++at;
  int depth = 0;
  bool in_string = false;
  for (; at < raw.size(); ++at) {
    const char c = raw[at];
    if (in_string) {
      if (c == '\\') ++at;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      ++depth;
    } else if ((c == '}' || c == ']') && --depth <= 0) {
      return at + 1;
    }
  }
  return std::nullopt;
}

// simdjson could not parse it: says why.
Rejection Diagnose(absl::string_view raw, simdjson::error_code error) {
  const size_t nul = raw.find('\0');
  if (nul != absl::string_view::npos) {
    return {Reason::kNulByte, absl::StrCat("at ", nul, " of the record")};
  }
  if (const auto bad = FindInvalidUtf8(raw)) {
    return {Reason::kInvalidUtf8, absl::StrFormat("byte 0x%02x at %d of the record",
                                                  static_cast<unsigned char>(raw[*bad]), *bad)};
  }
  const auto surrogate = FindLoneSurrogate(raw);
  if (error == simdjson::STRING_ERROR && surrogate) {
    return {Reason::kLoneSurrogate,
            absl::StrCat(raw.substr(*surrogate, 6), " at ", *surrogate, " of the record")};
  }
  const auto end = FindValueEnd(raw);
  if (!end) {
    return {Reason::kInvalidJson, absl::StrCat("the record ends, after ", raw.size(),
                                               " bytes, before its value does; is it cut?")};
  }
  const auto rest = std::find_if_not(raw.begin() + static_cast<int64_t>(*end), raw.end(), IsBlank);
  if (rest != raw.end()) {
    dom::parser first_value;
    const auto parsed = first_value.parse(raw.data(), *end);
    if (parsed.error() == simdjson::SUCCESS) {
      return {Reason::kTrailingData,
              absl::StrCat("the value ends at ", *end, " of the record, then follows ",
                           Quoted(raw.substr(static_cast<size_t>(rest - raw.begin()))))};
    }
  }
  return {Reason::kInvalidJson, simdjson::error_message(error)};
}

const char* TypeName(dom::element value) {
  switch (value.type()) {
    case dom::element_type::ARRAY:
      return "an array";
    case dom::element_type::STRING:
      return "a string";
    case dom::element_type::BOOL:
      return "true or false";
    case dom::element_type::NULL_VALUE:
      return "null";
    case dom::element_type::OBJECT:
      return "an object";
    default:
      return "a number";
  }
}

void AppendJsonString(absl::string_view text, std::string* out) {
  *out += '"';
  for (const char c : text) {
    switch (c) {
      case '"':
        *out += "\\\"";
        break;
      case '\\':
        *out += "\\\\";
        break;
      case '\n':
        *out += "\\n";
        break;
      case '\r':
        *out += "\\r";
        break;
      case '\t':
        *out += "\\t";
        break;
      case '\b':
        *out += "\\b";
        break;
      case '\f':
        *out += "\\f";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          absl::StrAppendFormat(out, "\\u%04x", static_cast<unsigned char>(c));
        } else {
          *out += c;
        }
    }
  }
  *out += '"';
}

}  // namespace

std::variant<dom::object, Rejection> ParseJsonRecord(absl::string_view raw, dom::parser* parser) {
  if (raw.empty()) return Rejection{Reason::kInvalidJson, "the record is empty"};
  dom::element root;
  const simdjson::error_code error = parser->parse(raw.data(), raw.size()).get(root);
  if (error != simdjson::SUCCESS) return Diagnose(raw, error);
  if (const auto surrogate = FindLoneSurrogate(raw)) {
    return Rejection{Reason::kLoneSurrogate,
                     absl::StrCat(raw.substr(*surrogate, 6), " at ", *surrogate, " of the record")};
  }
  dom::object object;
  if (root.get(object) != simdjson::SUCCESS) {
    return Rejection{Reason::kNotAnObject, absl::StrCat("it is ", TypeName(root))};
  }
  return object;
}

std::string FormatDouble(double value) {
  char digits[32];
  // The shortest digits that read back as the same number, as d.ddde+xx.
  const auto end =
      std::to_chars(digits, digits + sizeof(digits), value, std::chars_format::scientific);
  const absl::string_view text(digits, static_cast<size_t>(end.ptr - digits));
  int exponent = 0;
  const size_t e = text.find('e');
  std::from_chars(text.data() + e + (text[e + 1] == '+' ? 2 : 1), end.ptr, exponent);
  // Python writes an exponent from 1e16 on and below 1e-4.
  if (exponent >= 16 || exponent < -4) return std::string(text);
  char fixed[64];
  const auto fixed_end =
      std::to_chars(fixed, fixed + sizeof(fixed), value, std::chars_format::fixed);
  std::string out(fixed, fixed_end.ptr);
  if (out.find('.') == std::string::npos) out += ".0";
  return out;
}

void AppendCanonicalJson(dom::element value, std::string* out) {
  const char* separator = "";
  switch (value.type()) {
    case dom::element_type::ARRAY:
      *out += '[';
      for (const dom::element entry : dom::array(value)) {
        *out += separator;
        AppendCanonicalJson(entry, out);
        separator = ", ";
      }
      *out += ']';
      return;
    case dom::element_type::OBJECT:
      *out += '{';
      for (const dom::key_value_pair entry : dom::object(value)) {
        *out += separator;
        AppendJsonString(absl::string_view(entry.key.data(), entry.key.size()), out);
        *out += ": ";
        AppendCanonicalJson(entry.value, out);
        separator = ", ";
      }
      *out += '}';
      return;
    case dom::element_type::STRING: {
      const std::string_view text(value);
      AppendJsonString(absl::string_view(text.data(), text.size()), out);
      return;
    }
    case dom::element_type::INT64:
      absl::StrAppend(out, int64_t{value});
      return;
    case dom::element_type::UINT64:
      absl::StrAppend(out, uint64_t{value});
      return;
    case dom::element_type::DOUBLE:
      *out += FormatDouble(double{value});
      return;
    case dom::element_type::BOOL:
      *out += bool{value} ? "true" : "false";
      return;
    case dom::element_type::NULL_VALUE:
      *out += "null";
      return;
  }
}

std::string DescribeKeys(dom::object record) {
  constexpr int kShown = 8;
  std::string keys;
  int num_keys = 0;
  for (const dom::key_value_pair entry : record) {
    if (++num_keys > kShown) break;
    absl::StrAppend(&keys, num_keys > 1 ? ", " : "",
                    Quoted(absl::string_view(entry.key.data(), entry.key.size())));
  }
  return absl::StrCat("the keys are ", keys, num_keys > kShown ? ", ..." : "");
}

std::string Quoted(absl::string_view text) {
  constexpr size_t kShown = 40;
  if (text.size() <= kShown) return absl::StrCat("\"", absl::Utf8SafeCEscape(text), "\"");
  size_t end = kShown;  // not within a character
  while (end > 0 && (text[end] & 0xc0) == 0x80) --end;
  return absl::StrCat("\"", absl::Utf8SafeCEscape(text.substr(0, end)), "...\"");
}

}  // namespace odb
