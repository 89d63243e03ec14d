#include "server/daemon/rendezvous_address.h"

#include <catch2/catch.hpp>

#include "tests/support/status_matchers.h"

namespace odb {
namespace {

Resolve Always(std::vector<std::string> addresses) {
  return [addresses](const std::string&) { return addresses; };
}

TEST_CASE("CheckReachable: a name that is loopback at this node is refused with one sentence",
          "[rendezvous]") {
  const absl::Status status = CheckReachable("node0:29461", Always({"127.0.1.1"}));

  CHECK_THAT(status, HasCode(absl::StatusCode::kFailedPrecondition));
  CHECK_THAT(status, HasMessage("rendezvous node0:29461: node0 is 127.0.1.1 at this node"));
  CHECK_THAT(CheckReachable("node0:29461", Always({"127.0.1.1", "::1"})),
             HasMessage("node0 is 127.0.1.1, ::1 at this node"));
}

TEST_CASE("CheckReachable: what others can reach, or what is meant to be loopback, is fine",
          "[rendezvous]") {
  CHECK(CheckReachable("node0:29461", Always({"127.0.1.1", "10.0.0.5"})).ok());
  CHECK(CheckReachable("10.0.0.5:29461", Always({"10.0.0.5"})).ok());
  CHECK(CheckReachable("127.0.0.1:29461", Always({"127.0.0.1"})).ok());
  CHECK(CheckReachable("localhost:29461", Always({"127.0.0.1"})).ok());
  CHECK(CheckReachable("[::1]:29461", Always({"::1"})).ok());
  CHECK(CheckReachable("unknown:29461", Always({})).ok());
}

TEST_CASE("ResolveHost: numbers stand for themselves", "[rendezvous]") {
  CHECK(ResolveHost("127.0.0.1") == std::vector<std::string>{"127.0.0.1"});
  CHECK(ResolveHost("no such host").empty());
}

}  // namespace
}  // namespace odb
