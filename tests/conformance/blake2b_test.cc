#include "tests/conformance/blake2b.h"

#include <catch2/catch.hpp>

#include "absl/strings/escaping.h"

namespace odb {
namespace {

TEST_CASE("Blake2b: RFC 7693, appendix A", "[conformance]") {
  CHECK(absl::BytesToHexString(Blake2b("abc", 64)) ==
        "ba80a53f981c4d0d6a2797b69f12f6e94c212f14685ac4b74b12bb6fdbffa2d1"
        "7d87c5392aab792dc252d5de4533cc9518d38aa8dbf1925ab92386edd4009923");
}

TEST_CASE("Blake2b: short digests and blocks that are full or several", "[conformance]") {
  // Values of Python's hashlib.blake2b(message, digest_size=8).
  CHECK(absl::BytesToHexString(Blake2b("", 8)) == "e4a6a0577479b2b4");
  CHECK(absl::BytesToHexString(Blake2b("abc", 8)) == "d8bb14d833d59559");
  CHECK(absl::BytesToHexString(Blake2b(std::string(128, 'x'), 8)) == "901ce374e8e12402");
  CHECK(absl::BytesToHexString(Blake2b(std::string(300, 'y'), 8)) == "ff49938aeb9a2bf9");
}

}  // namespace
}  // namespace odb
