#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/odbctl/render.h"
#include "client/odbctl/text_format.h"

namespace odb {
namespace {

using Lines = std::vector<std::string>;

std::string DataLine(const v1::Status& status) {
  std::vector<std::string> names;
  for (const std::string& path : status.data()) {
    names.push_back(path.substr(path.rfind('/') + 1));  // npos + 1 is 0: no folder
  }
  const size_t files = names.size();
  if (files > 2) names.resize(2);
  const bool starting = status.has_indexing();
  const int64_t records = starting ? status.indexing().records() : status.records();
  return absl::StrCat("data     ", WithCommas(records),
                      starting ? " records so far: " : " records: ", absl::StrJoin(names, ", "),
                      files > 2 ? absl::StrCat(" and ", files - 2, " more") : "");
}

std::string SamplesLine(const v1::Ledger& ledger) {
  std::string line =
      absl::StrCat("read ", WithCommas(ledger.read()), " = emitted ", WithCommas(ledger.emitted()),
                   " + quarantined ", WithCommas(ledger.quarantined()), " + in flight ",
                   WithCommas(ledger.in_flight()));
  if (ledger.abandoned() > 0) {
    absl::StrAppend(&line, " + abandoned ", WithCommas(ledger.abandoned()));
  }
  return line;
}

// "streams  eval 120 records (align none), test 3,000 records"
std::string StreamsLine(const v1::Status& status) {
  std::vector<std::string> streams;
  for (const v1::StreamStatus& stream : status.streams()) {
    streams.push_back(absl::StrCat(stream.name(), " ", WithCommas(stream.records()), " records",
                                   stream.align() == "none" ? " (align none)" : ""));
  }
  return absl::StrCat("streams  ", absl::StrJoin(streams, ", "));
}

std::string MemoryLine(const v1::MemoryStatus& memory) {
  const int64_t used = memory.windows() + memory.arenas() + memory.pool();
  return absl::StrCat("memory   ", Gibibytes(used), " of ", Gibibytes(memory.limit()), " GiB (",
                      memory.limit_origin(), "): arenas ", Gibibytes(memory.arenas()), ", windows ",
                      Gibibytes(memory.windows()), ", pool ", Gibibytes(memory.pool()));
}

Lines HeaderLines(const v1::Status& status) {
  const v1::PoolStatus& pool = status.pool();
  Lines lines = {
      absl::StrCat("odbd ", status.version(), "  pid ", status.pid(), "  up ",
                   Clock(status.uptime_s()), "  ", status.state(), "  ", status.socket()),
      absl::StrCat("limited by ", status.limiter().empty() ? "nothing" : status.limiter(),
                   status.limiter_text().empty() ? "" : ": ", status.limiter_text()),
      DataLine(status),
      SamplesLine(status.ledger()),
      absl::StrCat("pool     ", pool.busy(), " of ", pool.threads(), " threads busy, ",
                   WithCommas(static_cast<int64_t>(pool.samples_per_s())), " samples/s"),
  };
  if (!status.streams().empty()) lines.insert(lines.begin() + 3, StreamsLine(status));
  if (status.has_memory()) lines.push_back(MemoryLine(status.memory()));
  if (!status.listen().empty()) {
    lines.push_back(absl::StrCat("listens  at tcp://", status.listen(), " for other trainers"));
  }
  if (!status.metrics().empty()) {
    lines.push_back(absl::StrCat("metrics  at http://", status.metrics(), "/metrics"));
  }
  return lines;
}

// "10.0.0.7, 10.0.0.8 and 2 more": where pids count that are not this machine's.
std::string OtherHosts(const v1::JobStatus& job) {
  std::set<std::string> hosts;
  for (const v1::RankStatus& rank : job.ranks()) {
    if (!rank.trainer_host().empty()) hosts.insert(rank.trainer_host());
  }
  constexpr size_t kShown = 3;
  std::vector<std::string> shown(hosts.begin(), hosts.end());
  const size_t hidden = shown.size() > kShown ? shown.size() - kShown : 0;
  shown.resize(shown.size() - hidden);
  return absl::StrCat(absl::StrJoin(shown, ", "),
                      hidden > 0 ? absl::StrCat(" and ", hidden, " more") : "");
}

// Of the trainer that waited most; empty if none did.
std::string WaitLine(const v1::JobStatus& job) {
  const auto& ranks = job.ranks();
  const auto most = std::max_element(ranks.begin(), ranks.end(), [](const auto& a, const auto& b) {
    return a.trainer_waited_us() < b.trainer_waited_us();
  });
  if (most == ranks.end() || most->trainer_waited_us() == 0) return "";
  const bool one = ranks.size() == 1;
  return absl::StrCat(one ? "  trainer waited " : "  trainers waited up to ",
                      TimeSpan(most->trainer_waited_us()), " (longest ",
                      TimeSpan(most->trainer_longest_wait_us()),
                      one ? ")" : absl::StrCat(", rank ", most->rank(), ")"));
}

Lines JobLines(const v1::JobStatus& job) {
  const int64_t total = job.epoch_samples_total();
  const double share = total == 0 ? 0.0 : static_cast<double>(job.epoch_samples_taken()) / total;
  Lines lines = {
      absl::StrCat("job ", job.job(), " ", job.stream(), "  ", job.state(), "  ", job.world_size(),
                   job.world_size() == 1 ? " rank" : " ranks", "  epoch ", job.epoch(), "  round ",
                   job.round(), "  generation ", job.generation(),
                   job.interface().empty() ? "" : "  on ", job.interface()),
      absl::StrCat("  ", WithCommas(job.epoch_samples_taken()), " of ", WithCommas(total),
                   " samples (", Percent(share), ") of the epoch taken, ",
                   WithCommas(job.epoch_samples_emitted()), " planned"),
      absl::StrCat("  ", WithCommas(job.steps()), " steps, ", WithCommas(job.idle_slots()),
                   " idle slots, fill ", Percent(job.fill()), ", real tokens ",
                   Percent(job.real_token_share())),
  };
  const std::string waited = WaitLine(job);
  if (!waited.empty()) lines.push_back(waited);
  if (!job.waiting().empty()) lines.push_back(absl::StrCat("  ", job.waiting()));
  const std::string hosts = OtherHosts(job);
  if (!hosts.empty()) lines.push_back(absl::StrCat("  trainers at ", hosts));
  if (job.aligner_restarts() > 0) {
    lines.push_back(absl::StrCat("  ", job.aligner_restarts(), " aligners were restarted"));
  }
  return lines;
}

const char* RankTitle() {
  return "  rank  trainer  state          window planned ready held    steps  idle  arena";
}

// "41/256"; the widths are those of the title.
std::string RankLine(const v1::RankStatus& rank) {
  const std::string trainer = rank.trainer_pid() == 0 ? "-" : absl::StrCat(rank.trainer_pid());
  // "backpressured (trainer)" has to fit.
  const std::string state = rank.state().substr(0, rank.state().find(' '));
  const double used =
      rank.arena_bytes() == 0 ? 0.0 : static_cast<double>(rank.arena_used()) / rank.arena_bytes();
  return absl::StrFormat("  %4d  %7s  %-13s %7s %7d %5d %4d %8d %5d %5.0f%%", rank.rank(), trainer,
                         state, absl::StrCat(rank.window(), "/", rank.window_max()),
                         rank.planned_steps(), rank.ready_steps(), rank.held_steps(), rank.steps(),
                         rank.idle_steps(), used * 100);
}

// At most `room` lines (>= 2) for the ranks of a job, with a title.
Lines RankLines(const v1::JobStatus& job, size_t room) {
  Lines lines = {RankTitle()};
  const size_t ranks = job.ranks_size();
  const bool all = ranks + 1 <= room;
  const size_t shown = all ? ranks : room - 2;
  for (size_t i = 0; i < shown; ++i) lines.push_back(RankLine(job.ranks(static_cast<int>(i))));
  if (!all) lines.push_back(absl::StrCat("  and ", ranks - shown, " more ranks"));
  return lines;
}

bool IsOver(const v1::JobStatus& job) { return job.state() == "ended" || job.state() == "failed"; }

// Those that run first, then the newest.
std::vector<const v1::JobStatus*> InOrder(const v1::Status& status) {
  std::vector<const v1::JobStatus*> jobs;
  for (const v1::JobStatus& job : status.jobs()) jobs.push_back(&job);
  std::stable_sort(jobs.begin(), jobs.end(), [](const auto* a, const auto* b) {
    if (IsOver(*a) != IsOver(*b)) return IsOver(*b);
    return a->job() > b->job();
  });
  return jobs;
}

void AddJobs(const v1::Status& status, size_t lines_max, Lines* lines) {
  const std::vector<const v1::JobStatus*> jobs = InOrder(status);
  for (size_t i = 0; i < jobs.size(); ++i) {
    const Lines job = JobLines(*jobs[i]);
    const size_t behind = i + 1 < jobs.size() ? 1 : 0;  // for "and n more jobs"
    if (lines->size() + 1 + job.size() + behind > lines_max) {
      lines->push_back(absl::StrCat("and ", jobs.size() - i, " more jobs"));
      return;
    }
    lines->push_back("");
    lines->insert(lines->end(), job.begin(), job.end());
    const size_t room = lines_max - lines->size() - behind;
    if (IsOver(*jobs[i]) || jobs[i]->ranks().empty() || room < 2) continue;
    const Lines ranks = RankLines(*jobs[i], room);
    lines->insert(lines->end(), ranks.begin(), ranks.end());
  }
  if (jobs.empty()) {
    lines->push_back("");
    lines->push_back("no job: no trainer has attached yet");
  }
}

}  // namespace

std::string RenderStatus(const v1::Status& status, const Screen& screen) {
  Lines lines = HeaderLines(status);
  AddJobs(status, screen.lines, &lines);
  lines.resize(std::min(lines.size(), screen.lines));
  std::string text;
  for (const std::string& line : lines) absl::StrAppend(&text, Cut(line, screen.columns), "\n");
  return text;
}

}  // namespace odb
