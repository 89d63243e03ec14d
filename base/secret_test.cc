#include "base/secret.h"

#include <catch2/catch.hpp>

namespace odb {
namespace {

TEST_CASE("SecretsEqual: equal bytes and nothing else", "[base]") {
  CHECK(SecretsEqual("", ""));
  CHECK(SecretsEqual("hunter2", "hunter2"));
  for (const char* other : {"", "hunter", "hunter3", "Hunter2", "hunter22"}) {
    CHECK_FALSE(SecretsEqual("hunter2", other));
  }
  CHECK_FALSE(SecretsEqual(absl::string_view("a\0b", 3), absl::string_view("a\0c", 3)));
}

}  // namespace
}  // namespace odb
