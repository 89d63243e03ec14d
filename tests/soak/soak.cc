// S18: many steps, and nothing grows.
//
//   bazel run -c opt //tests/soak -- [--steps 200000] [--quick] [--leak memory|descriptors|threads]
//
// Exit code 0: memory, threads and descriptors were flat after the warm-up, no counter went down,
// and status and trainers agree. 1: not, and what. See soak_run.h.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "base/os/signals.h"
#include "tests/soak/soak_run.h"

namespace odb {
namespace {

void Print(const char* when, const Observation& one) {
  constexpr double kMib = 1 << 20;
  std::printf(
      "%-10s %8lld steps  odbd %6.1f MiB (heap %5.1f), %lld threads, %lld descriptors; "
      "trainers %6.1f MiB (heap %5.1f), %lld, %lld\n",
      when, static_cast<long long>(one.steps), static_cast<double>(one.daemon.pss) / kMib,
      static_cast<double>(one.daemon.anon) / kMib, static_cast<long long>(one.daemon.threads),
      static_cast<long long>(one.daemon.descriptors), static_cast<double>(one.trainers.pss) / kMib,
      static_cast<double>(one.trainers.anon) / kMib, static_cast<long long>(one.trainers.threads),
      static_cast<long long>(one.trainers.descriptors));
}

int Run(const SoakOptions& options) {
  const auto report = RunSoak(options);
  if (!report.ok()) {
    std::fprintf(stderr, "soak: %s\n", report.status().ToString().c_str());
    return 1;
  }
  const std::vector<Observation>& run = report->run;
  Print("first", run.front());
  Print("warmed up", run[run.size() / 3]);
  Print("two thirds", run[2 * run.size() / 3]);
  Print("last", run.back());
  std::printf("%lld steps of %d ranks, %lld samples, %lld bad records, %lld epochs in %.0f s\n",
              static_cast<long long>(report->counts.steps), options.ranks,
              static_cast<long long>(report->counts.samples),
              static_cast<long long>(report->counts.bad_records),
              static_cast<long long>(report->epochs), report->seconds);
  const std::vector<std::string> complaints = CheckSoak(*report);
  for (const std::string& complaint : complaints) std::printf("NOT FLAT: %s\n", complaint.c_str());
  if (complaints.empty()) std::printf("flat, and all counters agree\n");
  return complaints.empty() ? 0 : 1;
}

}  // namespace
}  // namespace odb

int main(int argc, char** argv) {
  odb::IgnoreSigpipe();
  odb::SoakOptions options;
  bool is_quick = false;
  const std::map<std::string, odb::Leak> leaks = {{"none", odb::Leak::kNone},
                                                  {"memory", odb::Leak::kMemory},
                                                  {"descriptors", odb::Leak::kDescriptors},
                                                  {"threads", odb::Leak::kThreads}};
  CLI::App app("Many steps of random lengths through a real odbd, and nothing grows.", "soak");
  app.add_option("--steps", options.steps, "of each rank")->check(CLI::PositiveNumber);
  app.add_option("--ranks", options.ranks)->check(CLI::Range(1, 16));
  app.add_option("--leak", options.leak, "lose something on purpose")
      ->transform(CLI::CheckedTransformer(leaks));
  app.add_flag("--quick", is_quick, "5 000 steps");
  CLI11_PARSE(app, argc, argv);
  if (is_quick) {
    options.steps = 5000;
    options.records = 4000;
  }
  return odb::Run(options);
}
