#include "server/daemon/config.h"

#include <catch2/catch.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "server/daemon/config_fields.h"
#include "server/daemon/config_fixture.h"
#include "server/daemon/config_text.h"
#include "server/daemon/config_yaml.h"
#include "tests/support/status_matchers.h"

namespace odb {
namespace {

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

}  // namespace
}  // namespace odb
