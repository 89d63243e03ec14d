// OpenNodeData: what the files and the configuration together make of a record.
#include "server/daemon/node_data.h"

#include <catch2/catch.hpp>

#include "server/daemon/config.h"
#include "server/sources/corpus_files.h"
#include "tests/support/status_matchers.h"

namespace odb {
namespace {

using Files = CorpusFiles<uint16_t>;
constexpr uint8_t kUint16Code = 8;

v1::Config ConfigFor(const std::vector<std::string>& data) {
  auto loaded = LoadConfig(CommandLine(), ConfigEnvironment());
  REQUIRE(loaded.status() == absl::OkStatus());
  v1::Config config = loaded->values;
  for (const std::string& path : data) config.add_data(path);
  return config;
}

std::string MessageOf(const v1::Config& config) {
  return std::string(OpenNodeData(config, nullptr).status().message());
}

TEST_CASE("OpenNodeData: an indexed corpus is recognised and needs no tokenizer", "[daemon]") {
  const Files files(kUint16Code, {{7, 60000, 9}, {1, 2}});

  const auto data = OpenNodeData(ConfigFor({files.index_path()}), nullptr);

  REQUIRE(data.status() == absl::OkStatus());
  CHECK(data->Describe() == "2 records in corpus.bin");
  CHECK(data->pad_token_id == 0);
  std::string buffer;
  const SampleResult first =
      Preprocess(*data->dataset, *data->transform, 0, /*seed=*/1, Epoch(0), &buffer);
  REQUIRE(std::holds_alternative<Sample>(first));
  CHECK(std::get<Sample>(first).input_ids == std::vector<int32_t>{7, 60000, 9});
}

TEST_CASE("OpenNodeData: what does not go with an indexed corpus is said", "[daemon]") {
  const Files files(kUint16Code, {{7, 8, 9}});
  v1::Config conversations = ConfigFor({files.index_path()});
  conversations.set_format("sharegpt");
  CHECK(MessageOf(conversations) ==
        "format is sharegpt, but data is an indexed corpus of token ids; allowed with it: auto, "
        "tokenized");
  v1::Config extras = ConfigFor({files.index_path()});
  extras.add_extra_tensors()->set_name("boxes");
  CHECK(MessageOf(extras) ==
        "extra_tensors are set, but data is an indexed corpus, which holds token ids only");
  const ScratchFile text("text.jsonl", "{\"instruction\": \"a\", \"output\": \"b\"}\n");
  CHECK(MessageOf(ConfigFor({files.index_path(), text.path()})) ==
        "data file 2 holds text, another one token ids; serve them apart");
}

}  // namespace
}  // namespace odb
