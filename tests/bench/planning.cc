// How well and how fast policies plan: whole epochs over lengths of several shapes, without data,
// ranks or time.
//   bazel run -c opt //tests/bench:planning -- [--quick] [--json FILE]
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/random.h"
#include "batching/grouping_curve.h"
#include "batching/length_order.h"
#include "batching/partition.h"
#include "tests/bench/length_data.h"
#include "tests/bench/planning_cell.h"

namespace odb {
namespace {

constexpr int32_t kLongest = 8192;
constexpr int32_t kRanksOfNode = 8;

struct Grid {
  std::vector<LengthData> data;
  std::vector<int64_t> budgets = {4096, 8192, 16384};
  std::vector<int64_t> windows = {64, 256, 1024};
  std::vector<int32_t> ranks = {2, 8, 64};
};

// At least 8 windows of each rank, and no more samples than a laptop likes.
int64_t NumSamples(int64_t window, int32_t ranks) {
  const int64_t of_rank = std::max<int64_t>(8 * window, 2000);
  return std::min<int64_t>(of_rank * ranks, std::max<int64_t>(400'000, 3 * window * ranks));
}

// Collects one JSON object a row.
class Json {
 public:
  void Add(const std::vector<std::string>& fields) {
    rows_.push_back(absl::StrCat("  {", absl::StrJoin(fields, ", "), "}"));
  }
  bool Write(const std::string& path) const {
    std::ofstream file(path);
    file << "[\n" << absl::StrJoin(rows_, ",\n") << "\n]\n";
    return file.good();
  }

 private:
  std::vector<std::string> rows_;
};

std::string Text(absl::string_view key, absl::string_view value) {
  return absl::StrCat("\"", key, "\": \"", value, "\"");
}
std::string Number(absl::string_view key, double value) {
  return absl::StrFormat("\"%s\": %.6g", key, value);
}

// How often one policy beats another over the cells.
struct Tally {
  int cells = 0;
  int fill = 0;
  int steps = 0;
  int straggler = 0;
  int worse = 0;        // fill by more than 0.1 points, or another by more than 1 %
  int bias = 0;         // at most half of the bias of groups matched by length
  int bias_random = 0;  // ... or at most 1.1 times that of groups matched at random
  int node_worse = 0;   // scope node below scope rank in fill by more than 0.1 points
};

void Count(const PlanningResult& paper, const PlanningResult& ours, Tally* tally) {
  ++tally->cells;
  tally->fill += ours.fill > paper.fill ? 1 : 0;
  tally->steps += ours.steps < paper.steps ? 1 : 0;
  tally->straggler += ours.straggler < paper.straggler ? 1 : 0;
  const bool half = ours.bias <= 0.5 * ours.bias_by_length;
  tally->bias += half ? 1 : 0;
  tally->bias_random += half || ours.bias <= 1.1 * ours.bias_at_random ? 1 : 0;
  const bool worse = ours.fill < paper.fill - 0.001 ||
                     static_cast<double>(ours.steps) > 1.01 * static_cast<double>(paper.steps) ||
                     ours.straggler > 1.01 * paper.straggler;
  tally->worse += worse ? 1 : 0;
  if (worse) std::printf("| ^ balanced is worse than paper here |\n");
}

class Report {
 public:
  explicit Report(Json* json) : json_(json) {
    std::printf(
        "| lengths | budget | window | ranks | policy | scope | fill %% | real %% | steps | IDLE | "
        "straggler | bias | (by length) | (at random) | wait | rounds | plan us |\n"
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n");
  }

  void Row(const std::string& data, const PlanningCell& cell, const char* policy,
           const PlanningResult& r) {
    const char* scope = cell.ranks_per_node > 0 ? "node" : "rank";
    std::printf(
        "| %s | %lld | %lld | %d | %s | %s | %.1f | %.1f | %lld | %lld | %.3f | %.0f | %.0f | %.0f "
        "| "
        "%d | %lld | %.0f |\n",
        data.c_str(), static_cast<long long>(cell.budget), static_cast<long long>(cell.window),
        cell.ranks, policy, scope, 100 * r.fill, 100 * r.real_share,
        static_cast<long long>(r.steps), static_cast<long long>(r.idle), r.straggler, r.bias,
        r.bias_by_length, r.bias_at_random, r.longest_wait, static_cast<long long>(r.rounds),
        r.plan_us);
    json_->Add({Text("bench", "planning"), Text("lengths", data),
                Number("budget", static_cast<double>(cell.budget)),
                Number("window", static_cast<double>(cell.window)), Number("ranks", cell.ranks),
                Text("policy", policy), Text("scope", scope), Number("fill", r.fill),
                Number("real_share", r.real_share), Number("steps", static_cast<double>(r.steps)),
                Number("idle", static_cast<double>(r.idle)), Number("straggler", r.straggler),
                Number("length_bias", r.bias), Number("length_bias_by_length", r.bias_by_length),
                Number("length_bias_at_random", r.bias_at_random),
                Number("longest_wait_rounds", r.longest_wait),
                Number("rounds", static_cast<double>(r.rounds)), Number("plan_us", r.plan_us)});
  }

 private:
  Json* json_;
};

absl::Status RunCell(const LengthData& data, PlanningCell cell, Report* report, Tally* tally) {
  report->Row(data.name, cell, "fixed", RunFixedBatch(cell, /*sorted=*/false));
  report->Row(data.name, cell, "sorted", RunFixedBatch(cell, /*sorted=*/true));
  double rank_fill = 0;
  for (const int32_t ranks_per_node : {0, std::min(cell.ranks, kRanksOfNode)}) {
    cell.ranks_per_node = ranks_per_node;
    const absl::StatusOr<PlanningResult> paper = RunPolicy(cell, Policy::kPaper);
    if (!paper.ok()) return paper.status();
    const absl::StatusOr<PlanningResult> balanced = RunPolicy(cell, Policy::kBalanced);
    if (!balanced.ok()) return balanced.status();
    report->Row(data.name, cell, "paper", *paper);
    report->Row(data.name, cell, "balanced", *balanced);
    Count(*paper, *balanced, tally);
    if (ranks_per_node == 0) rank_fill = balanced->fill;
    if (ranks_per_node > 0 && balanced->fill < rank_fill - 0.001) ++tally->node_worse;
  }
  return absl::OkStatus();
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

std::vector<Offer> MakeOffers(int64_t num_ranks, int64_t num_samples) {
  const std::vector<int32_t> lengths =
      DrawLengths({"", 1000, 0.48, false, {}}, num_ranks * num_samples, kLongest, 5);
  std::vector<Offer> offers(static_cast<size_t>(num_ranks));
  for (size_t i = 0; i < lengths.size(); ++i) {
    SampleShape sample;
    sample.length = lengths[i];
    sample.id_hash = i;
    offers[i % offers.size()].window.push_back(sample);
    offers[i % offers.size()].header.state = OfferState::kReady;
    offers[i % offers.size()].header.unread = 100 * num_samples;  // in the middle of an epoch
  }
  return offers;
}

// Processor time, median of `times` [us].
template <typename Work>
double TimeOf(int times, const Work& work) {
  std::vector<double> us;
  for (int i = 0; i < times; ++i) {
    const double begin = ThreadSeconds();
    work();
    us.push_back((ThreadSeconds() - begin) * 1e6);
  }
  return Median(us);
}

void TimePlans(Json* json) {
  std::printf("\n| timed (processor time, median) | us |\n|---|---|\n");
  const auto row = [json](const std::string& what, double us) {
    std::printf("| %s | %.0f |\n", what.c_str(), us);
    json->Add({Text("bench", "planning_time"), Text("what", what), Number("us", us)});
  };
  GroupLimits limits;
  limits.budget = 16384;
  const std::vector<Offer> one = MakeOffers(1, 1024);
  row("sorting 1024 samples", TimeOf(101, [&] { return AscendingByLength(one[0].window).size(); }));
  const SortedWindow sorted = SortWindow(one[0].window, limits);
  row("grouping curve of 1024 sorted samples",
      TimeOf(101, [&] { return GroupingCurve::Of(sorted, {}).level(0).size(); }));
  PlanOptions options;
  options.policy = Policy::kBalanced;
  options.budget = limits.budget;
  options.max_wait_rounds = 64;
  for (const auto& [ranks, samples] : {std::pair<int64_t, int64_t>{8, 1024}, {1024, 128}}) {
    const std::vector<Offer> offers = MakeOffers(ranks, samples);
    options.max_steps = static_cast<int32_t>(samples);
    const std::string size = absl::StrCat(ranks, " ranks x ", samples, " samples");
    for (const int32_t per_node : {0, 8}) {
      options.node_of_rank.clear();
      for (int32_t rank = 0; rank < ranks && per_node > 0; ++rank) {
        options.node_of_rank.push_back(rank / per_node);
      }
      row(absl::StrCat("one plan, ", size, ", scope ", per_node > 0 ? "node" : "rank"),
          TimeOf(31, [&] { return MakePlan(options, {}, offers).ok(); }));
    }
    row(absl::StrCat("of it sorting, ", size), TimeOf(31, [&] {
          size_t sum = 0;
          for (const Offer& offer : offers) sum += AscendingByLength(offer.window).size();
          return sum;
        }));
  }
}

int Main(int argc, char** argv) {
  CLI::App app("Epochs under each policy: fill, steps, stragglers, length bias, waits and times.");
  bool quick = false;
  std::string json_path;
  app.add_flag("--quick", quick, "a part of the grid, in less than a minute");
  app.add_option("--json", json_path, "also write one object a row to this file");
  CLI11_PARSE(app, argc, argv);

  Grid grid;
  grid.data = AllLengthData();
  if (quick) {
    grid.windows = {64, 256};
    grid.ranks = {2, 8};
  }
  Json json;
  Report report(&json);
  Tally tally;
  for (const LengthData& data : grid.data) {
    for (const int64_t budget : grid.budgets) {
      for (const int64_t window : grid.windows) {
        for (const int32_t ranks : grid.ranks) {
          PlanningCell cell;
          const auto longest = static_cast<int32_t>(std::min<int64_t>(kLongest, budget));
          cell.lengths = DrawLengths(data, NumSamples(window, ranks), longest, 7);
          cell.budget = budget;
          cell.window = window;
          cell.ranks = ranks;
          const absl::Status status = RunCell(data, std::move(cell), &report, &tally);
          if (!status.ok()) {
            std::fprintf(stderr, "planning: %s\n", std::string(status.message()).c_str());
            return 1;
          }
        }
      }
    }
  }
  std::printf(
      "\nbalanced against paper, same scope: %d cells; better in fill %d, steps %d, straggler %d; "
      "worse by more than 0.1 points or 1 %% in %d\n"
      "length bias at most half of that of groups matched by length: %d; or at most 1.1 x that of "
      "groups matched at random: %d\n"
      "scope node below scope rank in fill: %d\n",
      tally.cells, tally.fill, tally.steps, tally.straggler, tally.worse, tally.bias,
      tally.bias_random, tally.node_worse);
  TimePlans(&json);
  if (!json_path.empty() && !json.Write(json_path)) {
    std::fprintf(stderr, "planning: cannot write %s\n", json_path.c_str());
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace odb

int main(int argc, char** argv) { return odb::Main(argc, argv); }
