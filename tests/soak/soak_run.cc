#include "tests/soak/soak_run.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <memory>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/os/file_descriptor.h"
#include "base/os/mutex.h"
#include "base/os/temp_directory.h"
#include "base/os/thread.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "client/odb_client.h"
#include "client/odbctl/status_client.h"
#include "tests/support/daemon_process.h"
#include "tests/support/wait_until.h"

namespace odb {
namespace {

constexpr int kBadEvery = 1000;
constexpr int kLeakEvery = 20;  // steps
constexpr size_t kLeakedBytes = 512 << 10;

absl::Time Soon() { return absl::Now() + absl::Minutes(2); }

void WriteRecords(const std::string& path, int32_t count) {
  Random random(/*seed=*/18);
  std::ofstream out(path, std::ios::binary);
  for (int32_t i = 0; i < count; ++i) {
    if (i % kBadEvery == kBadEvery / 2) {
      out << "{\"messages\": [broken\n";
      continue;
    }
    const size_t length = 1 + random.Below(1 + random.Below(600));
    out << R"({"messages": [{"role": "user", "content": "q)" << i
        << R"("}, {"role": "assistant", "content": ")"
        << std::string(length, static_cast<char>('a' + i % 26)) << "\"}]}\n";
  }
}

// What a leak keeps until the run is over.
class Leaker {
 public:
  explicit Leaker(Leak leak) : leak_(leak) {}
  ~Leaker() {
    MutexLock lock(&mutex_);
    over_ = true;
    ended_.NotifyAll();
  }

  void OnStep() {
    if (++steps_ % kLeakEvery != 0) return;
    if (leak_ == Leak::kMemory) memory_.emplace_back(kLeakedBytes, 'x');
    if (leak_ == Leak::kDescriptors) descriptors_.emplace_back(::open("/dev/null", O_CLOEXEC));
    if (leak_ == Leak::kThreads) {
      threads_.emplace_back("leaked", [this] {
        MutexLock lock(&mutex_);
        while (!over_) ended_.Wait(&mutex_);
      });
    }
  }

 private:
  const Leak leak_;
  int64_t steps_ = 0;
  std::vector<std::string> memory_;
  std::vector<FileDescriptor> descriptors_;
  Mutex mutex_;
  CondVar ended_;
  bool over_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<Thread> threads_;  // joined first
};

// One rank's trainer.
struct Trainer {
  ClientOptions options;
  Leak leak = Leak::kNone;
  std::atomic<int64_t>* taken = nullptr;
  int64_t steps_wanted = 0;

  absl::Status status;
  ClientCounts counts;
  int64_t epochs = 0;
  uint64_t sum = 0;                // of what was read, so that it is read
  std::unique_ptr<Client> client;  // open until the agreement was looked at

  absl::Status TakeEpoch(Leaker* leaker) {
    RETURN_IF_ERROR(client->StartEpoch(epochs++));
    while (true) {
      ASSIGN_OR_RETURN(const StepHandle step, client->Next(Soon()));
      if (step == nullptr) break;
      for (int i = 0; i < step->num_tensors(); ++i) {
        const TensorView tensor = step->tensor(i);
        for (int64_t at = 0; at < tensor.bytes; at += 64) {
          sum += static_cast<uint8_t>(tensor.data[at]);
        }
      }
      ++counts.steps;
      counts.samples += step->message().sample_keys_size();
      counts.idle += step->idle() ? 1 : 0;
      taken->store(counts.steps);
      leaker->OnStep();
    }
    counts.bad_records += client->epoch_end()->quarantined();
    return absl::OkStatus();
  }

  absl::Status Run() {
    ASSIGN_OR_RETURN(client, Client::Open(options));
    Leaker leaker(leak);
    // Every rank has the same steps, so all stop after the same epoch.
    while (counts.steps < steps_wanted) RETURN_IF_ERROR(TakeEpoch(&leaker));
    return absl::OkStatus();
  }
};

absl::StatusOr<v1::Status> StatusOf(const std::string& socket) {
  ASSIGN_OR_RETURN(const auto client, StatusClient::Connect(socket, Soon()));
  return client->GetStatus();
}

absl::Status Observe(DaemonProcess* daemon, int64_t steps, SoakReport* report) {
  Observation one;
  one.steps = steps;
  ASSIGN_OR_RETURN(one.daemon, ReadUsage(daemon->process()->pid()));
  ASSIGN_OR_RETURN(one.trainers, ReadUsage(getpid()));
  ASSIGN_OR_RETURN(one.status, StatusOf(daemon->socket()));
  report->run.push_back(std::move(one));
  return absl::OkStatus();
}

absl::Status Watch(const SoakOptions& options, DaemonProcess* daemon,
                   const std::atomic<int64_t>& taken, const std::atomic<int32_t>& running,
                   SoakReport* report) {
  for (int32_t i = 1; i <= options.observations && running > 0; ++i) {
    const int64_t next = options.steps * i / options.observations;
    const bool came =
        WaitUntil([&] { return taken >= next || running == 0; }, absl::Now() + absl::Minutes(10));
    if (!came) return absl::DeadlineExceededError(absl::StrCat("no step ", next, " in 10 minutes"));
    RETURN_IF_ERROR(Observe(daemon, taken, report));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SoakReport> RunSoak(const SoakOptions& options) {
  const absl::Time start = absl::Now();
  ASSIGN_OR_RETURN(const TempDirectory folder, TempDirectory::Create("/tmp", "odb"));
  WriteRecords(folder.path() + "/data.jsonl", options.records);
  ASSIGN_OR_RETURN(const auto daemon,
                   DaemonProcess::Start({"--data=" + folder.path() + "/data.jsonl",
                                         "--token-budget=1024", "--window=64", "--workers=2",
                                         "--memory-limit=512MiB", "--log-level=error"}));
  SoakReport report;
  report.run.reserve(static_cast<size_t>(options.observations));
  std::atomic<int64_t> taken{0};
  std::atomic<int64_t> ignored{0};
  std::atomic<int32_t> running{options.ranks};
  std::vector<std::unique_ptr<Trainer>> trainers;
  std::vector<Thread> threads;
  for (int32_t rank = 0; rank < options.ranks; ++rank) {
    auto trainer = std::make_unique<Trainer>();
    trainer->options = *ClientOptions::FromLookup([](const char*) { return std::nullopt; });
    trainer->options.socket = daemon->socket();
    trainer->options.rank = trainer->options.local_rank = rank;
    trainer->options.world_size = trainer->options.local_world_size = options.ranks;
    trainer->options.run_id = "soak";
    trainer->leak = rank == 0 ? options.leak : Leak::kNone;
    trainer->taken = rank == 0 ? &taken : &ignored;
    trainer->steps_wanted = options.steps;
    Trainer* const one = trainer.get();
    trainers.push_back(std::move(trainer));
    threads.emplace_back("trainer", [one, &running] {
      one->status = one->Run();
      --running;
    });
  }
  const absl::Status watched = Watch(options, daemon.get(), taken, running, &report);
  for (Thread& thread : threads) thread.Join();
  RETURN_IF_ERROR(watched);
  for (const auto& trainer : trainers) {
    RETURN_IF_ERROR(trainer->status);
    report.counts.steps = trainer->counts.steps;
    report.counts.samples += trainer->counts.samples;
    report.counts.idle += trainer->counts.idle;
    report.counts.bad_records = trainer->counts.bad_records;  // of all ranks, so equal on them
    report.epochs = trainer->epochs;
  }
  // What the trainers told last may still be on its way.
  absl::Status last;
  WaitUntil(
      [&] {
        const auto status = StatusOf(daemon->socket());
        last = status.status();
        if (status.ok()) report.last = *status;
        return !last.ok() || CheckAgreement(report.last, report.counts).empty();
      },
      absl::Now() + absl::Seconds(20));
  RETURN_IF_ERROR(last);
  for (const auto& trainer : trainers) RETURN_IF_ERROR(trainer->client->Close());
  report.seconds = absl::ToDoubleSeconds(absl::Now() - start);
  return report;
}

std::vector<std::string> CheckSoak(const SoakReport& report) {
  std::vector<std::string> complaints = CheckFlat(report.run);
  for (std::string& one : CheckCounters(report.run)) complaints.push_back(std::move(one));
  for (std::string& one : CheckAgreement(report.last, report.counts)) {
    complaints.push_back(std::move(one));
  }
  return complaints;
}

}  // namespace odb
