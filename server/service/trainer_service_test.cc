#include "server/service/trainer_service.h"

#include <grpcpp/grpcpp.h>

#include <catch2/catch.hpp>
#include <memory>

#include "absl/time/clock.h"
#include "server/service/testing/fake_session_host.h"

namespace odb {
namespace {

absl::Time Soon() { return absl::Now() + absl::Seconds(20); }

struct Fixture {
  Fixture() : service(&host) {
    grpc::ServerBuilder builder;
    builder.RegisterService(&service);
    server = builder.BuildAndStart();
    stub = v1::TrainerService::NewStub(server->InProcessChannel({}));
    context.set_deadline(absl::ToChronoTime(Soon()));
  }
  ~Fixture() {
    stream.reset();
    server->Shutdown(std::chrono::system_clock::now());
    server->Wait();
  }

  void Attach(uint64_t session) {
    stream = stub->Steps(&context);
    v1::TrainerEvent event;
    event.mutable_attach()->set_session_id(session);
    stream->Write(event);
  }

  FakeSessionHost host;
  TrainerServiceImpl service;
  std::unique_ptr<grpc::Server> server;
  std::unique_ptr<v1::TrainerService::Stub> stub;
  grpc::ClientContext context;
  std::unique_ptr<grpc::ClientReaderWriter<v1::TrainerEvent, v1::TrainerUpdate>> stream;
};

v1::TrainerUpdate StepUpdate(int64_t id) {
  v1::TrainerUpdate update;
  update.mutable_step()->set_step_id(id);
  return update;
}

TEST_CASE("TrainerService: updates go out in order and events come in", "[trainer_service]") {
  Fixture f;
  f.Attach(1);
  for (int i = 1; i <= 100; ++i) f.host.Give(StepUpdate(i));

  v1::TrainerUpdate update;
  for (int i = 1; i <= 100; ++i) {
    REQUIRE(f.stream->Read(&update));
    REQUIRE(update.step().step_id() == i);
  }
  v1::TrainerEvent event;
  event.mutable_returned()->add_step_ids(1);
  CHECK(f.stream->Write(event));
  CHECK(f.host.WaitForLog("returned { step_ids: 1 }"));

  f.stream->WritesDone();
  CHECK(!f.stream->Read(&update));
  CHECK(f.stream->Finish().ok());
  CHECK(f.host.WaitForLog("end"));
}

TEST_CASE("TrainerService: the host's error ends a stream whose client may still send",
          "[trainer_service]") {
  Fixture f;
  f.Attach(1);
  f.host.Give(StepUpdate(1));
  f.host.Give(absl::AbortedError("fenced: session 1 of rank 0 superseded by session 2"));

  v1::TrainerUpdate update;
  CHECK(f.stream->Read(&update));
  CHECK(!f.stream->Read(&update));
  const grpc::Status status = f.stream->Finish();
  CHECK(status.error_code() == grpc::StatusCode::ABORTED);
  CHECK(status.error_message() == "fenced: session 1 of rank 0 superseded by session 2");
}

TEST_CASE("TrainerService: an event that the host refuses ends the stream", "[trainer_service]") {
  Fixture f;
  f.Attach(1);
  v1::TrainerEvent event;
  event.mutable_attach();
  f.stream->Write(event);

  v1::TrainerUpdate update;
  CHECK(!f.stream->Read(&update));
  CHECK(f.stream->Finish().error_message() == "attached already");
}

TEST_CASE("TrainerService: the first event must be attach, to a session that is there",
          "[trainer_service]") {
  Fixture f;
  SECTION("another event") {
    f.stream = f.stub->Steps(&f.context);
    f.stream->Write(v1::TrainerEvent());
    CHECK(f.stream->Finish().error_message() == "the first event of Steps must be attach");
  }
  SECTION("no event") {
    f.stream = f.stub->Steps(&f.context);
    f.stream->WritesDone();
    CHECK(f.stream->Finish().error_message() == "the first event of Steps must be attach");
  }
  SECTION("no session") {
    f.Attach(2);
    CHECK(f.stream->Finish().error_message() == "there is no session 2");
  }
}

TEST_CASE("TrainerService: a client that cancels ends its stream", "[trainer_service]") {
  Fixture f;
  f.Attach(1);
  REQUIRE(f.host.WaitForLog("attach 0"));

  f.context.TryCancel();

  CHECK(f.host.WaitForLog("end"));
  CHECK(f.stream->Finish().error_code() == grpc::StatusCode::CANCELLED);
}

TEST_CASE("TrainerService: a shutdown ends streams that wait", "[trainer_service]") {
  Fixture f;
  f.Attach(1);
  REQUIRE(f.host.WaitForLog("attach 0"));

  f.server->Shutdown(std::chrono::system_clock::now());
  f.server->Wait();

  CHECK(f.host.WaitForLog("end"));
  CHECK(!f.stream->Finish().ok());
}

TEST_CASE("TrainerService: OpenSession answers with the host's words, or notices a cancel",
          "[trainer_service]") {
  Fixture f;
  v1::OpenSessionRequest request;
  v1::OpenSessionReply reply;
  SECTION("a session") {
    CHECK(f.stub->OpenSession(&f.context, request, &reply).ok());
    CHECK(reply.session_id() == 1);
  }
  SECTION("a refusal") {
    request.set_rank(-1);
    const grpc::Status status = f.stub->OpenSession(&f.context, request, &reply);
    CHECK(status.error_code() == grpc::StatusCode::INVALID_ARGUMENT);
    CHECK(status.error_message() == "rank must be >= 0, got -1");
  }
  SECTION("a client that gives up") {
    grpc::ClientContext brief;
    brief.set_deadline(absl::ToChronoTime(absl::Now() + absl::Milliseconds(50)));
    request.set_stream("slow");
    CHECK(f.stub->OpenSession(&brief, request, &reply).error_code() ==
          grpc::StatusCode::DEADLINE_EXCEEDED);
    CHECK(f.host.WaitForLog("cancelled"));
  }
}

TEST_CASE("F10: a stream that is over is freed at once, with all that it holds",
          "[trainer_service]") {
  Fixture f;
  f.Attach(1);
  f.host.Give(absl::CancelledError("superseded"));

  v1::TrainerUpdate update;
  CHECK_FALSE(f.stream->Read(&update));
  f.stream->Finish();

  // No other call comes.
  CHECK(f.host.WaitForLog("freed"));
}

}  // namespace
}  // namespace odb
