// What a small step costs on its way: by the step ring, and beside it by the gRPC stream.
//
//   bazel run -c opt //tests/bench:delivery -- [--quick] [--json FILE]
//
// A process with odbd's socket, services and sessions, whose steps are made up, and two trainer
// processes with the real client, one for each transport. They take turns of some thousand steps,
// so that both see the same weather.
//
//   asked    the step is given out once the trainer says that it waits: from Next() to its return,
//            trainer to daemon to trainer; and the part from the daemon's hand to the trainer's
//   ahead    steps are there before they are asked for: the time of Next()
//   CPU      of the trainer's process, all threads, per step
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
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

absl::Status BeTrainer(const std::string& path, Transport transport, int socket) {
  ASSIGN_OR_RETURN(ClientOptions options, ClientOptions::FromEnvironment());
  options.socket = path;
  options.transport = transport;
  options.connect_timeout = absl::Seconds(30);
  ASSIGN_OR_RETURN(const auto client, Client::Open(options));
  RETURN_IF_ERROR(WriteAll(socket, "r", Soon()));
  while (true) {
    ASSIGN_OR_RETURN(const std::string bytes,
                     ReadExactly(socket, sizeof(Order), absl::InfiniteFuture()));
    Order order;
    std::copy(bytes.begin(), bytes.end(), reinterpret_cast<char*>(&order));
    ASSIGN_OR_RETURN(const auto times, RunTurn(client.get(), order));
    RETURN_IF_ERROR(WriteAll(socket,
                             absl::string_view(reinterpret_cast<const char*>(times.data()),
                                               times.size() * sizeof times[0]),
                             Soon()));
  }
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
    transports.push_back(absl::StrFormat(
        "    {\"transport\": \"%s\", %s, %s, %s, \"asked_cpu_us\": %.2f, \"ahead_cpu_us\": %.2f}",
        one.transport, spread("asked", one.asked), spread("one_way", one.one_way),
        spread("ahead", one.ahead), one.asked_cpu, one.ahead_cpu));
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
  const std::pair<const char*, Transport> kinds[] = {{"ring", Transport::kRing},
                                                     {"stream", Transport::kStream}};
  std::vector<Peer> trainers;
  for (const auto& kind : kinds) {
    ASSIGN_OR_RETURN(Peer trainer,
                     Peer::Start([&](int socket) { return BeTrainer(path, kind.second, socket); }));
    trainers.push_back(std::move(trainer));
  }
  RETURN_IF_ERROR(daemon.AwaitReady());
  for (Peer& trainer : trainers) RETURN_IF_ERROR(trainer.AwaitReady());

  const int turns = flags.quick ? 10 : 40;
  std::vector<std::vector<StepTimes>> asked(trainers.size()), ahead(trainers.size());
  for (int turn = 0; turn <= turns; ++turn) {
    for (size_t i = 0; i < trainers.size(); ++i) {
      ASSIGN_OR_RETURN(const auto one, trainers[i].Run({Readiness::kOnDemand, 1000}));
      ASSIGN_OR_RETURN(const auto two, trainers[i].Run({Readiness::kAhead, 1000}));
      if (turn == 0) continue;  // first touches
      asked[i].insert(asked[i].end(), one.begin(), one.end());
      ahead[i].insert(ahead[i].end(), two.begin(), two.end());
    }
  }
  std::vector<Result> results;
  for (size_t i = 0; i < trainers.size(); ++i) {
    results.push_back(
        {kinds[i].first, SpreadOf(asked[i], &StepTimes::next),
         SpreadOf(asked[i], &StepTimes::one_way), SpreadOf(ahead[i], &StepTimes::next),
         SpreadOf(asked[i], &StepTimes::cpu).median, SpreadOf(ahead[i], &StepTimes::cpu).median});
  }
  return results;
}

absl::Status Run(const Flags& flags, const std::string& folder) {
  ASSIGN_OR_RETURN(const std::vector<Result> results, Measure(flags, folder));
  std::printf("%s; us: median (90 %%, 99 %%)\n\n", Machine().c_str());
  std::printf(
      "| transport | asked: there and back | one way | ahead | CPU per step asked, ahead |\n"
      "|---|--:|--:|--:|--:|\n");
  const auto cell = [](const Spread& value) {
    return absl::StrFormat("%.1f (%.1f, %.1f)", value.median, value.p90, value.p99);
  };
  for (const Result& one : results) {
    std::printf("| %s | %s | %s | %s | %.1f, %.1f |\n", one.transport, cell(one.asked).c_str(),
                cell(one.one_way).c_str(), cell(one.ahead).c_str(), one.asked_cpu, one.ahead_cpu);
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
