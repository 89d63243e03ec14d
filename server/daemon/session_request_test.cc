#include "server/daemon/session_request.h"

#include <catch2/catch.hpp>
#include <functional>

#include "tests/support/status_matchers.h"

namespace odb {
namespace {

v1::OpenSessionRequest Request() {
  v1::OpenSessionRequest request;
  request.set_wire_version(1);
  request.mutable_job()->set_run_id("none");
  request.mutable_job()->set_master_addr("node0");
  request.mutable_job()->set_master_port(29500);
  request.mutable_job()->set_agent_pid(7);
  request.mutable_job()->set_agent_start_time(8);
  request.set_rank(3);
  request.set_world_size(4);
  request.set_local_rank(1);
  request.set_local_world_size(2);
  request.set_group_rank(1);
  request.set_dp_rank(3);
  request.set_dp_size(4);
  request.set_replicas(1);
  request.set_pid(100);
  return request;
}

TEST_CASE("SessionRequest: a field out of range is named with what is allowed", "[session]") {
  CHECK(CheckSessionRequest(Request(), v1::Config()).ok());

  struct Case {
    std::function<void(v1::OpenSessionRequest*)> change;
    std::string message;
  };
  const std::vector<Case> cases = {
      {[](auto* r) { r->set_wire_version(9); },
       "the client speaks wire version 9, this odbd 1: install the same release of both"},
      {[](auto* r) { r->set_world_size(0); }, "WORLD_SIZE must be from 1 to 65536, got 0"},
      {[](auto* r) { r->set_rank(4); }, "RANK must be from 0 to 3, got 4"},
      {[](auto* r) { r->set_local_world_size(5); }, "LOCAL_WORLD_SIZE must be from 1 to 4, got 5"},
      {[](auto* r) { r->set_local_rank(2); }, "LOCAL_RANK must be from 0 to 1, got 2"},
      {[](auto* r) { r->set_dp_size(5); }, "dp_size must be from 1 to 4, got 5"},
      {[](auto* r) { r->set_dp_rank(-1); }, "dp_rank must be from 0 to 3, got -1"},
      {[](auto* r) { r->set_replicas(0); }, "replicas must be from 1 to 4, got 0"},
      {[](auto* r) { r->set_replica(1); }, "replica must be from 0 to 0, got 1"},
      {[](auto* r) { r->set_replicas(2); }, "dp_size 4 x replicas 2 is more than WORLD_SIZE 4"},
      {[](auto* r) { r->set_pid(0); }, "pid must be from 1 to 2147483647, got 0"},
      {[](auto* r) { r->set_stream(std::string(300, 'x')); },
       "a stream or run id may have 256 bytes"},
  };
  for (const Case& c : cases) {
    v1::OpenSessionRequest request = Request();
    c.change(&request);
    const absl::Status status = CheckSessionRequest(request, v1::Config());
    CHECK_THAT(status, HasCode(absl::StatusCode::kInvalidArgument));
    CHECK(status.message() == c.message);
  }
}

TEST_CASE("SessionRequest: views must be as many as dp ranks", "[session]") {
  v1::Config config;
  config.add_views();
  config.add_views();
  CHECK(CheckSessionRequest(Request(), config).message() ==
        "views has 2 entries, but the job has dp_size 4; one entry per dp rank is wanted");
}

TEST_CASE("SessionRequest: dp ranks at a node follow from its share of the trainers", "[session]") {
  CHECK(ShapeOf(Request()).num_local_ranks() == 2);
  CHECK(ShapeOf(Request()).multi_node());
  // 8 trainers at one node, dp 2 x 4 replicas: both ranks are here.
  CHECK(JobShape{8, 8, 0, 2, 4}.num_local_ranks() == 2);
  CHECK(!JobShape{8, 8, 0, 2, 4}.multi_node());
  // 2 nodes x 8 trainers, dp 4 x 4 replicas: 4 x 8 / 16.
  CHECK(JobShape{16, 8, 1, 4, 4}.num_local_ranks() == 2);
  CHECK(JobShape{16, 8, 1, 1, 16}.num_local_ranks() == 1);
}

TEST_CASE("SessionRequest: launches are told apart by torchrun's agent", "[session]") {
  v1::OpenSessionRequest again = Request();
  again.mutable_job()->set_agent_start_time(9);
  CHECK(LocalJobKey(again) != LocalJobKey(Request()));
  v1::OpenSessionRequest other = Request();
  other.set_rank(2);
  other.set_pid(101);
  CHECK(LocalJobKey(other) == LocalJobKey(Request()));
  other.set_stream("eval");
  CHECK(LocalJobKey(other) != LocalJobKey(Request()));
}

TEST_CASE("SessionRequest: the shared key of several nodes knows no agent", "[session]") {
  v1::OpenSessionRequest elsewhere = Request();
  elsewhere.mutable_job()->set_agent_pid(99);
  CHECK(SharedJobKey(elsewhere, 2) == SharedJobKey(Request(), 1));
  CHECK(SharedJobKey(Request(), 1) == "none@node0:29500/train");

  v1::OpenSessionRequest one_node = Request();
  one_node.set_local_world_size(4);
  CHECK(SharedJobKey(one_node, 1) == "none@node0:29500/train.7#1");
  CHECK(SharedJobKey(one_node, 2) == "none@node0:29500/train.7#2");
}

TEST_CASE("SessionRequest: rendezvous is configured, or follows MASTER_ADDR", "[session]") {
  v1::Config config;
  CHECK(RendezvousAddress(Request(), config) == "node0:29461");
  config.set_rendezvous("10.0.0.1:5");
  CHECK(RendezvousAddress(Request(), config) == "10.0.0.1:5");
  CHECK(IsLoopback("127.0.0.1:5"));
  CHECK(IsLoopback("[::1]:5"));
  CHECK(IsLoopback("localhost:5"));
  CHECK(!IsLoopback("10.0.0.1:5"));
  CHECK(!IsLoopback("node0:5"));
  CHECK(!IsLoopback("0.0.0.0:5"));
  CHECK(!IsLoopback("127.example.com:5"));
  CHECK(IsLoopbackNumber("::ffff:127.0.0.1"));
}

TEST_CASE("SessionRequest: the first difference in shape is named", "[session]") {
  CHECK(CheckSameShape({4, 2, 0, 4, 1}, {4, 2, 0, 4, 1}).ok());
  CHECK(CheckSameShape({4, 2, 0, 4, 1}, {4, 2, 0, 2, 1}).message() ==
        "the job's other trainers have dp_size 4, this one has 2");
}

TEST_CASE("SessionRequest: who reads alone is the one rank of a job that its RANK names",
          "[session_request]") {
  v1::OpenSessionRequest request;
  request.mutable_job()->set_run_id("none");
  request.set_stream("eval");
  request.set_rank(5);
  request.set_world_size(16);
  request.set_local_rank(1);
  request.set_local_world_size(4);
  request.set_group_rank(1);
  request.set_dp_rank(2);
  request.set_dp_size(8);
  request.set_replica(1);
  request.set_replicas(2);

  const v1::OpenSessionRequest alone = Alone(request);

  const JobShape shape = ShapeOf(alone);
  CHECK(shape.world_size == 1);
  CHECK(shape.local_world_size == 1);
  CHECK(shape.dp_size == 1);
  CHECK(shape.replicas == 1);
  CHECK(shape.node == 0);
  CHECK_FALSE(shape.multi_node());
  CHECK(alone.rank() == 5);
  CHECK(alone.dp_rank() == 0);
  CHECK(alone.replica() == 0);
  request.set_rank(4);
  CHECK(LocalJobKey(Alone(request)) != LocalJobKey(alone));
}

}  // namespace
}  // namespace odb
