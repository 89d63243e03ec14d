#include "server/preprocess/json_record.h"

#include <catch2/catch.hpp>
#include <limits>
#include <string>

namespace odb {
namespace {

// The reason's name and the detail, or "object".
std::string Outcome(const std::string& raw) {
  simdjson::dom::parser parser;
  const auto parsed = ParseJsonRecord(raw, &parser);
  const auto* rejection = std::get_if<Rejection>(&parsed);
  if (rejection == nullptr) return "object";
  return std::string(QuarantineReasonName(rejection->reason)) + ": " + rejection->detail;
}

TEST_CASE("ParseJsonRecord: each fault has its own reason and place (S03)", "[quarantine]") {
  CHECK(Outcome("{\"a\": [1, {\"b\": \"") ==
        "invalid_json: the record ends, after 17 bytes, before its value does; is it cut?");
  CHECK(Outcome(std::string("{\"a\": \"x\0y\"}", 12)) == "nul_byte: at 8 of the record");
  CHECK(Outcome("{\"a\": 1} {\"a\": 2}") ==
        "trailing_data: the value ends at 8 of the record, then follows \"{\\\"a\\\": 2}\"");
  CHECK(Outcome("{\"a\": \"\\ud800\"}") == "lone_surrogate: \\ud800 at 7 of the record");
  CHECK(Outcome("{\"a\": \"xy\\uDC00\"}") == "lone_surrogate: \\uDC00 at 9 of the record");
  CHECK(Outcome("{\"a\": \"\\ud83d\\u0041\"}") == "lone_surrogate: \\ud83d at 7 of the record");
  CHECK(Outcome("{\"a\": \"\\ude00\\ud83d\"}") == "lone_surrogate: \\ude00 at 7 of the record");
  CHECK(Outcome("{\"a\": \"\xff\"}") == "invalid_utf8: byte 0xff at 7 of the record");
  CHECK(Outcome("[{\"a\": 1}]") == "not_an_object: it is an array");
  CHECK(Outcome("\"text\"") == "not_an_object: it is a string");
  CHECK(Outcome("17") == "not_an_object: it is a number");
  CHECK(Outcome("null") == "not_an_object: it is null");
  CHECK(Outcome("") == "invalid_json: the record is empty");
  CHECK(Outcome("{\"a\": tru}").find("invalid_json: ") == 0);
  CHECK(Outcome("{\"a\": 1,}").find("invalid_json: ") == 0);
  CHECK(Outcome("{'a': 1}").find("invalid_json: ") == 0);
  CHECK(Outcome("{\"a\": \"x\ty\"}").find("invalid_json: ") == 0);
}

TEST_CASE("ParseJsonRecord: what UTF-8 forbids is found at its byte", "[quarantine]") {
  CHECK(Outcome("{\"a\": \"\xc3\xa9\xc0\xaf\"}") == "invalid_utf8: byte 0xc0 at 9 of the record");
  CHECK(Outcome("{\"a\": \"\xed\xa0\x80\"}") == "invalid_utf8: byte 0xed at 7 of the record");
  CHECK(Outcome("{\"a\": \"\xf4\x90\x80\x80\"}") == "invalid_utf8: byte 0xf4 at 7 of the record");
  CHECK(Outcome("{\"a\": \"\xe2\x82\"}") == "invalid_utf8: byte 0xe2 at 7 of the record");
}

TEST_CASE("ParseJsonRecord: surrogate pairs, U+2028 and an escaped NUL are good text (S02)",
          "[quarantine]") {
  CHECK(Outcome("{\"a\": \"\\ud83d\\ude00\"}") == "object");
  CHECK(Outcome("{\"a\": \"\xe2\x80\xa8\"}") == "object");
  CHECK(Outcome("{\"a\": \"\\u0000\"}") == "object");
  CHECK(Outcome("{\"a\": \"\\\\ud800\"}") == "object");  // a backslash, then letters
  CHECK(Outcome(" {\"a\": 1} \r") == "object");
}

std::string Canonical(const std::string& json) {
  simdjson::dom::parser parser;
  std::string out;
  AppendCanonicalJson(parser.parse(json), &out);
  return out;
}

TEST_CASE("AppendCanonicalJson: writes what Python's json.dumps writes", "[preprocess]") {
  // Expected strings are those of json.dumps(json.loads(...), ensure_ascii=False).
  CHECK(Canonical("{\"b\":[1,2.0,-3],\"a\" : {}}") == "{\"b\": [1, 2.0, -3], \"a\": {}}");
  CHECK(Canonical("[true,false,null,[]]") == "[true, false, null, []]");
  CHECK(Canonical("\"\\u00e9\\u0001\\n\\\"\\/\\\\\\b\\f\\r\\t\"") ==
        "\"\xc3\xa9\\u0001\\n\\\"/\\\\\\b\\f\\r\\t\"");
  CHECK(Canonical("[18446744073709551615, -9223372036854775808]") ==
        "[18446744073709551615, -9223372036854775808]");
}

TEST_CASE("FormatDouble: writes what Python's repr writes", "[preprocess]") {
  CHECK(FormatDouble(0.0) == "0.0");
  CHECK(FormatDouble(-0.0) == "-0.0");
  CHECK(FormatDouble(1.0) == "1.0");
  CHECK(FormatDouble(0.1) == "0.1");
  CHECK(FormatDouble(100000.0) == "100000.0");
  CHECK(FormatDouble(1e15) == "1000000000000000.0");
  CHECK(FormatDouble(1e16) == "1e+16");
  CHECK(FormatDouble(1.5e300) == "1.5e+300");
  CHECK(FormatDouble(0.0001) == "0.0001");
  CHECK(FormatDouble(0.00001) == "1e-05");
  CHECK(FormatDouble(9007199254740993.0) == "9007199254740992.0");
  CHECK(FormatDouble(21.5) == "21.5");
}

TEST_CASE("Quoted: long text is cut between characters", "[quarantine]") {
  CHECK(Quoted("a\nb") == "\"a\\nb\"");
  const std::string long_text = std::string(39, 'x') + "\xc3\xa9" + "yyy";
  CHECK(Quoted(long_text) == "\"" + std::string(39, 'x') + "...\"");
}

}  // namespace
}  // namespace odb
