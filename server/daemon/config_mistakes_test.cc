#include "server/daemon/config.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "server/daemon/config_fixture.h"
#include "server/daemon/exit_codes.h"
#include "server/daemon/nearest_name.h"
#include "tests/support/status_matchers.h"

namespace odb {
namespace {

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
      {{"--data=a", "--format=tokenized", "--position-ids=int64",
        "--extra-tensors=[{name: position_ids, dtype: int64}]"},
       "extra_tensors: a step has each name once, got tensor position_ids"},
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
      {{"--data=a", "--metrics=9464"},
       "metrics must be host:port with a port from 0 to 65535, got \"9464\""},
      {{"--data=a", "--metrics=127.0.0.1:1,127.0.0.1:2"},
       "metrics must be host:port with a port from 0 to 65535, got \"127.0.0.1:1,127.0.0.1:2\""},
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

TEST_CASE("NearestName: a slip is recognised, another word is not", "[config]") {
  CHECK(EditDistance("budget", "bugdet") == 1);
  CHECK(EditDistance("", "abc") == 3);
  CHECK(NearestName("widnow", {"seed", "window"}) == "window");
  CHECK(NearestName("budget", {"seed", "token_budget"}) == "token_budget");
  CHECK(NearestName("elephant", {"seed", "window"}).empty());
}

}  // namespace
}  // namespace odb
