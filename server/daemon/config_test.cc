#include "server/daemon/config.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "server/daemon/config_digest.h"
#include "server/daemon/config_fields.h"
#include "server/daemon/config_streams.h"
#include "server/daemon/config_tensors.h"
#include "server/daemon/config_text.h"
#include "server/daemon/config_yaml.h"
#include "server/daemon/exit_codes.h"
#include "server/daemon/nearest_name.h"
#include "tests/support/status_matchers.h"

namespace odb {
namespace {

absl::StatusOr<LoadedConfig> Load(const std::vector<std::string>& arguments,
                                  std::map<std::string, std::string> variables = {}) {
  auto line = ParseCommandLine(arguments);
  if (!line.ok()) return line.status();
  return LoadConfig(*line, ConfigEnvironment{std::move(variables), /*uid=*/1000});
}

// A file that goes when the test does.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& text) {
    char path[] = "/tmp/odbconfigXXXXXX";
    const int fd = mkstemp(path);
    REQUIRE(fd >= 0);
    close(fd);
    path_ = path;
    std::ofstream(path_) << text;
  }
  ~TemporaryFile() { unlink(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TEST_CASE("Config: --data alone is enough, and everything else has a default", "[config]") {
  const auto config = Load({"--data", "a.jsonl", "--data=b.jsonl"});

  REQUIRE(config.ok());
  CHECK(CheckConfig(config->values).ok());
  REQUIRE(config->values.data_size() == 2);
  CHECK(config->values.data(0) == "a.jsonl");
  CHECK(config->values.data(1) == "b.jsonl");
  CHECK(config->values.token_budget() == 8192);
  CHECK(config->values.max_record_bytes() == 16 << 20);
  CHECK(config->values.max_bad_share() == 0.05);
  CHECK(config->values.socket() == "/tmp/odbd-1000.sock");
  CHECK(ParsedDuration(config->values.stall_timeout()) == absl::InfiniteDuration());
  CHECK(config->origins.at("data") == "flag");
  CHECK(config->origins.at("window") == "default");
}

TEST_CASE("Config: the table has every field of config.proto and the defaults of its comments",
          "[config]") {
  const auto* descriptor = v1::Config::descriptor();
  std::map<std::string, std::string> comments;
  for (const FieldDoc& doc : ConfigDocs()) comments[doc.name] = doc.comment;
  CHECK(static_cast<int>(comments.size()) == descriptor->field_count());
  CHECK(static_cast<int>(ConfigFields().size()) == descriptor->field_count());

  for (int i = 0; i < descriptor->field_count(); ++i) {
    const std::string name = descriptor->field(i)->name();
    INFO(name << ": " << comments[name]);
    const FieldSpec* spec = FindConfigField(name);
    REQUIRE(spec != nullptr);
    REQUIRE(!comments[name].empty());
    if (spec->default_text == nullptr) continue;
    // "Default 256.", "0 (default)", "quarantine (default)", "Default 16 MiB."; the tokenizer's
    // comment says `or "bytes" (default: ...)`.
    const std::string comment = absl::StrReplaceAll(comments[name], {{" MiB", "MiB"}, {"\"", ""}});
    const std::string value = spec->default_text;
    const bool stated = absl::StrContains(comment, absl::StrCat(value, " (default")) ||
                        absl::StrContains(comment, absl::StrCat("Default ", value));
    CHECK(stated);
  }
}

TEST_CASE("Config: every choice stands in the field's comment", "[config]") {
  std::map<std::string, std::string> comments;
  for (const FieldDoc& doc : ConfigDocs()) comments[doc.name] = doc.comment;
  for (const FieldSpec& spec : ConfigFields()) {
    if (spec.kind != FieldKind::kChoice) continue;
    for (const absl::string_view choice : absl::StrSplit(spec.choices, '|')) {
      INFO(spec.name << " " << choice);
      CHECK(absl::StrContains(comments[spec.name], choice));
    }
  }
}

TEST_CASE("Config: flag wins over variable, variable over file, file over default", "[config]") {
  const TemporaryFile file("window: 11\nseed: 11\nworkers: 11\ndata: [one.jsonl]\n");
  const std::vector<std::string> arguments = {"--config", file.path(), "--window", "33"};

  const auto config = Load(arguments, {{"ODB_WINDOW", "22"}, {"ODB_SEED", "22"}});

  REQUIRE(config.ok());
  CHECK(config->values.window() == 33);
  CHECK(config->values.seed() == 22);
  CHECK(config->values.workers() == 11);
  CHECK(config->values.prefetch_steps() == 8);
  CHECK(config->origins.at("window") == "flag");
  CHECK(config->origins.at("seed") == "ODB_SEED");
  CHECK(config->origins.at("workers") == file.path() + ":3");
  CHECK(config->origins.at("prefetch_steps") == "default");
}

TEST_CASE("Config: a list of files from one place replaces that of a weaker one", "[config]") {
  const TemporaryFile file("data: [one.jsonl, two.jsonl]\n");

  const auto from_file = Load({}, {{"ODB_CONFIG", file.path()}});
  REQUIRE(from_file.ok());
  CHECK(from_file->values.data_size() == 2);

  const auto from_flag = Load({"--data", "x.jsonl"}, {{"ODB_CONFIG", file.path()}});
  REQUIRE(from_flag.ok());
  REQUIRE(from_flag->values.data_size() == 1);

  const auto from_variable = Load({}, {{"ODB_DATA", "p.jsonl:q.jsonl:r.jsonl"}});
  REQUIRE(from_variable.ok());
  CHECK(from_variable->values.data_size() == 3);
}

TEST_CASE("Config: an unknown key is refused with its line and the nearest name", "[config]") {
  const TemporaryFile file("data: a.jsonl\n\ntoken_bugdet: 100\n");

  const auto config = Load({"--config", file.path()});

  CHECK_THAT(config.status(), HasCode(absl::StatusCode::kFailedPrecondition));
  CHECK(config.status().message() ==
        file.path() + ":3: unknown key \"token_bugdet\"; did you mean \"token_budget\"?");
  CHECK(ConfigExitCode(config.status()) == kExitConfig);
}

TEST_CASE("Config: an unknown flag or variable is refused with the nearest name", "[config]") {
  const auto flag = Load({"--data", "a", "--tokenbudget=3"});
  CHECK(flag.status().message() == "unknown flag --tokenbudget; did you mean --token-budget?");
  CHECK(ConfigExitCode(flag.status()) == kExitUsage);

  const auto underscore = Load({"--token_budget", "3"});
  CHECK(underscore.status().message() ==
        "unknown flag --token_budget; did you mean --token-budget?");

  const auto variable = Load({"--data", "a"}, {{"ODB_SEDE", "3"}});
  CHECK(variable.status().message() == "unknown variable ODB_SEDE; did you mean ODB_SEED?");
  CHECK(ConfigExitCode(variable.status()) == kExitConfig);
}

TEST_CASE("Config: variables of the client, of odbrun and of tests are left alone", "[config]") {
  for (const char* name : {"ODB_CLIENT_LIBRARY", "ODB_LIFELINE_FD", "ODB_READY_FD", "ODB_ODBD",
                           "ODB_CONFORMANCE_DIR", "ODB_TEST_ANYTHING"}) {
    INFO(name);
    CHECK(Load({"--data", "a"}, {{name, "x"}}).ok());
  }
}

TEST_CASE("Config: a value out of range says what, which, got and allowed", "[config]") {
  struct Case {
    std::vector<std::string> arguments;
    std::string message;
  };
  const auto c = GENERATE(values<Case>({
      {{"--window", "0"}, "--window must be an integer from 1 to 65536, got \"0\""},
      {{"--window", "many"}, "--window must be an integer from 1 to 65536, got \"many\""},
      {{"--max-bad-share", "1.5"}, "--max-bad-share must be a number from 0 to 1, got \"1.5\""},
      {{"--max-bad-share", "nan"}, "--max-bad-share must be a number from 0 to 1, got \"nan\""},
      {{"--termination", "joined"}, "--termination must be one of join, non-join, got \"joined\""},
      {{"--order", "blocks"}, "--order must be one of exact, sequential, got \"blocks\""},
      {{"--attach-timeout", "5"},
       "--attach-timeout must be a duration above 0 (like 250ms, 30s, 10m or inf), got \"5\""},
      {{"--views", "3"},
       "--views must be a list like [{sources: [0]}, {sources: [1, 2]}], got no list"},
      {{"--seed", "-1"}, "--seed must be an integer of at least 0, got \"-1\""},
      {{"--shape-buckets", "512,many"},
       "--shape-buckets must be a list, like [512, 1024], of integers from 1 to 2147483647, got "
       "\"512,many\""},
      {{"--shape-buckets", "[512"},
       "--shape-buckets must be a list like [512, 1024], got \"[512\""},
      {{"--ids-dtype", "int16"}, "--ids-dtype must be one of int64, int32, got \"int16\""},
      {{"--mask", "float"}, "--mask must be one of int64, bool, none, got \"float\""},
      {{"--padding-side", "both"}, "--padding-side must be one of right, left, got \"both\""},
      {{"--extra-tensors", "3"},
       "--extra-tensors must be a list like [{name: weights, dtype: float32}], got no list"},
      {{"--extra-tensors", "[{name: x, dtype: uint8, form: pad}]"},
       "--extra-tensors must be a list like [{name: weights, dtype: float32, shape: [length], "
       "layout: pad, pad_value: 0}], got the key form"},
      {{"--extra-tensors", "[{name: x, dtype: uint8, shape: [0]}]"},
       "--extra-tensors must be a list like [{name: weights, dtype: float32, shape: [length], "
       "layout: pad, pad_value: 0}], got a size that is not above 0, -1 or length"},
      {{"--streams", "eval"},
       "--streams must be a list like [{name: eval, data: [eval.jsonl], align: none}], got no "
       "list"},
      {{"--streams", "[{data: e}]"},
       "--streams must be a list like [{name: eval, data: [eval.jsonl], align: none}], got an "
       "entry "
       "without a name"},
      {{"--streams", "[{name: eval, data: e, align: some}]"},
       "--streams of stream eval: align must be one of all, none, got \"some\""},
      {{"--streams", "[{name: eval, data: e, window: 0}]"},
       "--streams of stream eval: window must be an integer from 1 to 65536, got \"0\""},
      {{"--streams", "[{name: eval, data: e, seed: 3}]"},
       "--streams of stream eval: seed is no key of a stream; its other values are train's"},
      {{"--streams", "[{name: eval, data: e, data: f}]"},
       "--streams of stream eval: data is given twice"},
      {{"--window"}, "--window needs a value"},
      {{"--window", "--seed"}, "--window needs a value"},
      {{"--window", "1", "--window", "2"}, "--window is given twice"},
      {{"a.jsonl"}, "unexpected argument \"a.jsonl\"; files of data are given as --data FILE"},
  }));

  const auto config = Load(c.arguments);

  CHECK(config.status().message() == c.message);
  CHECK(ConfigExitCode(config.status()) == kExitUsage);
}

TEST_CASE("Config: the file's mistakes name file and line", "[config]") {
  const auto [text, message] = GENERATE(table<std::string, std::string>({
      {"window: 0\n", ":1: window must be an integer from 1 to 65536, got \"0\""},
      {"seed: 1\nseed: 2\n", ":2: seed is given twice"},
      {"window: [1]\n", ":1: window must be one value, got a list"},
      {"- window\n", ":1: keys and values wanted, like `token_budget: 8192`"},
      {"window: {\n", ":2: not YAML: "},
      {"data: {a: b}\n", ":1: data must be a file or a list of files"},
      {"views: [{source: [1]}]\n", ":1: views must be a list like"},
      {"window: 8\nstreams: [{name: e, data: [1, {}]}]\n",
       ":2: streams of stream e: data must be a file or a list of files"},
      {"shape_buckets: {a: b}\n", ":1: shape_buckets must be a list like [512, 1024]"},
      {"shape_buckets: [512, [1]]\n", ":1: shape_buckets must be a list, like [512, 1024], of"},
  }));
  const TemporaryFile file(text);

  const auto config = Load({"--config", file.path()});

  CHECK_THAT(config.status(), HasCode(absl::StatusCode::kFailedPrecondition));
  CHECK_THAT(config.status(), HasMessage(file.path() + message));
}

TEST_CASE("Config: a missing file and a folder are refused by name", "[config]") {
  const auto missing = Load({"--config", "/nonexistent/odbd.yaml"});
  CHECK(missing.status().message() ==
        "configuration file /nonexistent/odbd.yaml: No such file or directory");
  const auto folder = Load({"--config", "/tmp"});
  CHECK(folder.status().message() == "configuration file /tmp: Is a directory");
}

TEST_CASE("Config: values that do not fit together are refused", "[config]") {
  struct Case {
    std::vector<std::string> arguments;
    std::string message;
  };
  const auto c = GENERATE(values<Case>({
      {{}, "nothing to serve: give at least one file as --data FILE (or data: in the file)"},
      {{"--data=a", "--max-length=9000"},
       "max_length, padded to 9000 tokens, must be at most token_budget (8192), got 9000"},
      {{"--data=a", "--token-budget=100", "--pad-to-multiple-of=64", "--max-length=100"},
       "max_length, padded to 128 tokens, must be at most token_budget (100), got 100"},
      {{"--data=a", "--pad-to-multiple-of=64", "--token-budget=63"},
       "pad_to_multiple_of must be at most token_budget (63), got 64"},
      {{"--data=a", "--shape-buckets=512,512"},
       "shape_buckets must ascend: one above 512 must follow it, got 512"},
      {{"--data=a", "--shape-buckets=512,1000", "--pad-to-multiple-of=64"},
       "shape_buckets must be multiples of pad_to_multiple_of (64), got 1000"},
      {{"--data=a", "--shape-buckets=[512, 9000]"},
       "shape_buckets must be at most token_budget (8192), got 9000"},
      {{"--data=a", "--shape-buckets=512,1024", "--max-length=2000"},
       "max_length must be at most the largest of shape_buckets (1024), got 2000"},
      {{"--data=a", "--extra-tensors=[{name: x, dtype: uint8}]"},
       "extra_tensors needs format tokenized, got format auto"},
      {{"--data=a", "--format=tokenized", "--extra-tensors=[{dtype: uint8}]"},
       "extra_tensors: each needs a name of letters, digits and _"},
      {{"--data=a", "--format=tokenized", "--extra-tensors=[{name: x, dtype: int8}]"},
       "extra_tensors: dtype must be one of int64, int32, float64, float32, float16, bfloat16, "
       "uint8, bool, got tensor x"},
      {{"--data=a", "--format=tokenized", "--extra-tensors=[{name: x, dtype: bool, layout: a}]"},
       "extra_tensors: layout must be one of pad, concatenate, got tensor x"},
      {{"--data=a", "--format=tokenized", "--extra-tensors=[{name: labels, dtype: bool}]"},
       "extra_tensors: a step has each name once, got tensor labels"},
      {{"--data=a", "--format=tokenized",
        "--extra-tensors=[{name: x_offsets, dtype: bool}, {name: x, dtype: bool, layout: "
        "concatenate}]"},
       "extra_tensors: a step has each name once, got tensor x"},
      {{"--data=a", "--format=tokenized",
        "--extra-tensors=[{name: x, dtype: bool, shape: [2, "
        "length]}]"},
       "extra_tensors: only the first axis of a shape may be `length`, got tensor x"},
      {{"--data=a", "--format=tokenized",
        "--extra-tensors=[{name: x, dtype: bool, shape: [2, -1], layout: concatenate}]"},
       "extra_tensors: only the first axis may vary (-1) with layout concatenate, got tensor x"},
      {{"--data=a", "--format=tokenized",
        "--extra-tensors=[{name: x, dtype: bool, shape: [], layout: concatenate}]"},
       "extra_tensors: layout concatenate needs at least one axis, got tensor x"},
      {{"--data=a", "--format=tokenized",
        "--extra-tensors=[{name: x, dtype: uint8, pad_value: "
        "-100}]"},
       "extra_tensors: pad_value -100 is no uint8, got tensor x"},
      {{"--data=a", "--format=tokenized",
        "--extra-tensors=[{name: x, dtype: uint8, shape: [-1, "
        "-1]}]"},
       "extra_tensors: x is padded along two axes that vary, so arena_bytes must be set, got 0"},
      {{"--data=a", "--quota=5"},
       "quota needs termination non-join, got quota 5 with termination join"},
      {{"--data=a", "--views=[{sources: [0]}, {sources: [1]}]"},
       "views[1] names source 1, but data has 1 (0 to 0)"},
      {{"--data=a", "--views=[{sources: [0]}, {sources: [0]}]"},
       "views: source 0 is in view 0 and in view 1; each may be in one"},
      {{"--data=a", "--data=b", "--views=[{sources: [0]}]"},
       "views leave out source 1 (b); each must be in one view"},
      {{"--data=a", "--streams=[{name: a b, data: e}]"},
       "streams: a name must be letters, digits, - and _, got \"a b\""},
      {{"--data=a", "--streams=[{name: train, data: e}]"},
       "streams: the name train is that of the stream that data is"},
      {{"--data=a", "--streams=[{name: e, data: e}, {name: e, data: f}]"},
       "streams: the name e is given twice"},
      {{"--data=a", "--streams=[{name: e}]"}, "streams: e must have at least one file as data"},
      {{"--data=a", "--streams=[{name: e, data: e, token_budget: 100, max_length: 101}]"},
       "stream e: max_length, padded to 101 tokens, must be at most token_budget (100), got 101"},
      {{"--data=a", "--exchange-timeout=100ms"},
       "exchange_timeout must be at least twice heartbeat_interval (100ms), got 100ms"},
      {{"--data=a", "--listen=somewhere"},
       "listen must be host:port with a port from 0 to 65535, got \"somewhere\""},
      {{"--data=a", "--listen=:29462"},
       "listen must be host:port with a port from 0 to 65535, got \":29462\""},
      {{"--data=a", "--listen=127.0.0.1:65536"},
       "listen must be host:port with a port from 0 to 65535, got \"127.0.0.1:65536\""},
      {{"--data=a", "--listen=0.0.0.0:29462"},
       "listen 0.0.0.0:29462 can be reached from other machines, so it needs a job_token; their "
       "trainers show it as ODB_CLIENT_TOKEN"},
      {{"--data=a", "--socket=tcp://10.0.0.1:29462"},
       "socket must be a path, got tcp://10.0.0.1:29462 (ODB_SOCKET is for the trainers, too); "
       "odbd serves TCP at `listen`"},
  }));

  const auto config = Load(c.arguments);

  REQUIRE(config.ok());
  const absl::Status status = CheckConfig(config->values);
  CHECK(status.message() == c.message);
  CHECK(ConfigExitCode(status) == kExitConfig);
}

TEST_CASE("Config: a stream has train's values but for those that it sets", "[config]") {
  const auto config =
      Load({"--data=a", "--data=b", "--window=7", "--token-budget=100", "--termination=non-join",
            "--quota=5", "--views=[{sources: [0]}, {sources: [1]}]"},
           {{"ODB_STREAMS",
             "[{name: eval, data: [e], align: none, order: sequential, token_budget: 200}, "
             "{name: other, data: f, format: tokenized, max_length: 0}]"}});
  REQUIRE(config.ok());
  REQUIRE(CheckConfig(config->values) == absl::OkStatus());

  const auto streams = StreamsOf(config->values);

  REQUIRE(streams.ok());
  REQUIRE(streams->size() == 3);
  CHECK(streams->at(0).name == "train");
  CHECK(streams->at(0).aligned);
  CHECK(streams->at(0).config.data_size() == 2);
  CHECK(streams->at(0).config.quota() == 5);
  CHECK(streams->at(0).config.streams_size() == 0);
  const v1::Config& eval = streams->at(1).config;
  CHECK(streams->at(1).name == "eval");
  CHECK_FALSE(streams->at(1).aligned);
  REQUIRE(eval.data_size() == 1);
  CHECK(eval.data(0) == "e");
  CHECK(eval.order() == "sequential");
  CHECK(eval.token_budget() == 200);
  CHECK(eval.window() == 7);
  CHECK(eval.views_size() == 0);
  CHECK(eval.quota() == 0);
  CHECK(eval.streams_size() == 0);
  const v1::Config& other = streams->at(2).config;
  CHECK(streams->at(2).aligned);
  CHECK(other.format() == "tokenized");
  CHECK(other.token_budget() == 100);
  CHECK(other.max_length() == 0);
}

TEST_CASE("Config: loopback is listened at without a token, everything else with one", "[config]") {
  CHECK(CheckConfig(Load({"--data=a", "--listen=127.0.0.1:0"})->values).ok());
  CHECK(CheckConfig(Load({"--data=a", "--listen=[::1]:29462"})->values).ok());
  CHECK(CheckConfig(Load({"--data=a", "--listen=0.0.0.0:29462", "--job-token=x"})->values).ok());
}

TEST_CASE("Config: the longest sample is what the budget holds after padding", "[config]") {
  CHECK(EffectiveMaxLength(Load({})->values) == 8192);
  CHECK(EffectiveMaxLength(Load({"--max-length=100"})->values) == 100);
  CHECK(EffectiveMaxLength(Load({"--shape-buckets=512,1024"})->values) == 1024);
  CHECK(EffectiveMaxLength(Load({"--shape-buckets=512,1024", "--max-length=900"})->values) == 900);
  // 100 / 64 * 64
  CHECK(EffectiveMaxLength(Load({"--token-budget=100", "--pad-to-multiple-of=64"})->values) == 64);
}

TEST_CASE("Config: buckets are read from flag, variable and file alike", "[config]") {
  const std::vector<int32_t> wanted = {512, 1024};
  const auto buckets = [](const absl::StatusOr<LoadedConfig>& config) {
    const auto& field = config->values.shape_buckets();
    return std::vector<int32_t>(field.begin(), field.end());
  };
  CHECK(buckets(Load({"--shape-buckets=512,1024"})) == wanted);
  CHECK(buckets(Load({}, {{"ODB_SHAPE_BUCKETS", "512, 1024"}})) == wanted);
  const TemporaryFile list("shape_buckets: [512, 1024]\n");
  CHECK(buckets(Load({"--config", list.path()})) == wanted);
  const TemporaryFile lines("shape_buckets:\n- 512\n- 1024\n");
  CHECK(buckets(Load({"--config", lines.path()})) == wanted);
  // The stronger place replaces the list, with none too.
  CHECK(buckets(Load({"--config", list.path(), "--shape-buckets=[]"})).empty());
  const TemporaryFile one("shape_buckets: 64\n");
  CHECK(buckets(Load({"--config", one.path()})) == std::vector<int32_t>{64});
}

TEST_CASE("Config: tokenized records have no tokenizer unless one is named", "[config]") {
  const auto config = Load({"--data=a", "--format=tokenized", "--pad-token-id=7"});
  REQUIRE(config.ok());
  CHECK(CheckConfig(config->values).ok());
  CHECK(config->values.pad_token_id() == 7);
  CHECK(Load({"--pad-token-id=-2"}).status().message() ==
        "--pad-token-id must be an integer from -1 to 2147483647, got \"-2\"");
}

TEST_CASE("Config: extra tensors have defaults and become what they describe", "[config]") {
  const auto config =
      Load({"--data=a", "--format=tokenized",
            "--extra-tensors=[{name: x, dtype: int32}, {name: y, dtype: float16, shape: [length, "
            "-1], layout: pad, pad_value: 1.5}]",
            "--arena-bytes=1GiB"});
  REQUIRE(config.ok());
  CHECK(CheckConfig(config->values).ok());

  const auto specs = ExtraTensorsOf(config->values);

  REQUIRE(specs.ok());
  REQUIRE(specs->size() == 2);
  CHECK(specs->at(0).name == "x");
  CHECK(specs->at(0).shape == std::vector<int64_t>{kAnySize});
  CHECK(specs->at(0).layout == ExtraLayout::kPad);
  CHECK(specs->at(0).padding == std::string(4, 0));
  CHECK(specs->at(1).type == ElementType::kFloat16);
  CHECK(specs->at(1).shape == std::vector<int64_t>{kTokenSize, kAnySize});
  CHECK(specs->at(1).padding == std::string("\x00\x3e", 2));
  CHECK(FieldToText(*FindConfigField("extra_tensors"), config->values) ==
        "[{name: x, dtype: int32, shape: [-1], layout: pad, pad_value: 0}, {name: y, dtype: "
        "float16, shape: [length, -1], layout: pad, pad_value: 1.5}]");
}

TEST_CASE("Config: bytes are read with and without a unit", "[config]") {
  CHECK(Load({"--arena-bytes=64MiB"})->values.arena_bytes() == 64 << 20);
  CHECK(Load({"--arena-bytes=2g"})->values.arena_bytes() == int64_t{2} << 30);
  CHECK(Load({"--arena-bytes=4096"})->values.arena_bytes() == 4096);
  CHECK(!Load({"--arena-bytes=9999999999999GiB"}).ok());
}

TEST_CASE("Config: what --print-config prints reads back to the same values", "[config]") {
  const auto config = Load(
      {"--data=a \"b\".jsonl", "--data=c", "--views=[{sources: [1]}, {sources: [0]}]",
       "--max-bad-share=0.25", "--stall-timeout=5m", "--shape-buckets=64,512",
       "--extra-tensors=[{name: x, dtype: int32, shape: [length, 3], pad_value: 0.1}]",
       "--streams=[{name: e, data: [\"a 'b\", c], align: none, window: 9}, {name: f, data: d}]"});
  REQUIRE(config.ok());
  const std::string yaml = ConfigAsYaml(*config);

  v1::Config read;
  std::map<std::string, std::string> origins;
  const absl::Status status = ReadConfigYaml("printed", yaml, &read, &origins);

  INFO(yaml);
  REQUIRE(status.ok());
  for (const FieldSpec& spec : ConfigFields()) {
    INFO(spec.name);
    CHECK(FieldToText(spec, read) == FieldToText(spec, config->values));
  }
}

TEST_CASE("Config: --print-config shows origins and hides the job token", "[config]") {
  const auto config = Load({"--data=a"}, {{"ODB_JOB_TOKEN", "secret"}});
  REQUIRE(config.ok());

  const std::string yaml = ConfigAsYaml(*config);

  CHECK(absl::StrContains(yaml, "# ODB_JOB_TOKEN"));
  CHECK(!absl::StrContains(yaml, "secret"));
  CHECK(absl::StrContains(yaml, "token_budget: 8192"));
}

TEST_CASE("Config: --help names every field and fits 80 columns", "[config]") {
  const std::string help = HelpText();
  for (const std::string& name : ConfigFieldNames()) {
    INFO(name);
    CHECK(absl::StrContains(help, "  --" + absl::StrReplaceAll(name, {{"_", "-"}})));
  }
  for (const absl::string_view line : absl::StrSplit(help, '\n')) {
    INFO(line);
    CHECK(line.size() <= 80);
  }
  CHECK(absl::StrContains(help, "\nBatches\n"));
  CHECK(absl::StrContains(help, "\n   4  drain_timeout passed; "));
}

TEST_CASE("Config: the digest changes with what shapes plans and with nothing else", "[config]") {
  const auto digest = [](const std::vector<std::string>& arguments) {
    return CombinedDigest(DigestConfig(Load(arguments)->values, {1, 2, 3}));
  };
  const uint64_t plain = digest({"--data=a"});
  CHECK(digest({"--data=/elsewhere/a"}) == plain);
  CHECK(digest({"--workers=3"}) == plain);
  CHECK(digest({"--prefetch-steps=3"}) == plain);
  CHECK(digest({"--seed=1"}) != plain);
  CHECK(digest({"--window=255"}) != plain);
  CHECK(digest({"--views=[{sources: []}]"}) != plain);
  CHECK(CombinedDigest(DigestConfig(Load({})->values, {1, 2, 4})) != plain);
  const uint64_t eval = digest({"--streams=[{name: e, data: a}]"});
  CHECK(eval != plain);
  CHECK(
      digest(
          {"--streams=[{name: e, data: /elsewhere/a, prefetch_steps: 3, prefetch_bytes: 1MiB}]"}) ==
      eval);
  CHECK(digest({"--streams=[{name: e, data: a, align: none}]"}) != eval);
}

TEST_CASE("NearestName: a slip is recognised, another word is not", "[config]") {
  CHECK(EditDistance("budget", "bugdet") == 1);
  CHECK(EditDistance("", "abc") == 3);
  CHECK(NearestName("widnow", {"seed", "window"}) == "window");
  CHECK(NearestName("budget", {"seed", "token_budget"}) == "token_budget");
  CHECK(NearestName("elephant", {"seed", "window"}).empty());
}

}  // namespace
}  // namespace odb
