#include "server/sources/record_scanner.h"

#include <catch2/catch.hpp>
#include <string>
#include <tuple>

namespace odb {
namespace {

using Found = std::tuple<std::string, int32_t>;  // text, line

// Scans `text` in pieces of `piece` bytes.
template <typename Scanner>
std::vector<Found> Scan(const std::string& text, size_t piece, bool* closed = nullptr) {
  std::vector<ScannedRecord> records;
  Scanner scanner(0, &records);
  for (size_t at = 0; at < text.size(); at += piece) {
    scanner.Feed(absl::string_view(text).substr(at, piece));
  }
  scanner.Finish();
  if constexpr (std::is_same_v<Scanner, ArrayScanner>) {
    if (closed != nullptr) *closed = scanner.closed();
  }
  std::vector<Found> found;
  for (const ScannedRecord& record : records) {
    found.emplace_back(
        text.substr(static_cast<size_t>(record.offset), static_cast<size_t>(record.bytes)),
        record.line);
  }
  return found;
}

TEST_CASE("LineScanner: blank lines count as lines and are no records", "[sources]") {
  const size_t piece = GENERATE(1u, 2u, 3u, 1000u);
  const auto found = Scan<LineScanner>("a\r\n\r\n \t\nbc\n\nd\re", piece);

  CHECK(found == std::vector<Found>{{"a", 1}, {"bc", 4}, {"d\re", 6}});
}

TEST_CASE("LineScanner: a last line without its end is a record, an empty one is not",
          "[sources]") {
  CHECK(Scan<LineScanner>("a\nb", 1) == std::vector<Found>{{"a", 1}, {"b", 2}});
  CHECK(Scan<LineScanner>("a\nb\n", 1) == std::vector<Found>{{"a", 1}, {"b", 2}});
  CHECK(Scan<LineScanner>("a\r\nb\r", 1) == std::vector<Found>{{"a", 1}, {"b", 2}});
  CHECK(Scan<LineScanner>("", 1).empty());
  CHECK(Scan<LineScanner>("\r\n \n", 1).empty());
}

TEST_CASE("LineScanner: U+2028, U+0085 and form feeds end no line", "[sources]") {
  const std::string line = "x\xe2\x80\xa8y\xc2\x85z\fq";

  CHECK(Scan<LineScanner>(line + "\n", 3) == std::vector<Found>{{line, 1}});
}

TEST_CASE("ArrayScanner: elements end at commas and brackets outside strings only", "[sources]") {
  const size_t piece = GENERATE(1u, 2u, 5u, 1000u);
  const std::string text =
      "\n[ {\"a\": \"],}{[\"},\n  {\"b\": \"\\\"], {\\\\\"} , [1, [2]],\n3,\"x,y\"]\n";
  bool closed = false;

  const auto found = Scan<ArrayScanner>(text, piece, &closed);

  CHECK(found == std::vector<Found>{{"{\"a\": \"],}{[\"}", 2},
                                    {"{\"b\": \"\\\"], {\\\\\"}", 3},
                                    {"[1, [2]]", 3},
                                    {"3", 4},
                                    {"\"x,y\"", 4}});
  CHECK(closed);
}

TEST_CASE("ArrayScanner: an empty array has no records and a trailing comma adds none",
          "[sources]") {
  CHECK(Scan<ArrayScanner>("[]", 1).empty());
  CHECK(Scan<ArrayScanner>(" [ \n ] ", 1).empty());
  CHECK(Scan<ArrayScanner>("[{},]", 1) == std::vector<Found>{{"{}", 1}});
}

TEST_CASE("ArrayScanner: two commas in a row make an empty record", "[sources]") {
  CHECK(Scan<ArrayScanner>("[{},,{}]", 1) == std::vector<Found>{{"{}", 1}, {"", 1}, {"{}", 1}});
}

TEST_CASE("ArrayScanner: of a cut file the rest is the last record", "[sources]") {
  bool closed = true;

  CHECK(Scan<ArrayScanner>("[{\"a\": 1}, {\"b\": \"c ", 2, &closed) ==
        std::vector<Found>{{"{\"a\": 1}", 1}, {"{\"b\": \"c ", 1}});
  CHECK_FALSE(closed);
  CHECK(Scan<ArrayScanner>("[{\"a\": 1}", 2, &closed) == std::vector<Found>{{"{\"a\": 1}", 1}});
  CHECK_FALSE(closed);
}

TEST_CASE("ArrayScanner: what follows the array is one more record", "[sources]") {
  bool closed = true;

  CHECK(Scan<ArrayScanner>("[1]\n[2, 3] \n", 2, &closed) ==
        std::vector<Found>{{"1", 1}, {"[2, 3]", 2}});
  CHECK_FALSE(closed);
}

}  // namespace
}  // namespace odb
