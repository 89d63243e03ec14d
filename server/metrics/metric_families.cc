#include "server/metrics/metric_families.h"

#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace odb {
namespace {

using prometheus::MetricType;
using Labels = std::vector<prometheus::ClientMetric::Label>;

// Collects samples by the name of their family, families in the order of their first sample.
class Families {
 public:
  void Add(MetricType type, const std::string& name, const std::string& help, Labels labels,
           double value) {
    const auto place = places_.emplace(name, families_.size());
    if (place.second) {
      families_.emplace_back();
      families_.back().name = absl::StrCat("odbd_", name);
      families_.back().help = help;
      families_.back().type = type;
    }
    prometheus::ClientMetric metric;
    metric.label = std::move(labels);
    (type == MetricType::Counter ? metric.counter.value : metric.gauge.value) = value;
    families_[place.first->second].metric.push_back(std::move(metric));
  }

  void Gauge(const std::string& name, const std::string& help, Labels labels, double value) {
    Add(MetricType::Gauge, name, help, std::move(labels), value);
  }

  // 1 for the one of `states` that is `current`, 0 for the others.
  void States(const std::string& name, const std::string& help, const std::string& label,
              const std::vector<std::string>& states, const std::string& current) {
    for (const std::string& state : states) {
      Gauge(name, help, {{label, state}}, state == current ? 1 : 0);
    }
  }

  std::vector<prometheus::MetricFamily> Take() { return std::move(families_); }

 private:
  std::vector<prometheus::MetricFamily> families_;
  std::map<std::string, size_t> places_;
};

// One number of a message of the status.
template <typename T>
struct Series {
  MetricType type;
  const char* name;
  const char* help;
  double (*value)(const T& message);
};

constexpr double kMicros = 1e-6;

const Series<v1::Ledger> kLedger[] = {
    {MetricType::Counter, "samples_read_total", "Records taken from the sources.",
     [](const v1::Ledger& ledger) { return static_cast<double>(ledger.read()); }},
    {MetricType::Counter, "samples_emitted_total", "Samples in steps that trainers took.",
     [](const v1::Ledger& ledger) { return static_cast<double>(ledger.emitted()); }},
    {MetricType::Counter, "samples_quarantined_total", "Records that could not be used.",
     [](const v1::Ledger& ledger) { return static_cast<double>(ledger.quarantined()); }},
    {MetricType::Counter, "samples_abandoned_total",
     "Samples in flight when an iteration ended early, or left over.",
     [](const v1::Ledger& ledger) { return static_cast<double>(ledger.abandoned()); }},
    {MetricType::Gauge, "samples_in_flight", "Samples read and not yet in a step that was taken.",
     [](const v1::Ledger& ledger) { return static_cast<double>(ledger.in_flight()); }},
};

const Series<v1::JobStatus> kJob[] = {
    {MetricType::Counter, "job_steps_total", "Steps planned, over all iterations.",
     [](const v1::JobStatus& job) { return static_cast<double>(job.steps()); }},
    {MetricType::Counter, "job_idle_slots_total", "Places of ranks in these steps without samples.",
     [](const v1::JobStatus& job) { return static_cast<double>(job.idle_slots()); }},
    {MetricType::Counter, "job_aligner_restarts_total", "Aligner processes that were replaced.",
     [](const v1::JobStatus& job) { return static_cast<double>(job.aligner_restarts()); }},
    {MetricType::Gauge, "job_running", "1 while the job has all its ranks and runs.",
     [](const v1::JobStatus& job) { return job.state() == "running" ? 1.0 : 0.0; }},
    {MetricType::Gauge, "job_epoch", "The running epoch.",
     [](const v1::JobStatus& job) { return static_cast<double>(job.epoch()); }},
    {MetricType::Gauge, "job_round", "The last round.",
     [](const v1::JobStatus& job) { return static_cast<double>(job.round()); }},
    {MetricType::Gauge, "job_generation", "How often the ranks were connected.",
     [](const v1::JobStatus& job) { return static_cast<double>(job.generation()); }},
    {MetricType::Gauge, "job_epoch_samples", "Samples of the epoch, all ranks.",
     [](const v1::JobStatus& job) { return static_cast<double>(job.epoch_samples_total()); }},
    {MetricType::Gauge, "job_epoch_samples_taken", "Of them, in steps that were taken.",
     [](const v1::JobStatus& job) { return static_cast<double>(job.epoch_samples_taken()); }},
    {MetricType::Gauge, "job_fill_ratio", "Real tokens / (steps x ranks x budget).",
     [](const v1::JobStatus& job) { return job.fill(); }},
    {MetricType::Gauge, "job_real_token_ratio", "Real tokens / padded tokens.",
     [](const v1::JobStatus& job) { return job.real_token_share(); }},
};

const Series<v1::RankStatus> kRank[] = {
    {MetricType::Counter, "rank_steps_total", "Steps assembled.",
     [](const v1::RankStatus& rank) { return static_cast<double>(rank.steps()); }},
    {MetricType::Counter, "rank_idle_steps_total", "Of them, without samples.",
     [](const v1::RankStatus& rank) { return static_cast<double>(rank.idle_steps()); }},
    {MetricType::Counter, "rank_samples_total", "Samples in assembled steps.",
     [](const v1::RankStatus& rank) { return static_cast<double>(rank.samples()); }},
    {MetricType::Gauge, "rank_window_samples", "Samples in the window.",
     [](const v1::RankStatus& rank) { return static_cast<double>(rank.window()); }},
    {MetricType::Gauge, "rank_planned_steps", "Steps planned and not assembled.",
     [](const v1::RankStatus& rank) { return static_cast<double>(rank.planned_steps()); }},
    {MetricType::Gauge, "rank_ready_steps", "Steps ready for the trainer.",
     [](const v1::RankStatus& rank) { return static_cast<double>(rank.ready_steps()); }},
    {MetricType::Gauge, "rank_held_steps", "Steps that the trainer holds.",
     [](const v1::RankStatus& rank) { return static_cast<double>(rank.held_steps()); }},
    {MetricType::Gauge, "rank_arena_bytes", "Shared memory of the rank.",
     [](const v1::RankStatus& rank) { return static_cast<double>(rank.arena_bytes()); }},
    {MetricType::Gauge, "rank_arena_used_bytes", "Of it, in steps.",
     [](const v1::RankStatus& rank) { return static_cast<double>(rank.arena_used()); }},
    {MetricType::Gauge, "rank_trainer_waited_seconds",
     "How long the trainer waited for steps, in its running iteration.",
     [](const v1::RankStatus& rank) {
       return static_cast<double>(rank.trainer_waited_us()) * kMicros;
     }},
    {MetricType::Gauge, "rank_trainer_longest_wait_seconds", "For the step that took longest.",
     [](const v1::RankStatus& rank) {
       return static_cast<double>(rank.trainer_longest_wait_us()) * kMicros;
     }},
};

template <typename T, size_t size>
void AddAll(const Series<T> (&series)[size], const T& message, const Labels& labels,
            Families* families) {
  for (const Series<T>& one : series) {
    families->Add(one.type, one.name, one.help, labels, one.value(message));
  }
}

// The part of stream "train": the whole without the others.
v1::Ledger TrainLedger(const v1::Status& status) {
  v1::Ledger train = status.ledger();
  for (const v1::StreamStatus& stream : status.streams()) {
    train.set_read(train.read() - stream.ledger().read());
    train.set_emitted(train.emitted() - stream.ledger().emitted());
    train.set_quarantined(train.quarantined() - stream.ledger().quarantined());
    train.set_in_flight(train.in_flight() - stream.ledger().in_flight());
    train.set_abandoned(train.abandoned() - stream.ledger().abandoned());
  }
  return train;
}

void AddStream(const std::string& name, int64_t records, const v1::Ledger& ledger,
               Families* families) {
  const Labels labels = {{"stream", name}};
  families->Gauge("records", "Records of the stream.", labels, static_cast<double>(records));
  AddAll(kLedger, ledger, labels, families);
}

void AddMemory(const v1::MemoryStatus& memory, Families* families) {
  families->Gauge("memory_limit_bytes", "What windows, shared memory and preprocessing may take.",
                  {}, static_cast<double>(memory.limit()));
  const std::pair<const char*, int64_t> stages[] = {
      {"windows", memory.windows()}, {"arenas", memory.arenas()}, {"pool", memory.pool()}};
  for (const auto& [stage, bytes] : stages) {
    families->Gauge("memory_used_bytes", "What they take.", {{"stage", stage}},
                    static_cast<double>(bytes));
  }
}

void AddJob(const v1::JobStatus& job, Families* families) {
  const std::string stream = job.stream().empty() ? "train" : job.stream();
  const Labels labels = {{"job", absl::StrCat(job.job())}, {"stream", stream}};
  AddAll(kJob, job, labels, families);
  for (const v1::RankStatus& rank : job.ranks()) {
    Labels of_rank = labels;
    of_rank.push_back({"rank", absl::StrCat(rank.rank())});
    AddAll(kRank, rank, of_rank, families);
  }
}

}  // namespace

std::vector<prometheus::MetricFamily> MetricFamilies(const v1::Status& status) {
  Families families;
  families.Gauge("info", "Always 1.", {{"version", status.version()}}, 1);
  families.Gauge("uptime_seconds", "Since the daemon started.", {}, status.uptime_s());
  families.Gauge("snapshot_unix_seconds", "When these numbers were taken.", {},
                 static_cast<double>(status.snapshot_unix_us()) * kMicros);
  families.States("state", "1 for the state that the daemon is in.", "state",
                  {"starting", "accepting", "running", "draining"}, status.state());
  families.States("limiter", "1 for the stage that limits.", "stage",
                  {"pool", "rounds", "assembler", "trainer", "nothing"},
                  status.limiter().empty() ? "nothing" : status.limiter());
  if (status.has_pool()) {
    families.Gauge("pool_threads", "Preprocessing threads.", {}, status.pool().threads());
    families.Gauge("pool_busy_threads", "Of them, at work.", {}, status.pool().busy());
  }
  if (status.has_memory()) AddMemory(status.memory(), &families);
  if (status.has_ledger()) {
    AddStream("train", status.records(), TrainLedger(status), &families);
    for (const v1::StreamStatus& stream : status.streams()) {
      AddStream(stream.name(), stream.records(), stream.ledger(), &families);
    }
  }
  for (const v1::JobStatus& job : status.jobs()) AddJob(job, &families);
  return families.Take();
}

}  // namespace odb
