#include "client/client_options.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <map>

#include "absl/strings/str_cat.h"
#include "tests/support/status_matchers.h"

namespace odb {
namespace {

EnvironmentLookup From(std::map<std::string, std::string> variables) {
  return [variables](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional<std::string>(found->second);
  };
}

TEST_CASE("ClientOptions: without torchrun the process is rank 0 of 1, a job of its own",
          "[client]") {
  const ClientOptions options = ClientOptions::FromLookup(From({})).value();

  CHECK(options.rank == 0);
  CHECK(options.world_size == 1);
  CHECK(options.trainer.pid == getpid());
  CHECK(options.trainer.start_time > 0);
  CHECK(options.agent.pid == getpid());
  CHECK(options.socket == absl::StrCat("/tmp/odbd-", getuid(), ".sock"));
  CHECK(options.Validate().ok());
}

TEST_CASE("ClientOptions: the transport comes from its variable", "[client]") {
  const auto transport = [](const char* text) {
    return ClientOptions::FromLookup(From({{"ODB_CLIENT_TRANSPORT", text}}));
  };
  CHECK(ClientOptions::FromLookup(From({}))->transport == Transport::kAuto);
  CHECK(transport("")->transport == Transport::kAuto);
  CHECK(transport("auto")->transport == Transport::kAuto);
  CHECK(transport("ring")->transport == Transport::kRing);
  CHECK(transport("stream")->transport == Transport::kStream);
  CHECK_THAT(transport("grpc").status(),
             HasMessage("ODB_CLIENT_TRANSPORT: transport must be auto, ring or stream, got"));
}

TEST_CASE(
    "ClientOptions: memory is pinned if a device is named, unless the variable says otherwise",
    "[client]") {
  const auto wants = [](const char* text, std::optional<int32_t> device) {
    ClientOptions options = ClientOptions::FromLookup(From({{"ODB_CLIENT_PIN", text}})).value();
    options.device = device;
    return options.wants_pinned();
  };
  CHECK_FALSE(ClientOptions::FromLookup(From({}))->wants_pinned());
  CHECK_FALSE(wants("", std::nullopt));
  CHECK(wants("", 0));
  CHECK(wants("auto", 1));
  CHECK(wants("on", std::nullopt));
  CHECK_FALSE(wants("off", 0));
  CHECK_THAT(ClientOptions::FromLookup(From({{"ODB_CLIENT_PIN", "yes"}})).status(),
             HasMessage("ODB_CLIENT_PIN: pin must be auto, on or off, got \"yes\""));
}

TEST_CASE("ClientOptions: torchrun's variables are taken as they are", "[client]") {
  const ClientOptions options = ClientOptions::FromLookup(From({{"ODB_SOCKET", "/run/odbd.sock"},
                                                                {"RANK", "5"},
                                                                {"WORLD_SIZE", "8"},
                                                                {"LOCAL_RANK", "1"},
                                                                {"LOCAL_WORLD_SIZE", "4"},
                                                                {"GROUP_RANK", "1"},
                                                                {"MASTER_ADDR", "10.0.0.1"},
                                                                {"MASTER_PORT", "29500"},
                                                                {"TORCHELASTIC_RUN_ID", "none"}}))
                                    .value();

  CHECK(options.socket == "/run/odbd.sock");
  CHECK(options.rank == 5);
  CHECK(options.local_rank == 1);
  CHECK(options.local_world_size == 4);
  CHECK(options.group_rank == 1);
  CHECK(options.master_addr == "10.0.0.1");
  CHECK(options.master_port == 29500);
  CHECK(options.run_id == "none");
  CHECK(options.effective_dp_rank() == 5);
  CHECK(options.effective_dp_size() == 8);
  // This test runs without the variable in any ancestor's environment: the parent is the agent.
  CHECK(options.agent.pid != getpid());
  CHECK(options.agent.start_time > 0);
}

TEST_CASE("ClientOptions: replicas share the rank's place among the data-parallel ranks",
          "[client]") {
  ClientOptions options =
      ClientOptions::FromLookup(From({{"RANK", "5"}, {"WORLD_SIZE", "8"}})).value();
  options.replicas = 2;

  CHECK(options.effective_dp_rank() == 2);  // 5 / 2
  CHECK(options.effective_dp_size() == 4);
  CHECK(options.effective_replica() == 1);
  CHECK(options.Validate().ok());
}

TEST_CASE("ClientOptions: XDG_RUNTIME_DIR holds the socket where ODB_SOCKET is not set",
          "[client]") {
  CHECK(ClientOptions::FromLookup(From({{"XDG_RUNTIME_DIR", "/run/user/7"}})).value().socket ==
        "/run/user/7/odbd.sock");
}

TEST_CASE("ClientOptions: a variable that is no number is named", "[client]") {
  const absl::Status status = ClientOptions::FromLookup(From({{"WORLD_SIZE", "two"}})).status();
  CHECK_THAT(status, HasCode(absl::StatusCode::kInvalidArgument));
  CHECK_THAT(status, HasMessage("WORLD_SIZE must be a whole number, got \"two\""));
}

TEST_CASE("ClientOptions: values out of range are refused with what is allowed", "[client]") {
  ClientOptions options = ClientOptions::FromLookup(From({})).value();
  SECTION("rank") {
    options.rank = 1;
    CHECK_THAT(options.Validate(), HasMessage("rank must be between 0 and 0, got 1"));
  }
  SECTION("socket") {
    options.socket = std::string(108, 'x');
    CHECK_THAT(options.Validate(), HasMessage("socket must have 1 to 107 bytes, got 108"));
  }
  SECTION("device") {
    options.device = -1;
    CHECK_THAT(options.Validate(), HasMessage("device must be between 0 and 1024, got -1"));
  }
  SECTION("prefetch") {
    options.prefetch = 0;
    CHECK_THAT(options.Validate(), HasMessage("prefetch must be between 1 and 65536, got 0"));
  }
}

TEST_CASE("ClientOptions: over TCP a host and a port are named, and no ring is possible",
          "[client]") {
  ClientOptions options = ClientOptions::FromLookup(From({{"ODB_SOCKET", "tcp://node7:29462"},
                                                          {"ODB_CLIENT_TOKEN", "sesame"}}))
                              .value();
  CHECK(options.over_tcp());
  CHECK(options.job_token == "sesame");
  CHECK(options.Validate().ok());
  options.socket = "tcp://[2001:db8::7]:29462";
  CHECK(options.Validate().ok());
  for (const char* socket : {"tcp://", "tcp://node7", "tcp://:29462", "tcp://node7:0",
                             "tcp://node7:65536", "tcp://node7:x"}) {
    options.socket = socket;
    CHECK_THAT(options.Validate(),
               HasMessage("socket must be tcp://host:port with a port from 1 to 65535, got \""));
  }
  options.socket = "tcp://node7:29462";
  options.transport = Transport::kRing;
  CHECK_THAT(options.Validate(), HasMessage("transport must be auto or stream with a socket of "
                                            "tcp://host:port, got ring with tcp://node7:29462"));
}

TEST_CASE("ParseIdleMode: an unknown mode is answered with the known ones", "[client]") {
  CHECK(ParseIdleMode("skip").value() == IdleMode::kSkip);
  CHECK_THAT(ParseIdleMode("none").status(), HasMessage("stand-in, skip or raw"));
}

}  // namespace
}  // namespace odb
