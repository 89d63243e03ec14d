#include <catch2/catch.hpp>

#include "client/c_api/odb_client.h"
#include "client/testing/fake_daemon.h"

extern "C" int odb_c99_test(const char* socket);  // c99_test.c

namespace odb {
namespace {

TEST_CASE("C API: a trainer in C99 gets its steps, its errors and its memory", "[client][c_api]") {
  const TemporarySocket socket;
  const auto daemon = FakeDaemon::Start(socket.path(), FakeScript{}).value();
  CHECK(odb_c99_test(socket.path().c_str()) == 0);
}

TEST_CASE("C API: waiting is no error and says why", "[client][c_api]") {
  const TemporarySocket socket;
  FakeScript script;
  script.hang_at = 0;
  const auto daemon = FakeDaemon::Start(socket.path(), script).value();
  odb_client* client = odb_client_new();
  REQUIRE(odb_client_set_option(client, "socket", socket.path().c_str()) == ODB_OK);
  REQUIRE(odb_client_open(client) == ODB_OK);
  REQUIRE(odb_client_start_epoch(client, 0, 0, 0) == ODB_OK);
  odb_step* step = nullptr;

  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  do {
    REQUIRE(odb_client_next(client, 5, &step) == ODB_TIMEOUT);
  } while (std::string(odb_client_waiting_text(client)).empty() && absl::Now() < deadline);
  CHECK(std::string(odb_client_waiting_text(client)) ==
        "round 1 waits for rank 3: pool starved (4.1 s)");
  odb_client_free(client);
}

TEST_CASE("C API: memory that was to be pinned is, or there is one sentence why not",
          "[client][c_api][cuda]") {
  const TemporarySocket socket;
  const auto daemon = FakeDaemon::Start(socket.path(), FakeScript{}).value();
  odb_client* client = odb_client_new();
  REQUIRE(odb_client_set_option(client, "socket", socket.path().c_str()) == ODB_OK);
  SECTION("nobody asked") {
    REQUIRE(odb_client_open(client) == ODB_OK);
    CHECK(odb_client_pinned(client) == 0);
    CHECK(std::string(odb_client_why_not_pinned(client)).empty());
  }
  SECTION("a device was named") {
    REQUIRE(odb_client_set_option(client, "device", "0") == ODB_OK);
    REQUIRE(odb_client_open(client) == ODB_OK);
    const std::string why = odb_client_why_not_pinned(client);
    CHECK((odb_client_pinned(client) == 1) == why.empty());  // as this machine has it
    WARN(why);
    // A step comes either way.
    odb_step* step = nullptr;
    REQUIRE(odb_client_start_epoch(client, 0, 0, 0) == ODB_OK);
    REQUIRE(odb_client_next(client, -1, &step) == ODB_OK);
    odb_step_release(step);
  }
  odb_client_free(client);
}

TEST_CASE("C API: the largest steps can be tried before the first one", "[client][c_api]") {
  const TemporarySocket socket;
  FakeScript script;
  script.probes = 1;
  const auto daemon = FakeDaemon::Start(socket.path(), script).value();
  odb_client* client = odb_client_new();
  odb_step* probe = nullptr;
  CHECK(odb_client_probe(client, 0, &probe) == ODB_FAILED_PRECONDITION);
  REQUIRE(odb_client_set_option(client, "socket", socket.path().c_str()) == ODB_OK);
  REQUIRE(odb_client_open(client) == ODB_OK);

  REQUIRE(odb_client_probe(client, 0, &probe) == ODB_OK);
  odb_tensor tensor;
  REQUIRE(odb_step_get_tensor(probe, 0, &tensor, sizeof(tensor)) == ODB_OK);
  CHECK(tensor.bytes == 8 * 8);
  CHECK(static_cast<const int64_t*>(tensor.data)[7] == 3);
  CHECK(odb_step_is_stand_in(probe) == 0);
  CHECK(odb_step_sample_ids(probe, nullptr, 0) == 0);
  odb_step_release(probe);
  CHECK(odb_client_probe(client, -1, &probe) == ODB_OUT_OF_RANGE);
  CHECK(odb_client_probe(client, 1, &probe) == ODB_END);
  CHECK(probe == nullptr);
  odb_client_free(client);
}

TEST_CASE("C API: a program of another age gets the fields that it knows", "[client][c_api]") {
  const TemporarySocket socket;
  const auto daemon = FakeDaemon::Start(socket.path(), FakeScript{}).value();
  odb_client* client = odb_client_new();
  REQUIRE(odb_client_set_option(client, "socket", socket.path().c_str()) == ODB_OK);
  REQUIRE(odb_client_open(client) == ODB_OK);

  struct {
    uint64_t session_id;
    uint64_t behind;
  } old = {0, 77};
  REQUIRE(odb_client_session(client, reinterpret_cast<odb_session_info*>(&old),
                             sizeof(old.session_id)) == ODB_OK);
  CHECK(old.session_id == 1);
  CHECK(old.behind == 77);
  odb_client_free(client);
}

}  // namespace
}  // namespace odb
