#include "server/daemon/config.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "server/daemon/config_digest.h"
#include "server/daemon/config_fields.h"
#include "server/daemon/config_fixture.h"
#include "server/daemon/config_streams.h"
#include "server/daemon/config_tensors.h"
#include "tests/support/status_matchers.h"

namespace odb {
namespace {

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

}  // namespace
}  // namespace odb
