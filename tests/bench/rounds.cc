// What a round costs, from offer to confirmed plan, beside the two exchanges that it consists of.
//
//   bazel run -c opt //tests/bench:rounds -- [--quick] [--json FILE] [--window N] [--worlds 2,4,8]
//      [--topology auto|flat|hierarchical]
//
// Everything runs on this machine, over loopback, in turns of a few hundred rounds each, so that
// all see the same weather. Medians of all turns. Planning is not part of it (see planning).
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/os/signals.h"
#include "base/status_macros.h"
#include "proto/wire/record_codec.h"
#include "tests/bench/machine.h"
#include "tests/bench/rounds_job.h"
#include "tests/bench/rounds_peers.h"

namespace odb {
namespace {

struct Flags {
  std::string aligner;
  std::string json;
  bool quick = false;
  std::string topology = "auto";
  int window = 256;
  std::vector<int> worlds = {2, 4, 8};
};

// Microseconds.
struct Spread {
  double median = 0;
  double p90 = 0;
};

struct WorldResult {
  int ranks = 0;
  Spread round;
  Spread bare;
  Spread hierarchical;
  Spread gloo;
  double ratio() const { return round.median / bare.median; }
};

Spread SpreadOf(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  const auto at = [&](double share) {
    return 1e6 * seconds[static_cast<size_t>(share * static_cast<double>(seconds.size() - 1))];
  };
  return {at(0.5), at(0.9)};
}

RecordSizes SizesOf(int window) {
  const WireRecordSizes sizes = RecordCodec(window).sizes();
  return {sizes.resync, sizes.offer, sizes.confirm};
}

// Takes turns; `job` is the last, so that nothing is measured before all processes run.
absl::StatusOr<WorldResult> Measure(const Flags& flags, int ranks, RoundPeers* peers) {
  RETURN_IF_ERROR(peers->Connect());
  ASSIGN_OR_RETURN(const auto job,
                   RoundJob::Start(flags.aligner, flags.topology, ranks, flags.window));
  const int turns = flags.quick ? 5 : 20;
  const int count = flags.quick ? 100 : 200;
  std::vector<double> round, bare, hierarchical, gloo;
  const auto append = [](const std::vector<double>& from, std::vector<double>* to) {
    to->insert(to->end(), from.begin(), from.end());
  };
  for (int turn = 0; turn <= turns; ++turn) {
    ASSIGN_OR_RETURN(const auto one_bare, peers->Run(PeerTask::kBare, count));
    ASSIGN_OR_RETURN(const auto one_round, job->Run(count));
    ASSIGN_OR_RETURN(const auto one_hierarchical, peers->Run(PeerTask::kHierarchical, count));
    ASSIGN_OR_RETURN(const auto one_gloo, peers->Run(PeerTask::kGloo, count / 10));
    if (turn == 0) continue;  // first touches
    append(one_bare, &bare);
    append(one_round, &round);
    append(one_hierarchical, &hierarchical);
    append(one_gloo, &gloo);
  }
  WorldResult result;
  result.ranks = ranks;
  result.round = SpreadOf(std::move(round));
  result.bare = SpreadOf(std::move(bare));
  result.hierarchical = SpreadOf(std::move(hierarchical));
  result.gloo = SpreadOf(std::move(gloo));
  return result;
}

std::string ToJson(const Flags& flags, const std::vector<WorldResult>& results) {
  std::vector<std::string> worlds;
  for (const WorldResult& one : results) {
    const auto spread = [](const char* name, const Spread& value) {
      return absl::StrFormat("\"%s_us\": %.1f, \"%s_p90_us\": %.1f", name, value.median, name,
                             value.p90);
    };
    worlds.push_back(absl::StrFormat(
        "    {\"ranks\": %d, %s, %s, %s, %s, \"round_to_bare\": %.3f}", one.ranks,
        spread("round", one.round), spread("bare", one.bare),
        spread("hierarchical", one.hierarchical), spread("gloo", one.gloo), one.ratio()));
  }
  return absl::StrFormat(
      "{\n  \"benchmark\": \"rounds\",\n  \"machine\": \"%s\",\n  \"quick\": %s,\n"
      "  \"topology\": \"%s\",\n"
      "  \"window\": %d,\n  \"offer_bytes\": %d,\n  \"confirm_bytes\": %d,\n"
      "  \"worlds\": [\n%s\n  ]\n}\n",
      Machine(), flags.quick ? "true" : "false", flags.topology, flags.window,
      SizesOf(flags.window).offer, SizesOf(flags.window).confirm, absl::StrJoin(worlds, ",\n"));
}

absl::Status Run(const Flags& flags, const std::string& folder) {
  // All processes first: there must be no thread yet when they are forked.
  std::vector<RoundPeers> peers;
  for (const int ranks : flags.worlds) {
    const std::string own = absl::StrCat(folder, "/", ranks);
    std::filesystem::create_directories(own);
    ASSIGN_OR_RETURN(auto started, RoundPeers::Start(ranks, SizesOf(flags.window), own));
    peers.push_back(std::move(started));
  }
  std::printf("%s; window %d, records of %zu and %zu bytes; medians (90 %%) in us\n\n",
              Machine().c_str(), flags.window, SizesOf(flags.window).offer,
              SizesOf(flags.window).confirm);
  std::printf(
      "| ranks | round | two bare exchanges | ratio | hierarchical, 2 nodes | "
      "gloo::allgather |\n|--:|--:|--:|--:|--:|--:|\n");
  std::vector<WorldResult> results;
  for (size_t i = 0; i < flags.worlds.size(); ++i) {
    ASSIGN_OR_RETURN(const WorldResult one, Measure(flags, flags.worlds[i], &peers[i]));
    std::printf("| %d | %.0f (%.0f) | %.0f (%.0f) | %.2f | %.0f (%.0f) | %.0f (%.0f) |\n",
                one.ranks, one.round.median, one.round.p90, one.bare.median, one.bare.p90,
                one.ratio(), one.hierarchical.median, one.hierarchical.p90, one.gloo.median,
                one.gloo.p90);
    std::fflush(stdout);
    results.push_back(one);
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
  CLI::App app("Rounds, from offer to confirmed plan, beside bare exchanges.", "rounds");
  app.add_option("--aligner", flags.aligner, "the odb-aligner program")->required();
  app.add_option("--json", flags.json, "file to write the results to");
  app.add_flag("--quick", flags.quick, "under a minute");
  app.add_option("--window", flags.window, "samples per offer")->check(CLI::Range(1, 65536));
  app.add_option("--topology", flags.topology, "of the aligners, which are on one node")
      ->check(CLI::IsMember({"auto", "flat", "hierarchical"}));
  app.add_option("--worlds", flags.worlds, "numbers of ranks")->delimiter(',');
  CLI11_PARSE(app, argc, argv);
  if (!flags.json.empty() && flags.json[0] != '/') {
    // bazel run works in a folder of its own.
    const char* const from = getenv("BUILD_WORKING_DIRECTORY");
    if (from != nullptr) flags.json = absl::StrCat(from, "/", flags.json);
  }
  char folder[] = "/tmp/odb-rounds-XXXXXX";
  if (mkdtemp(folder) == nullptr) return 1;
  const absl::Status status = odb::Run(flags, folder);
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  if (status.ok()) return 0;
  std::fprintf(stderr, "rounds: %s\n", status.ToString().c_str());
  return 1;
}
