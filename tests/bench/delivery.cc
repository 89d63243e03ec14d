// What a small step costs on its way: by the step ring, and beside it by the gRPC stream, and what
// a few bytes there and back between two processes that do nothing else cost.
//
//   bazel run -c opt //tests/bench:delivery -- [--quick] [--json FILE]
//
// A process with odbd's socket, services and sessions, whose steps are made up, and two trainer
// processes with the real client, one for each transport. They take turns of some thousand steps,
// so that all see the same weather: with everything on one CPU, and with the daemon on another one
// than the trainers, where much of the time may be that of waking a CPU that sleeps.
//
//   asked    the step is given out once the trainer says that it waits: from Next() to its return,
//            trainer to daemon to trainer; and the part from the daemon's hand to the trainer's
//   ahead    steps are there before they are asked for: the time of Next()
//   CPU      of the trainer's process, all threads, per step
//   bare     a byte to a process that sleeps in poll on a socket, and eight back
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/os/file_descriptor.h"
#include "base/os/signals.h"
#include "base/os/timed_io.h"
#include "base/os/unix_socket.h"
#include "base/status_macros.h"
#include "client/odb_client.h"
#include "tests/bench/delivery_host.h"
#include "tests/bench/machine.h"

namespace odb {
namespace {

struct Flags {
  std::string json;
  bool quick = false;
};

struct Order {
  Readiness readiness = Readiness::kOnDemand;
  int64_t steps = 0;
};

// Where the daemon (or what stands for it) runs, while all others run on the first CPU.
enum class Placement { kOneCpu, kTwoCpus };

// Microseconds.
struct StepTimes {
  double next = 0;     // of Next()
  double one_way = 0;  // from the daemon's hand to the trainer's
  double cpu = 0;      // a step's share of the turn's
};

absl::Time Soon() { return absl::Now() + absl::Seconds(60); }

double CpuMicros() {
  timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return 1e6 * static_cast<double>(now.tv_sec) + 1e-3 * static_cast<double>(now.tv_nsec);
}

std::vector<int> AllowedCpus() {
  cpu_set_t allowed;
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &allowed)) cpus.push_back(cpu);
  }
  return cpus;
}

// All threads of a process that runs already.
absl::Status Pin(pid_t pid, int cpu) {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  CPU_SET(cpu, &cpus);
  std::error_code error;
  for (const auto& thread :
       std::filesystem::directory_iterator(absl::StrCat("/proc/", pid, "/task"), error)) {
    const int id = std::stoi(thread.path().filename().string());
    if (sched_setaffinity(id, sizeof cpus, &cpus) != 0 && errno != ESRCH) {
      return absl::InternalError(absl::StrCat("cannot pin thread ", id, " of process ", pid));
    }
  }
  return error ? absl::InternalError(error.message()) : absl::OkStatus();
}

absl::StatusOr<std::vector<StepTimes>> RunTurn(Client* client, const Order& order) {
  std::vector<StepTimes> times;
  times.reserve(static_cast<size_t>(order.steps));
  const double cpu = CpuMicros();
  RETURN_IF_ERROR(client->StartEpoch(static_cast<int64_t>(order.readiness)));
  for (int64_t i = 0; i < order.steps; ++i) {
    const int64_t asked = SteadyNanos();
    ASSIGN_OR_RETURN(const StepHandle step, client->Next(Soon()));
    const int64_t now = SteadyNanos();
    times.push_back({1e-3 * static_cast<double>(now - asked),
                     1e-3 * static_cast<double>(now - step->message().round()), 0});
  }
  RETURN_IF_ERROR(client->EndIteration());
  const double share = (CpuMicros() - cpu) / static_cast<double>(order.steps);
  for (StepTimes& one : times) one.cpu = share;
  return times;
}

// A process that says one byte when it is ready and then does what it is for until it is killed.
class Peer {
 public:
  static absl::StatusOr<Peer> Start(const std::function<absl::Status(int socket)>& body) {
    ASSIGN_OR_RETURN(SocketPair sockets, CreateSocketPair());
    const pid_t pid = fork();
    if (pid < 0) return absl::InternalError("fork failed");
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      sockets.first.Reset();
      const absl::Status status = body(sockets.second.get());
      if (!status.ok()) std::fprintf(stderr, "delivery: %s\n", status.ToString().c_str());
      _exit(status.ok() ? 0 : 1);
    }
    Peer peer;
    peer.pid_ = pid;
    peer.socket_ = std::move(sockets.first);
    return peer;
  }
  Peer(Peer&& other) noexcept
      : pid_(std::exchange(other.pid_, 0)), socket_(std::move(other.socket_)) {}
  ~Peer() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);  // the other processes hold copies of its socket
    waitpid(pid_, nullptr, 0);
  }

  pid_t pid() const { return pid_; }

  absl::Status AwaitReady() { return ReadExactly(socket_.get(), 1, Soon()).status(); }

  absl::StatusOr<std::vector<StepTimes>> Run(const Order& order) {
    RETURN_IF_ERROR(WriteAll(socket_.get(),
                             absl::string_view(reinterpret_cast<const char*>(&order), sizeof order),
                             Soon()));
    std::vector<StepTimes> times(static_cast<size_t>(order.steps));
    ASSIGN_OR_RETURN(const std::string bytes,
                     ReadExactly(socket_.get(), times.size() * sizeof times[0], Soon()));
    std::copy(bytes.begin(), bytes.end(), reinterpret_cast<char*>(times.data()));
    return times;
  }

 private:
  Peer() = default;
  pid_t pid_ = 0;
  FileDescriptor socket_;
};

absl::Status BeDaemon(const std::string& path, int socket) {
  ASSIGN_OR_RETURN(const auto host, DeliveryHost::Start(path));
  RETURN_IF_ERROR(WriteAll(socket, "r", Soon()));
  return WaitReadable(socket, absl::InfiniteFuture());  // nobody writes
}

absl::Status BeEcho(int asker, int socket) {
  RETURN_IF_ERROR(WriteAll(socket, "r", Soon()));
  while (true) {
    RETURN_IF_ERROR(ReadExactly(asker, 1, absl::InfiniteFuture()).status());
    const int64_t now = SteadyNanos();
    RETURN_IF_ERROR(WriteAll(
        asker, absl::string_view(reinterpret_cast<const char*>(&now), sizeof now), Soon()));
  }
}

absl::StatusOr<std::vector<StepTimes>> RunBareTurn(int echo, const Order& order) {
  std::vector<StepTimes> times;
  const double cpu = CpuMicros();
  for (int64_t i = 0; i < order.steps; ++i) {
    const int64_t asked = SteadyNanos();
    RETURN_IF_ERROR(WriteAll(echo, "?", Soon()));
    ASSIGN_OR_RETURN(const std::string bytes, ReadExactly(echo, sizeof(int64_t), Soon()));
    const int64_t now = SteadyNanos();
    int64_t given = 0;
    std::copy(bytes.begin(), bytes.end(), reinterpret_cast<char*>(&given));
    times.push_back(
        {1e-3 * static_cast<double>(now - asked), 1e-3 * static_cast<double>(now - given), 0});
  }
  const double share = (CpuMicros() - cpu) / static_cast<double>(order.steps);
  for (StepTimes& one : times) one.cpu = share;
  return times;
}

// Does turns until it is killed.
absl::Status Serve(
    int socket, const std::function<absl::StatusOr<std::vector<StepTimes>>(const Order&)>& turn) {
  RETURN_IF_ERROR(WriteAll(socket, "r", Soon()));
  while (true) {
    ASSIGN_OR_RETURN(const std::string bytes,
                     ReadExactly(socket, sizeof(Order), absl::InfiniteFuture()));
    Order order;
    std::copy(bytes.begin(), bytes.end(), reinterpret_cast<char*>(&order));
    ASSIGN_OR_RETURN(const auto times, turn(order));
    RETURN_IF_ERROR(WriteAll(socket,
                             absl::string_view(reinterpret_cast<const char*>(times.data()),
                                               times.size() * sizeof times[0]),
                             Soon()));
  }
}

absl::Status BeTrainer(const std::string& path, Transport transport, int socket) {
  ASSIGN_OR_RETURN(ClientOptions options, ClientOptions::FromEnvironment());
  options.socket = path;
  options.transport = transport;
  options.connect_timeout = absl::Seconds(30);
  ASSIGN_OR_RETURN(const auto client, Client::Open(options));
  return Serve(socket, [&](const Order& order) { return RunTurn(client.get(), order); });
}

struct Spread {
  double median = 0;
  double p90 = 0;
  double p99 = 0;
};

Spread SpreadOf(const std::vector<StepTimes>& times, double StepTimes::*field) {
  std::vector<double> values;
  for (const StepTimes& one : times) values.push_back(one.*field);
  std::sort(values.begin(), values.end());
  const auto at = [&](double share) {
    return values[static_cast<size_t>(share * static_cast<double>(values.size() - 1))];
  };
  return {at(0.5), at(0.9), at(0.99)};
}

struct Result {
  const char* transport;
  Placement placement;
  bool has_ahead = true;
  Spread asked;
  Spread one_way;
  Spread ahead;
  double asked_cpu = 0;
  double ahead_cpu = 0;
};

std::string ToJson(const Flags& flags, const std::vector<Result>& results) {
  std::vector<std::string> transports;
  for (const Result& one : results) {
    const auto spread = [](const char* name, const Spread& value) {
      return absl::StrFormat("\"%s_us\": %.2f, \"%s_p90_us\": %.2f, \"%s_p99_us\": %.2f", name,
                             value.median, name, value.p90, name, value.p99);
    };
    transports.push_back(
        absl::StrFormat("    {\"transport\": \"%s\", \"cpus\": %d, %s, %s, \"asked_cpu_us\": %.2f",
                        one.transport, one.placement == Placement::kOneCpu ? 1 : 2,
                        spread("asked", one.asked), spread("one_way", one.one_way), one.asked_cpu));
    if (one.has_ahead) {
      absl::StrAppendFormat(&transports.back(), ", %s, \"ahead_cpu_us\": %.2f",
                            spread("ahead", one.ahead), one.ahead_cpu);
    }
    transports.back() += "}";
  }
  return absl::StrFormat(
      "{\n  \"benchmark\": \"delivery\",\n  \"machine\": \"%s\",\n  \"quick\": %s,\n"
      "  \"transports\": [\n%s\n  ]\n}\n",
      Machine(), flags.quick ? "true" : "false", absl::StrJoin(transports, ",\n"));
}

absl::StatusOr<std::vector<Result>> Measure(const Flags& flags, const std::string& folder) {
  const std::string path = absl::StrCat(folder, "/odbd.sock");
  // All processes first: there is no thread yet when they are forked.
  ASSIGN_OR_RETURN(Peer daemon, Peer::Start([&](int socket) { return BeDaemon(path, socket); }));
  ASSIGN_OR_RETURN(SocketPair bare, CreateSocketPair());
  ASSIGN_OR_RETURN(Peer echo,
                   Peer::Start([&](int socket) { return BeEcho(bare.second.get(), socket); }));
  const char* const names[] = {"ring", "gRPC stream", "bare"};
  std::vector<Peer> askers;
  for (const Transport transport : {Transport::kRing, Transport::kStream}) {
    ASSIGN_OR_RETURN(Peer trainer,
                     Peer::Start([&](int socket) { return BeTrainer(path, transport, socket); }));
    askers.push_back(std::move(trainer));
  }
  ASSIGN_OR_RETURN(Peer asker, Peer::Start([&](int socket) {
                     return Serve(socket, [&](const Order& order) {
                       return RunBareTurn(bare.first.get(), order);
                     });
                   }));
  askers.push_back(std::move(asker));
  RETURN_IF_ERROR(daemon.AwaitReady());
  RETURN_IF_ERROR(echo.AwaitReady());
  for (Peer& peer : askers) {
    RETURN_IF_ERROR(peer.AwaitReady());
  }

  const std::vector<int> cpus = AllowedCpus();
  std::vector<Placement> placements = {Placement::kOneCpu};
  if (cpus.size() > 1) placements.push_back(Placement::kTwoCpus);
  const int turns = flags.quick ? 10 : 40;
  std::map<std::pair<size_t, Placement>, std::vector<StepTimes>> asked, ahead;
  for (int turn = 0; turn <= turns; ++turn) {
    for (const Placement placement : placements) {
      const int other = placement == Placement::kOneCpu ? cpus.front() : cpus.back();
      RETURN_IF_ERROR(Pin(daemon.pid(), other));
      RETURN_IF_ERROR(Pin(echo.pid(), other));
      for (const Peer& peer : askers) RETURN_IF_ERROR(Pin(peer.pid(), cpus.front()));
      for (size_t i = 0; i < askers.size(); ++i) {
        const bool is_bare = i == 2;
        ASSIGN_OR_RETURN(const auto one, askers[i].Run({Readiness::kOnDemand, 1000}));
        std::vector<StepTimes> two;
        if (!is_bare) {
          ASSIGN_OR_RETURN(two, askers[i].Run({Readiness::kAhead, 1000}));
        }
        if (turn == 0) continue;  // first touches
        auto& all_asked = asked[{i, placement}];
        all_asked.insert(all_asked.end(), one.begin(), one.end());
        auto& all_ahead = ahead[{i, placement}];
        all_ahead.insert(all_ahead.end(), two.begin(), two.end());
      }
    }
  }
  std::vector<Result> results;
  for (const auto& [key, times] : asked) {
    const std::vector<StepTimes>& there_before = ahead[key];
    Result result = {names[key.first], key.second};
    result.asked = SpreadOf(times, &StepTimes::next);
    result.one_way = SpreadOf(times, &StepTimes::one_way);
    result.asked_cpu = SpreadOf(times, &StepTimes::cpu).median;
    result.has_ahead = !there_before.empty();
    if (result.has_ahead) {
      result.ahead = SpreadOf(there_before, &StepTimes::next);
      result.ahead_cpu = SpreadOf(there_before, &StepTimes::cpu).median;
    }
    results.push_back(result);
  }
  std::stable_sort(results.begin(), results.end(), [](const Result& one, const Result& other) {
    return one.placement < other.placement;
  });
  return results;
}

absl::Status Run(const Flags& flags, const std::string& folder) {
  ASSIGN_OR_RETURN(const std::vector<Result> results, Measure(flags, folder));
  std::printf("%s; us: median (90 %%, 99 %%)\n\n", Machine().c_str());
  std::printf(
      "| CPUs | transport | asked: there and back | one way | ahead | CPU per step asked, ahead |\n"
      "|---|---|--:|--:|--:|--:|\n");
  const auto cell = [](const Spread& value) {
    return absl::StrFormat("%.1f (%.1f, %.1f)", value.median, value.p90, value.p99);
  };
  for (const Result& one : results) {
    std::printf("| %s | %s | %s | %s | %s | %.1f%s |\n",
                one.placement == Placement::kOneCpu ? "one" : "two", one.transport,
                cell(one.asked).c_str(), cell(one.one_way).c_str(),
                one.has_ahead ? cell(one.ahead).c_str() : "", one.asked_cpu,
                one.has_ahead ? absl::StrFormat(", %.1f", one.ahead_cpu).c_str() : "");
  }
  if (flags.json.empty()) return absl::OkStatus();
  std::ofstream file(flags.json);
  file << ToJson(flags, results);
  return file.good() ? absl::OkStatus()
                     : absl::InternalError(absl::StrCat("cannot write ", flags.json));
}

}  // namespace
}  // namespace odb

int main(int argc, char** argv) {
  odb::IgnoreSigpipe();
  odb::Flags flags;
  CLI::App app("A small step on its way to the trainer, by ring and by stream.", "delivery");
  app.add_option("--json", flags.json, "file to write the results to");
  app.add_flag("--quick", flags.quick, "under a minute");
  CLI11_PARSE(app, argc, argv);
  if (!flags.json.empty() && flags.json[0] != '/') {
    // bazel run works in a folder of its own.
    const char* const from = getenv("BUILD_WORKING_DIRECTORY");
    if (from != nullptr) flags.json = absl::StrCat(from, "/", flags.json);
  }
  char folder[] = "/tmp/odb-delivery-XXXXXX";
  if (mkdtemp(folder) == nullptr) return 1;
  const absl::Status status = odb::Run(flags, folder);
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  if (status.ok()) return 0;
  std::fprintf(stderr, "delivery: %s\n", status.ToString().c_str());
  return 1;
}
