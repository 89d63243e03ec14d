// odbd: reads its configuration, takes its socket, serves until it is told to stop.
#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <climits>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/os/event_fd.h"
#include "base/os/lifeline.h"
#include "base/os/mutex.h"
#include "base/os/signals.h"
#include "base/os/spawner.h"
#include "base/os/thread.h"
#include "base/os/timed_io.h"
#include "base/status_macros.h"
#include "base/version.h"
#include "server/daemon/command_line.h"
#include "server/daemon/config.h"
#include "server/daemon/config_text.h"
#include "server/daemon/daemon.h"
#include "server/daemon/exit_codes.h"
#include "server/daemon/node_data.h"

namespace odb {
namespace {

constexpr absl::Duration kTick = absl::Milliseconds(50);
// How long trainers may take to fetch the reason when the grace time is over.
constexpr absl::Duration kFarewell = absl::Seconds(2);
// How long an orderly end may take once the parent is gone.
constexpr absl::Duration kOrphanedMax = absl::Seconds(5);
constexpr absl::Duration kReadyTimeout = absl::Seconds(5);

int Complain(const absl::Status& status, int exit_code) {
  std::fprintf(stderr, "odbd: %s\n", std::string(status.message()).c_str());
  return exit_code;
}

// Freed memory is kept: giving it back and faulting it in again costs far more than the payload.
void KeepFreedMemory() {
  mallopt(M_TRIM_THRESHOLD, INT_MAX);
  mallopt(M_MMAP_THRESHOLD, 32 << 20);  // the largest that glibc takes
  mallopt(M_TOP_PAD, 64 << 20);         // address space only; else threads' heaps come and go
}

void StartLog(const std::string& level) {
  auto logger = spdlog::stderr_color_mt("odbd");
  logger->set_pattern("%Y-%m-%d %H:%M:%S.%e %n %^%l%$: %v");
  logger->set_level(spdlog::level::from_str(level));
  spdlog::set_default_logger(std::move(logger));
}

int CheckEverything(const LoadedConfig& config) {
  const auto streams = OpenStreams(config.values);
  if (!streams.ok()) return Complain(streams.status(), DataExitCode(streams.status()));
  const auto aligner = FindAligner(config.values);
  if (!aligner.ok()) return Complain(aligner.status(), kExitConfig);
  const auto limit = NodeMemoryLimit(config.values);
  if (!limit.ok()) return Complain(limit.status(), kExitConfig);
  const absl::Status memory = CheckMemory(*limit, *streams);
  if (!memory.ok()) return Complain(memory, kExitConfig);
  for (const StreamData& opened : *streams) {
    const v1::Config& values = opened.stream.config;
    const bool is_tokenized = values.format() == "tokenized" && values.tokenizer() == "bytes";
    const std::string tokens = is_tokenized
                                   ? "tokenized before"
                                   : absl::StrCat("tokenizer ", values.tokenizer(), " with ",
                                                  opened.data.tokenizer->vocab_size(), " tokens");
    const std::string head =
        opened.stream.name == kTrainStream ? "OK" : absl::StrCat("stream ", opened.stream.name);
    std::printf("%s: %s, %s\n", head.c_str(), opened.data.Describe().c_str(), tokens.c_str());
  }
  return kExitOk;
}

absl::Status CheckReadyFd(int fd) {
  if (fd < 0 || fcntl(fd, F_GETFD) >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--ready-fd must be the number of an open descriptor, got ", fd));
}

void AnnounceReady(int fd) {
  if (fd < 0) return;
  const absl::Status written = WriteAll(fd, "ready\n", absl::Now() + kReadyTimeout);
  if (!written.ok()) SPDLOG_WARN("ready-fd {}: {}", fd, std::string(written.message()));
  close(fd);
}

// One life of the daemon, on the main thread: waits for signals, the end of the parent and the end
// of loading, and answers each.
//
// Threads: "odb-load" reads the data meanwhile; the lifeline has its own.
class Supervisor {
 public:
  Supervisor(const LoadedConfig& config, int ready_fd, const SignalFd* signals, Spawner* spawner,
             EventFd wake, EventFd ended)
      : config_(config),
        ready_fd_(ready_fd),
        signals_(signals),
        spawner_(spawner),
        wake_(std::move(wake)),
        ended_(std::move(ended)) {}

  int Run(FileDescriptor lifeline) {
    const auto aligner = FindAligner(config_.values);
    if (!aligner.ok()) return Complain(aligner.status(), kExitConfig);
    auto daemon = Daemon::Listen(config_, *aligner, spawner_);
    if (!daemon.ok()) return Complain(daemon.status(), SocketExitCode(daemon.status()));
    daemon_ = std::move(*daemon);
    const absl::Status serving = daemon_->Serve();
    if (!serving.ok()) return Complain(serving, SocketExitCode(serving));
    const absl::Status watching = WatchParent(std::move(lifeline));
    if (!watching.ok()) return Complain(watching, kExitFailed);
    loader_ = Thread("odb-load", [this] { Load(); });
    const int exit_code = WaitForEnd();
    loader_.Join();
    daemon_.reset();
    ended_.Notify();
    return exit_code;
  }

 private:
  absl::Status WatchParent(FileDescriptor lifeline) {
    if (!lifeline.valid()) return absl::OkStatus();
    // The parent's death is answered in order, so that the socket is removed.
    prctl(PR_SET_PDEATHSIG, 0);
    ASSIGN_OR_RETURN(parent_, LifelineWatch::Start(std::move(lifeline), [this] {
                       {
                         MutexLock lock(&mutex_);
                         parent_gone_ = true;
                       }
                       wake_.Notify();
                       if (!WaitReadable(ended_.fd(), absl::Now() + kOrphanedMax).ok()) {
                         ExitAsParentIsGone();
                       }
                     }));
    return absl::OkStatus();
  }

  void Load() {
    const absl::Status status = daemon_->Load();
    {
      MutexLock lock(&mutex_);
      loaded_ = status;
    }
    wake_.Notify();
    // Last: whoever reads it may send a signal at once, and is to find a daemon that drains.
    if (status.ok()) AnnounceReady(ready_fd_);
  }

  // Ends the process now: nothing is left but what the kernel cleans up.
  [[noreturn]] void ExitNow(int exit_code) {
    unlink(daemon_->socket_path().c_str());
    spawner_->KillAll(absl::Now() + absl::Seconds(2)).IgnoreError();
    _exit(exit_code);
  }

  int WaitForEnd() {
    while (true) {
      pollfd polled[] = {{signals_->fd(), POLLIN, 0}, {wake_.fd(), POLLIN, 0}};
      if (poll(polled, 2, -1) < 0) continue;
      wake_.Clear();
      std::optional<absl::Status> loaded;
      {
        MutexLock lock(&mutex_);
        if (parent_gone_) {
          SPDLOG_WARN("the program that started odbd is gone");
          if (!loaded_.has_value()) ExitNow(kExitTemporary);
          return kExitTemporary;
        }
        loaded = loaded_;
      }
      if (loaded.has_value() && !loaded->ok()) return Complain(*loaded, DataExitCode(*loaded));
      if (polled[0].revents == 0) continue;
      const auto signal = signals_->Wait(absl::Now());
      if (!signal.ok()) continue;
      SPDLOG_INFO("signal {}: draining, up to {}", signal->number, config_.values.drain_timeout());
      if (!loaded.has_value()) ExitNow(kExitOk);  // nobody is attached yet
      return DrainAndExit();
    }
  }

  int DrainAndExit() {
    daemon_->Drain();
    const absl::Time deadline = absl::Now() + ParsedDuration(config_.values.drain_timeout());
    while (true) {
      const absl::Status drained = daemon_->WaitDrained(absl::Now() + kTick);
      if (drained.ok()) return kExitOk;
      if (signals_->Wait(absl::Now()).ok()) {
        SPDLOG_WARN("second signal: ending at once");
        ExitNow(kExitFailed);
      }
      {
        MutexLock lock(&mutex_);
        if (parent_gone_) return kExitTemporary;
      }
      if (absl::Now() < deadline) continue;
      SPDLOG_WARN("drain_timeout passed: {}", std::string(drained.message()));
      daemon_->FailJobs(absl::UnavailableError("odbd stops: its drain_timeout has passed"));
      daemon_->WaitDrained(absl::Now() + kFarewell).IgnoreError();
      return kExitDeadline;
    }
  }

  const LoadedConfig& config_;
  const int ready_fd_;
  const SignalFd* const signals_;
  Spawner* const spawner_;
  const EventFd wake_;
  const EventFd ended_;

  Mutex mutex_;  // guards all below
  bool parent_gone_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<absl::Status> loaded_ ABSL_GUARDED_BY(mutex_);

  std::unique_ptr<Daemon> daemon_;
  Thread loader_;
  std::unique_ptr<LifelineWatch> parent_;
};

int Serve(const LoadedConfig& config, int ready_fd) {
  const absl::Status ready = CheckReadyFd(ready_fd);
  if (!ready.ok()) return Complain(ready, kExitUsage);
  StartLog(config.values.log_level());
  KeepFreedMemory();
  IgnoreSigpipe();
  const auto signals = SignalFd::Create({SIGTERM, SIGINT});
  if (!signals.ok()) return Complain(signals.status(), kExitFailed);
  auto lifeline = TakeLifeline();
  if (!lifeline.ok()) return Complain(lifeline.status(), kExitUsage);
  SpawnerOptions spawning;
  spawning.adopt_orphans = true;
  const auto spawner = Spawner::Start(spawning);
  if (!spawner.ok()) return Complain(spawner.status(), kExitTemporary);
  auto wake = EventFd::Create();
  if (!wake.ok()) return Complain(wake.status(), kExitTemporary);
  auto ended = EventFd::Create();
  if (!ended.ok()) return Complain(ended.status(), kExitTemporary);
  Supervisor supervisor(config, ready_fd, &*signals, spawner->get(), std::move(*wake),
                        std::move(*ended));
  return supervisor.Run(std::move(*lifeline));
}

int Main(const std::vector<std::string>& arguments) {
  const auto line = ParseCommandLine(arguments);
  if (!line.ok()) return Complain(line.status(), ConfigExitCode(line.status()));
  if (line->help) {
    std::fputs(HelpText().c_str(), stdout);
    return kExitOk;
  }
  if (line->version) {
    std::printf("odbd %s\n", kOdbVersion);
    return kExitOk;
  }
  const auto config = LoadConfig(*line, ConfigEnvironment::OfThisProcess());
  if (!config.ok()) return Complain(config.status(), ConfigExitCode(config.status()));
  if (line->print_config) {
    std::fputs(ConfigAsYaml(*config).c_str(), stdout);
    return kExitOk;
  }
  const absl::Status checked = CheckConfig(config->values);
  if (!checked.ok()) return Complain(checked, ConfigExitCode(checked));
  if (line->check_config) return CheckEverything(*config);
  return Serve(*config, line->ready_fd);
}

}  // namespace
}  // namespace odb

int main(int argc, char** argv) {
  return odb::Main(std::vector<std::string>(argv + 1, argv + argc));
}
