#include "server/sources/indexed_corpus.h"

#include <unistd.h>

#include <catch2/catch.hpp>

#include "server/sources/corpus_files.h"
#include "server/sources/dataset.h"
#include "tests/support/status_matchers.h"

namespace odb {
namespace {

using Files = CorpusFiles<uint16_t>;
constexpr uint8_t kUint16Code = 8;
const std::vector<std::vector<uint16_t>> kSequences = {{7, 8, 65535}, {}, {9}};

TEST_CASE("Dataset: the sequences of an indexed corpus are its records", "[sources]") {
  const Files files(kUint16Code, kSequences);

  const auto dataset = Dataset::Open({files.index_path()});

  REQUIRE(dataset.status() == absl::OkStatus());
  CHECK((*dataset)->token_type(0) == TokenType::kUint16);
  CHECK((*dataset)->name(0) == "corpus.bin");
  CHECK((*dataset)->bytes(0) == 8);
  REQUIRE((*dataset)->size() == 2);
  const RecordRef second = (*dataset)->ref(1);
  CHECK(second.offset == 6);
  CHECK(second.line == 3);  // the third sequence; the empty one is left out
  CHECK((*dataset)->Find(second.id()) == 1);
  std::string buffer;
  const auto first = (*dataset)->Read(0, &buffer);
  REQUIRE(first.ok());
  CHECK(*first == Files::Data({{7, 8, 65535}}));
  CHECK((*dataset)->warnings() ==
        std::vector<std::string>{"corpus.bin: 1 sequences without a token are left out"});
}

TEST_CASE("Dataset: a corpus is viewed in place, and what is cut off meanwhile is known",
          "[sources]") {
  const Files files(kUint16Code, {{7, 8, 9}, {5, 0}, {6}});
  const auto dataset = Dataset::Open({files.index_path()});
  REQUIRE(dataset.ok());
  std::string buffer;
  const auto view = [&](int64_t index) { return (*dataset)->View((*dataset)->ref(index)); };
  const auto is_there = [&](int64_t index) {
    return (*dataset)->IsStillThere((*dataset)->ref(index));
  };
  CHECK(view(0) == absl::string_view(Files::Data({{7, 8, 9}})));
  CHECK(is_there(0));
  CHECK(view(1) == absl::string_view(Files::Data({{5, 0}})));
  CHECK(is_there(1));  // although it ends as what was cut off does

  REQUIRE(truncate(files.data_path().c_str(), 8) == 0);
  CHECK(is_there(0));
  CHECK_FALSE(is_there(1));
  CHECK_FALSE(is_there(2));
  CHECK_THAT((*dataset)->Read(2, &buffer).status(), HasMessage("2 bytes early"));

  // Nothing is left of the page, so to look at it raises a signal; all of it is in doubt then.
  REQUIRE(truncate(files.data_path().c_str(), 0) == 0);
  CHECK_FALSE(is_there(0));
  CHECK_FALSE(view(0).has_value());
  CHECK_THAT((*dataset)->Read(0, &buffer).status(), HasMessage("6 bytes early"));
}

TEST_CASE("Dataset: what is left of a corpus with damaged pages is still there", "[sources]") {
  const std::vector<uint16_t> page(2048, 7);
  const Files files(kUint16Code, {page, page, page, page});
  const auto dataset = Dataset::Open({files.index_path()});
  REQUIRE(dataset.ok());
  const auto is_there = [&](int64_t index) {
    return (*dataset)->IsStillThere((*dataset)->ref(index));
  };
  const auto page_bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  if (page_bytes > 8192) {
    WARN("skipped: pages of " << page_bytes << " bytes, none of which would be damaged");
    return;
  }

  REQUIRE(truncate(files.data_path().c_str(), 8192) == 0);
  CHECK_FALSE(is_there(3));
  CHECK(is_there(0));
  CHECK(is_there(1));
  CHECK_FALSE(is_there(2));
  CHECK_FALSE((*dataset)->View((*dataset)->ref(0)).has_value());  // it is read now
}

TEST_CASE("Dataset: a text, and a record over the limit, cannot be viewed", "[sources]") {
  const ScratchFile text("data.jsonl", "{\"a\": 1}\n");
  const auto dataset = Dataset::Open({text.path()});
  REQUIRE(dataset.ok());
  CHECK_FALSE((*dataset)->View((*dataset)->ref(0)).has_value());

  const Files files(kUint16Code, {{7, 8, 9}, {5}});
  DatasetOptions options;
  options.max_record_bytes = 4;
  const auto corpus = Dataset::Open({files.index_path()}, options);
  REQUIRE(corpus.ok());
  CHECK_FALSE((*corpus)->View((*corpus)->ref(0)).has_value());
  CHECK((*corpus)->View((*corpus)->ref(1)).has_value());
}

TEST_CASE("Dataset: what is named instead of the index, or is not there, is said", "[sources]") {
  const Files files(kUint16Code, kSequences);
  const auto message = [](const std::string& path) {
    return std::string(Dataset::Open({path}).status().message());
  };

  CHECK(message(files.data_path()) == "data file " + files.data_path() +
                                          " holds the token ids of an indexed corpus; name its "
                                          ".idx file");
  const ScratchFile renamed("corpus.index", Files::Index(kUint16Code, kSequences));
  CHECK(message(renamed.path()) == "data file " + renamed.path() +
                                       " is the index of a tokenized corpus; its name must end "
                                       "with .idx, so that the .bin file beside it can be found");
  const ScratchFile alone("alone.idx", Files::Index(kUint16Code, kSequences));
  CHECK(message(alone.path()) == "data file " + CorpusDataPath(alone.path()) + " does not exist");
}

TEST_CASE("ParseCorpusIndex: an index that cannot be right is refused", "[sources]") {
  const std::string good = Files::Index(kUint16Code, kSequences);
  const auto message = [](const std::string& index, int64_t data_bytes = 8) {
    return std::string(ParseCorpusIndex(index, data_bytes).status().message());
  };
  const auto with = [&good](size_t at, char byte) {
    std::string changed = good;
    changed[at] = byte;
    return changed;
  };

  CHECK(message(good) == "");
  CHECK(message(good.substr(0, 20)) == "it is cut: 20 bytes, the head alone takes 34");
  CHECK(message(good.substr(0, 50)) == "it is cut: 50 bytes hold 1 sequences, it tells of 3");
  CHECK(message(with(9, 2)) == "it has version 2; known is 1");
  CHECK(message(with(17, 6)) ==
        "its token type has code 6; known are 1-5 and 8 (8 to 64 bit integers)");
  CHECK(message(with(25, '\x7f')) ==
        "it is cut: 86 bytes hold 4 sequences, it tells of 9151314442816847875");
  CHECK(message(good, 7) ==
        "its sequence 3 of 1 tokens at byte 6 lies outside the data (7 bytes) or over the one "
        "before");
  CHECK(message(with(37, '\xff')) ==
        "its sequence 1 of -16777213 tokens at byte 0 lies outside the data (8 bytes) or over the "
        "one before");
  CHECK(message(with(62, 2)) ==
        "its sequence 3 of 1 tokens at byte 2 lies outside the data (8 bytes) or over the one "
        "before");
}

}  // namespace
}  // namespace odb
