#include "tests/soak/soak_check.h"

#include <algorithm>
#include <functional>
#include <map>

#include "absl/strings/str_cat.h"

namespace odb {
namespace {

constexpr int64_t kMemoryAllowed = int64_t{4} << 20;
constexpr double kMemoryShareAllowed = 0.03;
constexpr size_t kObservationsMin = 9;

using Reading = std::function<int64_t(const Observation&)>;

int64_t MaxOf(const std::vector<Observation>& run, size_t begin, size_t end, const Reading& read) {
  int64_t most = 0;
  for (size_t i = begin; i < end; ++i) most = std::max(most, read(run[i]));
  return most;
}

std::map<std::string, int64_t> CountersOf(const v1::Status& status) {
  std::map<std::string, int64_t> counters = {
      {"read", status.ledger().read()},
      {"emitted", status.ledger().emitted()},
      {"quarantined", status.ledger().quarantined()},
      {"abandoned", status.ledger().abandoned()},
  };
  for (const v1::JobStatus& job : status.jobs()) {
    const std::string name = absl::StrCat("job ", job.job());
    counters[name + " steps"] = job.steps();
    counters[name + " idle slots"] = job.idle_slots();
    counters[name + " round"] = job.round();
    for (const v1::RankStatus& rank : job.ranks()) {
      const std::string whose = absl::StrCat(name, " rank ", rank.rank());
      counters[whose + " steps"] = rank.steps();
      counters[whose + " idle steps"] = rank.idle_steps();
      counters[whose + " samples"] = rank.samples();
    }
  }
  return counters;
}

}  // namespace

std::vector<std::string> CheckFlat(const std::vector<Observation>& run) {
  if (run.size() < kObservationsMin) {
    return {absl::StrCat("only ", run.size(), " observations, wanted ", kObservationsMin)};
  }
  struct Quantity {
    std::string name;
    Reading read;
    int64_t allowed;  // 0: memory
  };
  std::vector<Quantity> quantities;
  const auto add = [&](const std::string& whose, ProcessUsage Observation::*usage) {
    quantities.push_back(
        {"memory of " + whose, [usage](const auto& one) { return (one.*usage).pss; }, 0});
    quantities.push_back(
        {"heap of " + whose, [usage](const auto& one) { return (one.*usage).anon; }, 0});
    quantities.push_back(
        {"threads of " + whose, [usage](const auto& one) { return (one.*usage).threads; }, 2});
    quantities.push_back({"descriptors of " + whose,
                          [usage](const auto& one) { return (one.*usage).descriptors; }, 4});
  };
  add("odbd", &Observation::daemon);
  add("the trainers", &Observation::trainers);

  std::vector<std::string> complaints;
  const size_t third = run.size() / 3;
  for (const Quantity& quantity : quantities) {
    const int64_t before = MaxOf(run, third, 2 * third, quantity.read);
    const int64_t after = MaxOf(run, 2 * third, run.size(), quantity.read);
    const int64_t allowed =
        quantity.allowed > 0
            ? quantity.allowed
            : std::max(kMemoryAllowed,
                       static_cast<int64_t>(static_cast<double>(before) * kMemoryShareAllowed));
    if (after <= before + allowed) continue;
    complaints.push_back(absl::StrCat(quantity.name, " grew from ", before, " to ", after,
                                      " between steps ", run[third].steps, " and ",
                                      run.back().steps));
  }
  return complaints;
}

std::vector<std::string> CheckCounters(const std::vector<Observation>& run) {
  std::vector<std::string> complaints;
  std::map<std::string, int64_t> last;
  for (const Observation& one : run) {
    for (const auto& [name, value] : CountersOf(one.status)) {
      const auto before = last.find(name);
      if (before != last.end() && value < before->second) {
        complaints.push_back(absl::StrCat(name, " went down from ", before->second, " to ", value,
                                          " at step ", one.steps));
      }
      last[name] = value;
    }
    const v1::Ledger& ledger = one.status.ledger();
    const int64_t sum =
        ledger.emitted() + ledger.quarantined() + ledger.in_flight() + ledger.abandoned();
    if (sum == ledger.read()) continue;
    complaints.push_back(
        absl::StrCat("read is ", ledger.read(), ", its parts ", sum, " at step ", one.steps));
  }
  return complaints;
}

std::vector<std::string> CheckAgreement(const v1::Status& last, const ClientCounts& counts) {
  std::vector<std::string> complaints;
  const auto compare = [&](const std::string& name, int64_t status, int64_t clients) {
    if (status == clients) return;
    complaints.push_back(
        absl::StrCat(name, ": ", status, " in the status, ", clients, " at the trainers"));
  };
  compare("samples emitted", last.ledger().emitted(), counts.samples);
  compare("samples quarantined", last.ledger().quarantined(), counts.bad_records);
  compare("samples in flight", last.ledger().in_flight(), 0);
  if (last.jobs_size() != 1) {
    complaints.push_back(absl::StrCat(last.jobs_size(), " jobs in the status, wanted 1"));
    return complaints;
  }
  compare("steps", last.jobs(0).steps(), counts.steps);
  compare("idle slots", last.jobs(0).idle_slots(), counts.idle);
  int64_t samples = 0;
  for (const v1::RankStatus& rank : last.jobs(0).ranks()) {
    compare(absl::StrCat("steps of rank ", rank.rank()), rank.steps(), counts.steps);
    samples += rank.samples();
  }
  compare("samples of all ranks", samples, counts.samples);
  return complaints;
}

}  // namespace odb
