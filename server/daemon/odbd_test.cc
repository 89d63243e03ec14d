// The real odbd with the real odb-aligner, as its processes meet: sockets, a trainer, signals.
#include <grpcpp/grpcpp.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <map>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/os/memfd.h"
#include "base/os/process_watch.h"
#include "base/os/timed_io.h"
#include "base/os/unix_socket.h"
#include "proto/odb/v1/status.grpc.pb.h"
#include "proto/odb/v1/trainer.grpc.pb.h"
#include "proto/wire/handover.h"
#include "server/daemon/exit_codes.h"
#include "server/daemon/odbd_process.h"
#include "tests/support/status_matchers.h"
#include "tests/support/wait_until.h"

namespace odb {
namespace {

constexpr int kRecords = 300;

absl::Time Soon() { return absl::Now() + absl::Seconds(60); }

std::string Program(const char* variable) {
  const char* path = std::getenv(variable);
  INFO(variable);
  REQUIRE(path != nullptr);
  return path;
}

// kRecords conversations of different lengths, one of them broken.
std::string WriteData(const std::string& directory) {
  const std::string path = directory + "/data.jsonl";
  std::ofstream file(path);
  for (int i = 0; i < kRecords; ++i) {
    file << R"({"instruction": "count to )" << i << R"(", "output": ")"
         << std::string(static_cast<size_t>(i * 7 % 400 + 1), 'x') << "\"}\n";
  }
  file << "{broken\n";
  return path;
}

struct Fixture {
  Fixture() : directory(*TempDirectory::Create("/tmp", "odbdata")) {
    auto started = Spawner::Start(SpawnerOptions());
    REQUIRE(started.ok());
    spawner = std::move(*started);
    data = WriteData(directory.path());
  }

  std::unique_ptr<OdbdProcess> Start(std::vector<std::string> arguments) {
    arguments.push_back("--data=" + data);
    arguments.push_back("--aligner-path=" + Program("ODB_TEST_ALIGNER"));
    auto odbd = OdbdProcess::Start(spawner.get(), Program("ODB_TEST_ODBD"), std::move(arguments));
    REQUIRE(odbd.ok());
    return std::move(*odbd);
  }

  std::unique_ptr<OdbdProcess> StartReady(std::vector<std::string> arguments = {}) {
    auto odbd = Start(std::move(arguments));
    const absl::Status ready = odbd->WaitReady(Soon());
    INFO(ready);
    REQUIRE(ready.ok());
    return odbd;
  }

  TempDirectory directory;
  std::unique_ptr<Spawner> spawner;
  std::string data;
};

std::shared_ptr<grpc::Channel> Channel(const std::string& socket) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return grpc::CreateCustomChannel("unix:" + socket, grpc::InsecureChannelCredentials(), arguments);
}

// One rank's trainer, in this process, over the wire alone.
class Trainer {
 public:
  explicit Trainer(const std::string& socket)
      : socket_(socket), stub_(v1::TrainerService::NewStub(Channel(socket))) {}

  absl::Status Open(const std::string& run_id = "run", int32_t world_size = 1) {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(Soon()));
    v1::OpenSessionRequest request;
    request.set_wire_version(1);
    request.mutable_job()->set_run_id(run_id);
    request.set_world_size(world_size);
    request.set_local_world_size(world_size);
    request.set_dp_size(world_size);
    request.set_replicas(1);
    request.set_pid(getpid());
    request.set_start_time(static_cast<int64_t>(*ProcessStartTime(getpid())));
    const grpc::Status status = stub_->OpenSession(&context, request, &session_);
    return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
  }

  absl::Status Map() {
    auto socket = ConnectUnix(socket_, Soon());
    if (!socket.ok()) return socket.status();
    HandoverRequest request;
    request.session_id = session_.session_id();
    auto token = MakeHandoverToken(session_.handover_token());
    if (!token.ok()) return token.status();
    request.token = *token;
    auto sent = WriteAll(socket->get(), EncodeHandoverRequest(request), Soon());
    if (!sent.ok()) return sent;
    auto answer = ReceiveWithFd(socket->get(), kHandoverResponseBytes, Soon());
    if (!answer.ok()) return answer.status();
    auto decoded = DecodeHandoverResponse(answer->bytes);
    if (!decoded.ok()) return decoded.status();
    if (!decoded->status.ok()) return decoded->status;
    auto region = MappedRegion::Map(answer->fd.get(), session_.arena_bytes(),
                                    MappedRegion::Access::kReadOnly);
    if (!region.ok()) return region.status();
    arena_ = std::move(*region);
    return absl::OkStatus();
  }

  void Attach() {
    context_ = std::make_unique<grpc::ClientContext>();
    context_->set_deadline(absl::ToChronoTime(Soon()));
    stream_ = stub_->Steps(context_.get());
    v1::TrainerEvent event;
    event.mutable_attach()->set_session_id(session_.session_id());
    stream_->Write(event);
  }

  void StartEpoch(int64_t epoch, int64_t iterator) {
    v1::TrainerEvent event;
    event.mutable_start_epoch()->set_epoch(epoch);
    event.mutable_start_epoch()->set_iterator(iterator);
    stream_->Write(event);
  }

  // The next update but Waiting; nothing at the end of the stream.
  std::optional<v1::TrainerUpdate> Next() {
    v1::TrainerUpdate update;
    while (stream_->Read(&update)) {
      if (!update.has_waiting()) return update;
    }
    return std::nullopt;
  }

  void Return(int64_t step_id) {
    v1::TrainerEvent event;
    event.mutable_returned()->add_step_ids(step_id);
    stream_->Write(event);
  }

  grpc::Status Close(int64_t taken) {
    v1::TrainerEvent event;
    event.mutable_close()->set_taken(taken);
    stream_->Write(event);
    stream_->WritesDone();
    while (Next()) {
    }
    return stream_->Finish();
  }

  const v1::OpenSessionReply& session() const { return session_; }
  const char* arena() const { return arena_.data(); }

 private:
  const std::string socket_;
  const std::unique_ptr<v1::TrainerService::Stub> stub_;
  v1::OpenSessionReply session_;
  MappedRegion arena_;
  std::unique_ptr<grpc::ClientContext> context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::TrainerEvent, v1::TrainerUpdate>> stream_;
};

v1::Coverage CoverageOf(const std::string& socket) {
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(Soon()));
  v1::Coverage coverage;
  v1::StatusService::NewStub(Channel(socket))->GetCoverage(&context, {}, &coverage);
  return coverage;
}

v1::Status StatusOf(const std::string& socket) {
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(Soon()));
  v1::Status status;
  v1::StatusService::NewStub(Channel(socket))->GetStatus(&context, {}, &status);
  return status;
}

// Takes one epoch to its end; how often each sample came, by key.
std::map<int64_t, int> TakeEpoch(Trainer* trainer, int64_t epoch, int64_t iterator,
                                 int64_t* steps) {
  std::map<int64_t, int> taken;
  trainer->StartEpoch(epoch, iterator);
  while (auto update = trainer->Next()) {
    if (update->has_failure()) FAIL(update->failure().message());
    if (update->has_epoch_end()) {
      *steps = update->epoch_end().steps();
      return taken;
    }
    REQUIRE(update->has_step());
    const v1::Step& step = update->step();
    for (const int64_t key : step.sample_keys()) ++taken[key];
    for (const v1::Tensor& tensor : step.tensors()) {
      REQUIRE(tensor.offset() + tensor.bytes() <= trainer->session().arena_bytes());
    }
    trainer->Return(step.step_id());
  }
  FAIL("the stream ended before the epoch");
  return taken;
}

TEST_CASE("odbd: one trainer gets every valid sample of each epoch once", "[odbd]") {
  Fixture f;
  const auto odbd = f.StartReady({"--window=32", "--token-budget=2048"});
  Trainer trainer(odbd->socket());
  const absl::Status opened = trainer.Open();
  INFO(opened << "\n" << odbd->log());
  REQUIRE(opened.ok());
  CHECK(trainer.session().records() == kRecords + 1);
  CHECK(trainer.session().estimated_steps() > 0);
  REQUIRE(trainer.Map().ok());
  trainer.Attach();

  for (int64_t epoch = 0; epoch < 2; ++epoch) {
    int64_t steps = 0;
    const auto taken = TakeEpoch(&trainer, epoch, epoch, &steps);
    CHECK(taken.size() == kRecords);
    for (const auto& [key, times] : taken) CHECK(times == 1);
    CHECK(steps > 1);

    const v1::Coverage coverage = CoverageOf(odbd->socket());
    INFO(coverage.ShortDebugString());
    CHECK(coverage.finished());
    CHECK(coverage.epoch() == epoch);
    CHECK(coverage.emitted() == kRecords);
    CHECK(coverage.duplicates() == 0);
    CHECK(coverage.quarantined() == 1);
    CHECK(coverage.missing() == 0);
  }
  CHECK(trainer.Close(0).ok());
}

TEST_CASE("odbd: SIGTERM lets the trainer finish, then nothing is left", "[odbd]") {
  Fixture f;
  const auto odbd = f.StartReady({"--window=32", "--token-budget=2048"});
  Trainer trainer(odbd->socket());
  REQUIRE(trainer.Open().ok());
  trainer.Attach();
  trainer.StartEpoch(0, 0);
  const auto first = trainer.Next();
  REQUIRE(first.has_value());
  REQUIRE(first->has_step());

  REQUIRE(odbd->process()->Signal(SIGTERM).ok());
  while (StatusOf(odbd->socket()).state() != "draining") {
  }
  Trainer late(odbd->socket());
  CHECK_THAT(late.Open("another"), HasMessage("odbd is draining and opens no new sessions"));

  trainer.Return(first->step().step_id());
  while (auto update = trainer.Next()) {
    REQUIRE(!update->has_failure());
    if (update->has_epoch_end()) break;
    trainer.Return(update->step().step_id());
  }
  CHECK(trainer.Close(0).ok());
  const auto ended = odbd->process()->Wait(Soon());
  INFO(odbd->log());
  REQUIRE(ended.ok());
  CHECK(ended->success());
  CHECK(access(odbd->socket().c_str(), F_OK) != 0);
}

TEST_CASE("odbd: an idle one ends at SIGTERM with 0 and takes its socket along", "[odbd]") {
  Fixture f;
  const auto odbd = f.StartReady();

  REQUIRE(odbd->process()->Signal(SIGTERM).ok());

  const auto ended = odbd->process()->Wait(Soon());
  INFO(odbd->log());
  REQUIRE(ended.ok());
  CHECK(ended->success());
  CHECK(access(odbd->socket().c_str(), F_OK) != 0);
}

TEST_CASE("odbd: a trainer that outlasts drain_timeout is told, the exit code is 4", "[odbd]") {
  Fixture f;
  const auto odbd = f.StartReady({"--drain-timeout=100ms"});
  Trainer trainer(odbd->socket());
  REQUIRE(trainer.Open().ok());

  REQUIRE(odbd->process()->Signal(SIGTERM).ok());

  const auto ended = odbd->process()->Wait(Soon());
  INFO(odbd->log());
  REQUIRE(ended.ok());
  CHECK(ended->code == kExitDeadline);
  CHECK(odbd->log().find("drain_timeout passed: 1 trainer is still attached") != std::string::npos);
}

TEST_CASE("odbd: a second signal ends at once with 1", "[odbd]") {
  Fixture f;
  const auto odbd = f.StartReady({"--drain-timeout=10m"});
  Trainer trainer(odbd->socket());
  REQUIRE(trainer.Open().ok());
  const int64_t aligner = [&] {
    while (true) {
      const v1::Status status = StatusOf(odbd->socket());
      if (status.jobs_size() > 0 && status.jobs(0).ranks_size() > 0 &&
          status.jobs(0).ranks(0).aligner_pid() > 0) {
        return status.jobs(0).ranks(0).aligner_pid();
      }
    }
  }();

  REQUIRE(odbd->process()->Signal(SIGTERM).ok());
  while (StatusOf(odbd->socket()).state() != "draining") {
  }
  REQUIRE(odbd->process()->Signal(SIGTERM).ok());

  const auto ended = odbd->process()->Wait(Soon());
  REQUIRE(ended.ok());
  CHECK(ended->code == kExitFailed);
  CHECK(access(odbd->socket().c_str(), F_OK) != 0);
  CHECK(!ProcessStartTime(static_cast<pid_t>(aligner)).ok());
}

TEST_CASE("odbd: kill -9 leaves no aligner behind", "[odbd]") {
  Fixture f;
  const auto odbd = f.StartReady();
  Trainer trainer(odbd->socket());
  REQUIRE(trainer.Open().ok());
  int64_t aligner = 0;
  while (aligner == 0) {
    const v1::Status status = StatusOf(odbd->socket());
    if (status.jobs_size() > 0 && status.jobs(0).ranks_size() > 0) {
      aligner = status.jobs(0).ranks(0).aligner_pid();
    }
  }
  const auto watch = ProcessWatch::Open(static_cast<pid_t>(aligner));
  REQUIRE(watch.ok());

  REQUIRE(odbd->process()->Signal(SIGKILL).ok());

  CHECK(watch->WaitForExit(Soon()).ok());
}

// Runs odbd on `socket` and expects it to give up.
void CheckRefused(Fixture* f, const std::string& socket, int exit_code,
                  const std::string& sentence) {
  const auto odbd = f->Start({"--socket=" + socket});
  const auto ended = odbd->process()->Wait(Soon());
  REQUIRE(ended.ok());
  const std::string log = odbd->log();
  INFO(log);
  CHECK(ended->code == exit_code);
  CHECK(absl::StrContains(log, sentence));
  CHECK(std::count(log.begin(), log.end(), '\n') == 1);  // one line
}

TEST_CASE("odbd: a taken socket, a long path, a plain file and a foreign directory", "[odbd]") {
  Fixture f;
  SECTION("taken: names the owner's pid") {
    const auto first = f.StartReady();
    CheckRefused(&f, first->socket(), kExitUnavailable,
                 absl::StrCat("is in use by process ", first->process()->pid()));
    // The snapshot that says so may be 100 ms behind the socket.
    CHECK(WaitUntil([&] { return StatusOf(first->socket()).state() == "accepting"; },
                    absl::Now() + absl::Seconds(30)));
  }
  SECTION("too long: names length and limit") {
    const std::string path = "/tmp/" + std::string(115, 'x');
    CheckRefused(&f, path, kExitConfig, "is 120 bytes long, the limit is 107");
  }
  SECTION("a plain file: is not removed") {
    const std::string path = f.directory.path() + "/file";
    std::ofstream(path) << "precious";
    CheckRefused(&f, path, kExitConfig, "is not a socket, not removed");
    CHECK(access(path.c_str(), F_OK) == 0);
  }
  SECTION("another user's directory: names uid, gid and mode") {
    const std::string path = f.directory.path() + "/foreign";
    REQUIRE(mkdir(path.c_str(), 0755) == 0);
    if (chown(path.c_str(), 4711, 4712) == 0) {
      CheckRefused(&f, path + "/s", kExitNoPermission, "(uid 4711, gid 4712, mode 0755)");
    } else {  // not root, or in a sandbox: there /usr cannot be written to
      CheckRefused(&f, "/usr/odbd-test.sock", kExitNoPermission, "(uid ");
    }
  }
}

TEST_CASE("odbd: data that cannot be used is refused with 65, before anybody waits", "[odbd]") {
  Fixture f;
  const auto odbd = f.Start({"--data=/nonexistent/data.jsonl"});
  const auto ended = odbd->process()->Wait(Soon());
  REQUIRE(ended.ok());
  CHECK(ended->code == kExitDataError);
  CHECK(absl::StrContains(odbd->log(), "/nonexistent/data.jsonl"));
  CHECK(access(odbd->socket().c_str(), F_OK) != 0);

  const auto second = f.Start({"--streams=[{name: eval, data: /nonexistent/eval.jsonl}]"});
  const auto second_ended = second->process()->Wait(Soon());
  REQUIRE(second_ended.ok());
  CHECK(second_ended->code == kExitDataError);
  CHECK(absl::StrContains(second->log(), "stream eval: "));
  CHECK(absl::StrContains(second->log(), "/nonexistent/eval.jsonl"));
}

TEST_CASE("odbd: --check-config opens the data of every stream", "[odbd]") {
  Fixture f;
  const auto odbd =
      f.Start({"--check-config", "--streams=[{name: eval, data: " + f.data + ", align: none}]"});
  const auto ended = odbd->process()->Wait(Soon());
  REQUIRE(ended.ok());
  CHECK(ended->code == kExitOk);
  CHECK(absl::StrContains(odbd->log(), "OK: 301 records in data.jsonl, tokenizer bytes with"));
  CHECK(absl::StrContains(odbd->log(), "stream eval: 301 records in data.jsonl, tokenizer bytes"));
}

TEST_CASE("odbd: a memory_limit that cannot hold one rank, or cannot be kept, is refused with 78",
          "[odbd]") {
  Fixture f;
  const auto [flag, text] = GENERATE(
      std::pair<std::string, std::string>{"--memory-limit=1MiB", "a job of one rank may need "},
      std::pair<std::string, std::string>{"--memory-limit=1000000GiB", ", but the "});
  const auto odbd = f.Start({flag});
  const auto ended = odbd->process()->Wait(Soon());
  REQUIRE(ended.ok());
  CHECK(ended->code == kExitConfig);
  INFO(odbd->log());
  CHECK(absl::StrContains(odbd->log(), "memory_limit is "));
  CHECK(absl::StrContains(odbd->log(), text));
  CHECK(access(odbd->socket().c_str(), F_OK) != 0);
}

TEST_CASE("odbd: memory is in the status, and a job that may not fit is refused by its parts",
          "[odbd]") {
  Fixture f;
  // One rank fits: 15 x 2048 x 24 bytes of arena, some 3 MB of windows. 64 do not.
  const auto odbd = f.StartReady({"--window=32", "--token-budget=2048", "--memory-limit=20MiB"});
  Trainer large(odbd->socket());
  const absl::Status refused = large.Open("large", /*world_size=*/64);
  CHECK_THAT(refused, HasCode(absl::StatusCode::kResourceExhausted));
  CHECK_THAT(refused, HasMessage("64 ranks may need "));
  CHECK_THAT(refused, HasMessage("and memory_limit is 20.0 MiB: lower prefetch_steps"));

  Trainer trainer(odbd->socket());
  const absl::Status opened = trainer.Open();
  INFO(opened << "\n" << odbd->log());
  REQUIRE(opened.ok());
  CHECK(WaitUntil(
      [&] {
        const v1::MemoryStatus memory = StatusOf(odbd->socket()).memory();
        return memory.limit() == 20 << 20 && memory.limit_origin() == "memory_limit" &&
               memory.arenas() == static_cast<int64_t>(trainer.session().arena_bytes());
      },
      Soon()));
}

}  // namespace
}  // namespace odb
