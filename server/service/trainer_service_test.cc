#include "server/service/trainer_service.h"

#include <grpcpp/grpcpp.h>

#include <catch2/catch.hpp>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/os/mutex.h"
#include "tests/support/wait_until.h"

namespace odb {
namespace {

absl::Time Soon() { return absl::Now() + absl::Seconds(20); }

// Hosts session 1; its log and what it gives out are the test's.
class FakeHost final : public SessionHost {
 public:
  absl::StatusOr<v1::OpenSessionReply> OpenSession(
      const v1::OpenSessionRequest& request, const std::function<bool()>& cancelled) override {
    if (request.rank() < 0) return absl::InvalidArgumentError("rank must be >= 0, got -1");
    if (request.stream() == "slow") WaitUntil(cancelled, absl::Now() + absl::Minutes(1));
    if (cancelled()) Log("cancelled");
    v1::OpenSessionReply reply;
    reply.set_session_id(1);
    return reply;
  }

  absl::StatusOr<std::unique_ptr<SessionStream>> Attach(uint64_t session_id,
                                                        int64_t last_step_id) override {
    if (session_id != 1) return absl::NotFoundError("there is no session 2");
    Log(absl::StrCat("attach ", last_step_id));
    return std::unique_ptr<SessionStream>(new Stream(this));
  }

  void Log(const std::string& line) {
    MutexLock lock(&mutex_);
    log_.push_back(line);
    changed_.NotifyAll();
  }
  bool WaitForLog(const std::string& line) {
    MutexLock lock(&mutex_);
    while (std::find(log_.begin(), log_.end(), line) == log_.end()) {
      if (changed_.WaitUntil(&mutex_, Soon())) return false;
    }
    return true;
  }
  void Give(absl::StatusOr<v1::TrainerUpdate> update) {
    MutexLock lock(&mutex_);
    updates_.push_back(std::move(update));
    changed_.NotifyAll();
  }

 private:
  class Stream final : public SessionStream {
   public:
    explicit Stream(FakeHost* host) : host_(host) {}
    ~Stream() override { host_->Log("freed"); }
    absl::Status OnEvent(const v1::TrainerEvent& event) override {
      host_->Log(event.ShortDebugString());
      if (event.has_attach()) return absl::InvalidArgumentError("attached already");
      return absl::OkStatus();
    }
    absl::StatusOr<v1::TrainerUpdate> NextUpdate(absl::Time deadline) override {
      return host_->Take(deadline);
    }
    void End() override { host_->Log("end"); }

   private:
    FakeHost* const host_;
  };

  absl::StatusOr<v1::TrainerUpdate> Take(absl::Time deadline) {
    MutexLock lock(&mutex_);
    while (updates_.empty()) {
      if (changed_.WaitUntil(&mutex_, deadline)) return absl::DeadlineExceededError("nothing yet");
    }
    auto update = updates_.front();
    updates_.erase(updates_.begin());
    return update;
  }

  Mutex mutex_;
  CondVar changed_;
  std::vector<std::string> log_ ABSL_GUARDED_BY(mutex_);
  std::vector<absl::StatusOr<v1::TrainerUpdate>> updates_ ABSL_GUARDED_BY(mutex_);
};

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

  FakeHost host;
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
