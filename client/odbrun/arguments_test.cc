#include "client/odbrun/arguments.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "tests/support/status_matchers.h"

namespace odb {
namespace {

using Words = std::vector<std::string>;

absl::StatusOr<RunArguments> Parse(const Words& words) { return ParseRunArguments(words, "/here"); }

TEST_CASE("odbrun arguments: what is not odbrun's goes to odbd unchanged", "[odbrun]") {
  const RunArguments run = Parse({"--data", "a b.jsonl", "--token-budget=8192", "--odbd", "/x/odbd",
                                  "--start-timeout=90", "--drain-timeout", "2m", "--window", "64",
                                  "--", "torchrun", "--", "train.py", "--odbd"})
                               .value();

  CHECK(run.odbd_flags == Words{"--data", "a b.jsonl", "--token-budget=8192", "--window", "64"});
  CHECK(run.command == Words{"torchrun", "--", "train.py", "--odbd"});
  CHECK(run.odbd == "/x/odbd");
  CHECK(run.start_timeout == absl::Seconds(90));
  CHECK(run.drain_timeout == absl::Minutes(2));
  CHECK(run.socket.empty());
}

TEST_CASE("odbrun arguments: a relative socket is made absolute", "[odbrun]") {
  CHECK(Parse({"--socket", "run/s", "--", "true"})->socket == "/here/run/s");
  CHECK(Parse({"--socket=/run/s", "--", "true"})->socket == "/run/s");
}

TEST_CASE("odbrun arguments: help and version need no command", "[odbrun]") {
  CHECK(Parse({"--help"})->help);
  CHECK(Parse({"-h"})->help);
  CHECK(Parse({"-V"})->version);
  CHECK_FALSE(Parse({"--", "cat", "--help"})->help);
  CHECK_THAT(RunHelp(), Catch::Contains("--start-timeout"));
}

TEST_CASE("odbrun arguments: each mistake is one clear sentence", "[odbrun]") {
  const auto message = [](const Words& words) {
    const absl::Status status = Parse(words).status();
    CHECK_THAT(status, HasCode(absl::StatusCode::kInvalidArgument));
    return std::string(status.message());
  };

  CHECK_THAT(message({}), Catch::Contains("must follow \"--\""));
  CHECK_THAT(message({"torchrun", "train.py"}), Catch::Contains("must follow \"--\""));
  CHECK_THAT(message({"--data", "x", "--"}), Catch::Contains("no command after \"--\""));
  CHECK_THAT(message({"--odbd"}), Catch::Contains("--odbd needs a value"));
  CHECK_THAT(message({"--start-timeout", "-3", "--", "true"}),
             Catch::Contains("--start-timeout must be a time > 0") && Catch::Contains("\"-3\""));
  CHECK_THAT(message({"--drain-timeout=soon", "--", "true"}), Catch::Contains("\"soon\""));
  CHECK_THAT(message({"--ready-fd", "3", "--", "true"}), Catch::Contains("set by odbrun itself"));
}

}  // namespace
}  // namespace odb
