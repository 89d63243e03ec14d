#include "aligner/transport/gloo/interface.h"

#include <catch2/catch.hpp>

#include "tests/support/status_matchers.h"

namespace odb {
namespace {

const std::vector<InterfaceAddress>& Candidates() {
  static const auto* candidates = new std::vector<InterfaceAddress>{
      {"lo", "127.0.0.1", /*loopback=*/true},
      {"lo", "::1", /*loopback=*/true},
      {"eth0", "fd00::2"},
      {"eth0", "10.0.0.5"},
      {"ib0", "10.1.0.5"},
  };
  return *candidates;
}

TEST_CASE("S17: a list of interface names is refused with the candidates", "[aligner][interface]") {
  const auto wanted = GENERATE("^lo,docker0", "eth0,ib0", "^lo");
  const auto chosen = ChooseInterface({wanted, /*multi_node=*/false, ""}, Candidates());

  CHECK_THAT(chosen.status(), HasCode(absl::StatusCode::kInvalidArgument));
  CHECK_THAT(chosen.status(), HasMessage("one interface name wanted, got a list"));
  CHECK_THAT(chosen.status(), HasMessage("eth0 (10.0.0.5)"));
}

TEST_CASE("S17: a wrong interface name is answered with the candidates", "[aligner][interface]") {
  const auto chosen = ChooseInterface({"eth7", /*multi_node=*/true, "10.0.0.5"}, Candidates());

  CHECK_THAT(chosen.status(), HasCode(absl::StatusCode::kInvalidArgument));
  CHECK_THAT(chosen.status(), HasMessage("no interface \"eth7\" is up here"));
  CHECK_THAT(chosen.status(), HasMessage("ib0 (10.1.0.5)"));
}

TEST_CASE("S17: unset, the interface that routes to the arbiter is chosen",
          "[aligner][interface]") {
  const auto chosen = ChooseInterface({"", /*multi_node=*/true, "10.1.0.5"}, Candidates());

  REQUIRE(chosen.ok());
  CHECK(*chosen == InterfaceAddress{"ib0", "10.1.0.5"});
}

TEST_CASE("S17: loopback is refused with more than one node", "[aligner][interface]") {
  const auto chosen = ChooseInterface({"lo", /*multi_node=*/true, "10.0.0.5"}, Candidates());

  CHECK_THAT(chosen.status(), HasCode(absl::StatusCode::kInvalidArgument));
  CHECK_THAT(chosen.status(), HasMessage("lo (127.0.0.1) is loopback"));
}

TEST_CASE("S17: loopback serves several nodes whose arbiter is on it", "[aligner][interface]") {
  const auto chosen = ChooseInterface({"", /*multi_node=*/true, "127.0.0.1"}, Candidates());

  REQUIRE(chosen.ok());
  CHECK(chosen->name == "lo");
}

TEST_CASE("ChooseInterface: one node stays on loopback", "[aligner][interface]") {
  const auto chosen = ChooseInterface({"", /*multi_node=*/false, ""}, Candidates());

  REQUIRE(chosen.ok());
  CHECK(*chosen == InterfaceAddress{"lo", "127.0.0.1"});
}

TEST_CASE("ChooseInterface: a name gives its IPv4 address, an address gives itself",
          "[aligner][interface]") {
  const auto by_name = ChooseInterface({"eth0", /*multi_node=*/true, "10.0.0.5"}, Candidates());
  const auto by_address = ChooseInterface({"fd00::2", /*multi_node=*/true, ""}, Candidates());

  REQUIRE(by_name.ok());
  CHECK(by_name->address == "10.0.0.5");
  REQUIRE(by_address.ok());
  CHECK(by_address->name == "eth0");
}

TEST_CASE("LocalAddressTowards: loopback is reached from loopback", "[aligner][interface]") {
  const auto ipv4 = LocalAddressTowards("127.0.0.1:29461");
  const auto socket = LocalAddressTowards("unix:/tmp/odbd.sock");

  REQUIRE(ipv4.ok());
  CHECK(*ipv4 == "127.0.0.1");
  REQUIRE(socket.ok());
  CHECK(socket->empty());
  CHECK(LocalAddressTowards("0.0.0.0:29461").value() == "");
  CHECK(LocalAddressTowards("[::]:29461").value() == "");
  CHECK_THAT(LocalAddressTowards("localhost").status(), HasMessage("must be host:port"));
}

TEST_CASE("ListInterfaces: this machine has loopback", "[aligner][interface]") {
  const auto interfaces = ListInterfaces();

  REQUIRE(interfaces.ok());
  bool has_loopback = false;
  for (const InterfaceAddress& entry : *interfaces) has_loopback |= entry.loopback;
  CHECK(has_loopback);
}

}  // namespace
}  // namespace odb
