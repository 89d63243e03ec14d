#include "server/preprocess/quarantine.h"

#include <catch2/catch.hpp>
#include <cctype>
#include <set>
#include <string>

namespace odb {
namespace {

TEST_CASE("Quarantine: each reason has a stable snake_case name that reads back", "[quarantine]") {
  std::set<std::string> names;
  for (const QuarantineReason reason : AllQuarantineReasons()) {
    const std::string name(QuarantineReasonName(reason));
    INFO(name);
    CHECK(names.insert(name).second);
    for (const char c : name) CHECK((std::islower(c) || std::isdigit(c) || c == '_'));
    CHECK(ParseQuarantineReason(name) == reason);
    CHECK_FALSE(QuarantineReasonText(reason).empty());
    // The table is indexed by the number.
    CHECK(AllQuarantineReasons()[static_cast<size_t>(reason)] == reason);
  }
  CHECK(names.size() == kNumQuarantineReasons);
  CHECK(ParseQuarantineReason("no_such_reason") == std::nullopt);
}

TEST_CASE("Quarantine: an entry names file, line, byte, reason and what was found",
          "[quarantine]") {
  QuarantineEntry entry;
  entry.file = "data.jsonl";
  entry.line = 417;
  entry.byte = 88112;
  entry.reason = QuarantineReason::kInvalidUtf8;

  CHECK(entry.ToString() == "data.jsonl:417 (byte 88,112) invalid_utf8");
  entry.detail = "byte 0xff at 12 of the record";
  CHECK(entry.ToString() ==
        "data.jsonl:417 (byte 88,112) invalid_utf8: byte 0xff at 12 of the record");
}

TEST_CASE("WithThousandsSeparators: a comma before every third digit", "[quarantine]") {
  CHECK(WithThousandsSeparators(0) == "0");
  CHECK(WithThousandsSeparators(999) == "999");
  CHECK(WithThousandsSeparators(1000) == "1,000");
  CHECK(WithThousandsSeparators(1234567) == "1,234,567");
  CHECK(WithThousandsSeparators(-100) == "-100");
  CHECK(WithThousandsSeparators(-1000) == "-1,000");
}

}  // namespace
}  // namespace odb
