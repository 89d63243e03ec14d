#include "tests/simulation/scenario_text.h"

#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "base/hash.h"
#include "base/status_macros.h"

namespace odb {
namespace {

// How one key is written and read. Nothing is written for "".
template <typename Subject>
struct Field {
  const char* key;
  std::string (*write)(const Subject&);
  bool (*read)(absl::string_view, Subject*);
};

template <auto Member, typename Subject>
std::string WriteNumber(const Subject& subject) {
  return absl::StrCat(subject.*Member);
}
template <auto Member, typename Subject>
bool ReadNumber(absl::string_view text, Subject* subject) {
  std::remove_reference_t<decltype(subject->*Member)> number = 0;
  if (absl::StartsWith(text, "-") || !absl::SimpleAtoi(text, &number)) return false;
  subject->*Member = number;
  return true;
}
template <typename Subject, auto Member>
constexpr Field<Subject> Number(const char* key) {
  return {key, &WriteNumber<Member, Subject>, &ReadNumber<Member, Subject>};
}

// What a run must come to; not written where nothing is said.
template <auto Member>
constexpr Field<ScenarioFile> Expectation(const char* key) {
  return {key,
          [](const ScenarioFile& file) {
            return file.*Member < 0 ? std::string() : absl::StrCat(file.*Member);
          },
          &ReadNumber<Member, ScenarioFile>};
}

template <auto Member>
constexpr Field<Timing> Time(const char* key) {
  return {key, [](const Timing& timing) { return absl::FormatDuration(timing.*Member); },
          [](absl::string_view text, Timing* timing) {
            return absl::ParseDuration(text, &(timing->*Member)) &&
                   timing->*Member >= absl::ZeroDuration();
          }};
}

std::vector<absl::string_view> Words(absl::string_view text) {
  return absl::StrSplit(text, ' ', absl::SkipEmpty());
}

template <auto Member>
constexpr Field<Timing> Times(const char* key) {
  return {key,
          [](const Timing& timing) {
            return absl::StrJoin(timing.*Member, " ", [](std::string* out, absl::Duration time) {
              out->append(absl::FormatDuration(time));
            });
          },
          [](absl::string_view text, Timing* timing) {
            (timing->*Member).clear();
            for (const absl::string_view word : Words(text)) {
              absl::Duration time;
              if (!absl::ParseDuration(word, &time) || time < absl::ZeroDuration()) return false;
              (timing->*Member).push_back(time);
            }
            return true;
          }};
}

template <typename Enum>
bool ReadName(absl::string_view text, int num_names, Enum* value) {
  for (int i = 0; i < num_names; ++i) {
    if (text != NameOf(static_cast<Enum>(i))) continue;
    *value = static_cast<Enum>(i);
    return true;
  }
  return false;
}

// "rank 2 dies at released after 3": the fourth time that its aligner is there.
std::string WriteCrash(const Crash& crash) {
  return absl::StrCat("rank ", crash.rank.value(), " ", NameOf(crash.kind), " at ",
                      NameOf(crash.point), " after ", crash.countdown);
}

bool ReadCrash(absl::string_view text, Crash* crash) {
  const std::vector<absl::string_view> ends = absl::StrSplit(text, " at ");
  if (ends.size() != 2 || !absl::ConsumePrefix(&text, "rank ")) return false;
  const std::pair<absl::string_view, absl::string_view> who =
      absl::StrSplit(ends[0].substr(5), absl::MaxSplits(' ', 1));
  const std::vector<absl::string_view> where = absl::StrSplit(ends[1], " after ");
  int64_t rank = 0;
  if (where.size() != 2 || !absl::SimpleAtoi(who.first, &rank)) return false;
  crash->rank = Rank(rank);
  return ReadName(who.second, 4, &crash->kind) &&
         ReadName(where[0], kNumCrashPoints, &crash->point) &&
         absl::SimpleAtoi(where[1], &crash->countdown) && crash->countdown >= 0;
}

const Field<Scenario> kScenarioFields[] = {
    {"name", [](const Scenario& scenario) { return scenario.name; },
     [](absl::string_view text, Scenario* scenario) {
       scenario->name = std::string(text);
       return true;
     }},
    Number<Scenario, &Scenario::seed>("seed"),
    Number<Scenario, &Scenario::world_size>("ranks"),
    {"nodes", [](const Scenario& scenario) { return absl::StrJoin(scenario.node_of_rank, " "); },
     [](absl::string_view text, Scenario* scenario) {
       for (const absl::string_view word : Words(text)) {
         int32_t node = 0;
         if (!absl::SimpleAtoi(word, &node) || node < 0) return false;
         scenario->node_of_rank.push_back(node);
       }
       return true;
     }},
    Number<Scenario, &Scenario::window_max>("window"),
    Number<Scenario, &Scenario::unassembled_steps_max>("unassembled_steps_max"),
    {"collective",
     [](const Scenario& scenario) { return std::string(scenario.collective ? "yes" : "no"); },
     [](absl::string_view text, Scenario* scenario) {
       scenario->collective = text == "yes";
       return text == "yes" || text == "no";
     }},
    {"ending", [](const Scenario& scenario) { return std::string(NameOf(scenario.ending)); },
     [](absl::string_view text, Scenario* scenario) {
       return ReadName(text, kNumEndings, &scenario->ending);
     }},
    {"culprit", [](const Scenario& scenario) { return absl::StrCat(scenario.culprit.value()); },
     [](absl::string_view text, Scenario* scenario) {
       int64_t rank = 0;
       if (!absl::SimpleAtoi(text, &rank)) return false;
       scenario->culprit = Rank(rank);
       return true;
     }},
    Number<Scenario, &Scenario::culprit_after>("culprit_after"),
    {"fate",
     [](const Scenario& scenario) {
       return scenario.fate.has_value() ? WriteCrash(*scenario.fate) : std::string();
     },
     [](absl::string_view text, Scenario* scenario) {
       return ReadCrash(text, &scenario->fate.emplace());
     }},
};

const Field<Timing> kTimingFields[] = {
    Number<Timing, &Timing::seed>("timing_seed"),
    Times<&Timing::step_time>("step_time"),
    Times<&Timing::sample_time>("sample_time"),
    Times<&Timing::attach_time>("attach_time"),
    Time<&Timing::slowest_message>("slowest_message"),
    Time<&Timing::slowest_exchange>("slowest_exchange"),
    Time<&Timing::slowest_open>("slowest_open"),
    Time<&Timing::heartbeat_interval>("heartbeat_interval"),
    Time<&Timing::exchange_timeout>("exchange_timeout"),
    Number<Timing, &Timing::long_pause_one_in>("long_pause_one_in"),
    Number<Timing, &Timing::link_failure_one_in>("link_failure_one_in"),
};

const Field<ScenarioFile> kExpectations[] = {
    Expectation<&ScenarioFile::expect_steps>("expect_steps"),
    Expectation<&ScenarioFile::expect_rounds>("expect_rounds"),
    Expectation<&ScenarioFile::expect_redone>("expect_redone"),
    Expectation<&ScenarioFile::expect_crashes>("expect_crashes"),
    Expectation<&ScenarioFile::expect_generations>("expect_generations"),
};

const Field<PlanOptions> kPlanFields[] = {
    {"policy",
     [](const PlanOptions& plan) {
       return std::string(plan.policy == Policy::kPaper ? "paper" : "balanced");
     },
     [](absl::string_view text, PlanOptions* plan) {
       plan->policy = text == "paper" ? Policy::kPaper : Policy::kBalanced;
       return text == "paper" || text == "balanced";
     }},
    {"termination",
     [](const PlanOptions& plan) {
       return std::string(plan.termination == Termination::kJoin ? "join" : "non-join");
     },
     [](absl::string_view text, PlanOptions* plan) {
       plan->termination = text == "join" ? Termination::kJoin : Termination::kNonJoin;
       return text == "join" || text == "non-join";
     }},
    Number<PlanOptions, &PlanOptions::quota>("quota"),
    Number<PlanOptions, &PlanOptions::budget>("budget"),
    Number<PlanOptions, &PlanOptions::max_samples>("max_samples"),
    Number<PlanOptions, &PlanOptions::max_vision_load>("max_vision_load"),
    Number<PlanOptions, &PlanOptions::pad_to_multiple_of>("pad_to_multiple_of"),
    Number<PlanOptions, &PlanOptions::max_steps>("max_steps"),
    Number<PlanOptions, &PlanOptions::max_wait_rounds>("max_wait_rounds"),
    Number<PlanOptions, &PlanOptions::seed>("plan_seed"),
};

template <typename Subject, size_t size>
void WriteAll(const Field<Subject> (&fields)[size], const Subject& subject, std::string* out) {
  for (const Field<Subject>& field : fields) {
    const std::string value = field.write(subject);
    if (!value.empty()) absl::StrAppend(out, field.key, ": ", value, "\n");
  }
}

enum class Outcome { kOther, kRead, kBad };

template <typename Subject, size_t size>
Outcome ReadOne(const Field<Subject> (&fields)[size], absl::string_view key,
                absl::string_view value, Subject* subject) {
  for (const Field<Subject>& field : fields) {
    if (key == field.key) return field.read(value, subject) ? Outcome::kRead : Outcome::kBad;
  }
  return Outcome::kOther;
}

// "12/3/16 40/40!": length, loss tokens and, if there is one, vision load of each sample; "!": it
// is to be alone in its group.
std::string WriteView(const std::vector<SampleShape>& view) {
  return absl::StrJoin(view, " ", [](std::string* out, const SampleShape& sample) {
    absl::StrAppend(out, sample.length, "/", sample.loss_tokens);
    if (sample.vision_load > 0) absl::StrAppend(out, "/", sample.vision_load);
    if (sample.alone) absl::StrAppend(out, "!");
  });
}

bool ReadView(absl::string_view text, size_t rank, std::vector<SampleShape>* view) {
  for (absl::string_view word : Words(text)) {
    SampleShape sample;
    sample.alone = absl::ConsumeSuffix(&word, "!");
    const std::vector<absl::string_view> parts = absl::StrSplit(word, '/');
    const bool ok = (parts.size() == 2 || parts.size() == 3) &&
                    absl::SimpleAtoi(parts[0], &sample.length) && sample.length > 0 &&
                    absl::SimpleAtoi(parts[1], &sample.loss_tokens) &&
                    (parts.size() == 2 || absl::SimpleAtoi(parts[2], &sample.vision_load));
    if (!ok) return false;
    const auto key = static_cast<int64_t>(view->size());
    sample.id_hash = HashSampleId({static_cast<int32_t>(rank), key});
    view->push_back(sample);
  }
  return true;
}

void WriteEpoch(const EpochScript& script, std::string* out) {
  WriteAll(kPlanFields, script.plan, out);
  absl::StrAppend(out, "scope: ", script.plan.node_of_rank.empty() ? "rank" : "node", "\n");
  for (size_t rank = 0; rank < script.views.size(); ++rank) {
    if (!script.views[rank].empty()) {
      absl::StrAppend(out, "view ", rank, ": ", WriteView(script.views[rank]), "\n");
    }
    if (script.break_after[rank].has_value()) {
      absl::StrAppend(out, "break ", rank, ": ", *script.break_after[rank], "\n");
    }
  }
}

// Reads line after line. Errors are sentences without the place.
class Reader {
 public:
  absl::Status Read(absl::string_view key, absl::string_view value) {
    if (key == "epoch") return BeginEpoch();
    Outcome outcome = ReadOne(kScenarioFields, key, value, &file_.scenario);
    if (outcome == Outcome::kOther) outcome = ReadOne(kTimingFields, key, value, &file_.timing);
    if (outcome == Outcome::kOther) outcome = ReadOne(kExpectations, key, value, &file_);
    if (outcome == Outcome::kOther && key == "crash") {
      outcome =
          ReadCrash(value, &file_.timing.crashes.emplace_back()) ? Outcome::kRead : Outcome::kBad;
    }
    if (outcome == Outcome::kOther && !file_.scenario.epochs.empty()) {
      outcome = ReadOfEpoch(key, value, &file_.scenario.epochs.back());
    }
    if (outcome == Outcome::kRead) return absl::OkStatus();
    if (outcome == Outcome::kOther) {
      return absl::InvalidArgumentError(absl::StrCat("no key \"", key, "\""));
    }
    return absl::InvalidArgumentError(absl::StrCat(key, " may not be \"", value, "\""));
  }

  absl::StatusOr<ScenarioFile> Finish() {
    const Scenario& scenario = file_.scenario;
    const auto ranks = static_cast<size_t>(scenario.world_size);
    Timing& timing = file_.timing;
    for (auto* times : {&timing.step_time, &timing.sample_time, &timing.attach_time}) {
      if (times->size() == 1) times->resize(ranks, times->front());
    }
    if (scenario.epochs.empty()) return absl::InvalidArgumentError("there is no epoch");
    if (scenario.node_of_rank.size() != ranks || timing.step_time.size() != ranks ||
        timing.sample_time.size() != ranks || timing.attach_time.size() != ranks) {
      return absl::InvalidArgumentError(
          absl::StrCat("nodes must have ", ranks,
                       " values; step_time, sample_time and attach_time too, or one"));
    }
    for (const Crash& crash : timing.crashes) {
      if (crash.rank >= Rank(scenario.world_size)) {
        return absl::InvalidArgumentError(absl::StrCat("there is no rank ", crash.rank.value()));
      }
    }
    return std::move(file_);
  }

 private:
  absl::Status BeginEpoch() {
    if (file_.scenario.world_size < 1 || file_.scenario.node_of_rank.empty()) {
      return absl::InvalidArgumentError("ranks and nodes must come before the first epoch");
    }
    EpochScript& script = file_.scenario.epochs.emplace_back();
    script.views.resize(static_cast<size_t>(file_.scenario.world_size));
    script.break_after.resize(static_cast<size_t>(file_.scenario.world_size));
    return absl::OkStatus();
  }

  Outcome ReadOfEpoch(absl::string_view key, absl::string_view value, EpochScript* script) {
    if (key == "scope") {
      script->plan.node_of_rank.clear();
      if (value == "node") script->plan.node_of_rank = file_.scenario.node_of_rank;
      return value == "node" || value == "rank" ? Outcome::kRead : Outcome::kBad;
    }
    if (key == "break all") {
      int64_t after = 0;
      if (!absl::SimpleAtoi(value, &after)) return Outcome::kBad;
      for (auto& each : script->break_after) each = after;
      return Outcome::kRead;
    }
    size_t rank = 0;
    const bool is_view = absl::ConsumePrefix(&key, "view ");
    if (!is_view && !absl::ConsumePrefix(&key, "break ")) {
      return ReadOne(kPlanFields, key, value, &script->plan);
    }
    if (!absl::SimpleAtoi(key, &rank) || rank >= script->views.size()) return Outcome::kBad;
    if (is_view) {
      return ReadView(value, rank, &script->views[rank]) ? Outcome::kRead : Outcome::kBad;
    }
    return absl::SimpleAtoi(value, &script->break_after[rank].emplace()) ? Outcome::kRead
                                                                         : Outcome::kBad;
  }

  ScenarioFile file_;
};

}  // namespace

std::string WriteScenario(const ScenarioFile& file) {
  std::string out;
  WriteAll(kScenarioFields, file.scenario, &out);
  for (size_t epoch = 0; epoch < file.scenario.epochs.size(); ++epoch) {
    absl::StrAppend(&out, "\nepoch: ", epoch, "\n");
    WriteEpoch(file.scenario.epochs[epoch], &out);
  }
  out += "\n";
  WriteAll(kTimingFields, file.timing, &out);
  for (const Crash& crash : file.timing.crashes) {
    absl::StrAppend(&out, "crash: ", WriteCrash(crash), "\n");
  }
  out += "\n";
  WriteAll(kExpectations, file, &out);
  return out;
}

absl::StatusOr<ScenarioFile> ReadScenario(absl::string_view text) {
  Reader reader;
  int line_number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++line_number;
    line = absl::StripAsciiWhitespace(line.substr(0, line.find('#')));
    if (line.empty()) continue;
    const size_t colon = line.find(':');
    if (colon == absl::string_view::npos) {
      return absl::InvalidArgumentError(
          absl::StrCat("line ", line_number, ": \"", line, "\" is not \"key: value\""));
    }
    const absl::Status status =
        reader.Read(line.substr(0, colon), absl::StripAsciiWhitespace(line.substr(colon + 1)));
    if (!status.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("line ", line_number, ": ", status.message()));
    }
  }
  return reader.Finish();
}

}  // namespace odb
