#include "server/sources/dataset.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "server/sources/scratch_file.h"
#include "tests/support/status_matchers.h"

namespace odb {
namespace {

std::unique_ptr<Dataset> OpenAll(const std::vector<std::string>& paths,
                                 const DatasetOptions& options = {}) {
  auto dataset = Dataset::Open(paths, options);
  INFO(dataset.status().ToString());
  REQUIRE(dataset.ok());
  return std::move(*dataset);
}

std::vector<std::string> ReadAll(const Dataset& dataset) {
  std::vector<std::string> texts;
  std::string buffer;
  for (int64_t i = 0; i < dataset.size(); ++i) {
    const auto text = dataset.Read(i, &buffer);
    REQUIRE(text.ok());
    texts.emplace_back(*text);
  }
  return texts;
}

TEST_CASE("Dataset: BOM, CRLF, blank lines and no final newline lose no record (S02)",
          "[sources]") {
  const ScratchFile file(
      "ugly.jsonl", "\xef\xbb\xbf{\"a\": 1}\r\n\r\n{\"b\": \"x\xe2\x80\xa8y\"}\n \n{\"c\": 3}");
  const auto dataset = OpenAll({file.path()});

  CHECK(ReadAll(*dataset) ==
        std::vector<std::string>{"{\"a\": 1}", "{\"b\": \"x\xe2\x80\xa8y\"}", "{\"c\": 3}"});
  // Lines count \n only, as `sed -n Np` does; offsets count the byte order mark.
  CHECK(dataset->ref(0).line == 1);
  CHECK(dataset->ref(0).offset == 3);
  CHECK(dataset->ref(1).line == 3);
  CHECK(dataset->ref(1).offset == 3 + 10 + 2);
  CHECK(dataset->ref(2).line == 5);
}

TEST_CASE("Dataset: an array is recognised by its content, not by the file's name", "[sources]") {
  const ScratchFile file("data.jsonl", "\xef\xbb\xbf\n[{\"a\": 1},\n {\"a\": 2}]\n");
  const auto dataset = OpenAll({file.path()});

  CHECK(ReadAll(*dataset) == std::vector<std::string>{"{\"a\": 1}", "{\"a\": 2}"});
  CHECK(dataset->ref(0).line == 2);
  CHECK(dataset->ref(1).line == 3);
  CHECK(dataset->warnings().empty());
}

TEST_CASE("Dataset: JSON Lines that begin with an array stay JSON Lines", "[sources]") {
  const ScratchFile file("data.jsonl", "[{\"a\": 1}]\n{\"a\": 2}\n");

  CHECK(OpenAll({file.path()})->size() == 2);
}

TEST_CASE("Dataset: an array on one line is an array", "[sources]") {
  const ScratchFile file("data.json", "[{\"a\": 1}, {\"a\": 2}, {\"a\": 3}]\n");

  CHECK(OpenAll({file.path()})->size() == 3);
}

TEST_CASE("Dataset: an array that is cut is served and warned of", "[sources]") {
  const ScratchFile file("data.json", "[{\"a\": 1},\n{\"a\": 2},\n{\"a\"");
  const auto dataset = OpenAll({file.path()});

  CHECK(dataset->size() == 3);
  REQUIRE(dataset->warnings().size() == 1);
  CHECK(dataset->warnings()[0] ==
        "data.json:3 (byte 21): a quote or bracket of the record that begins here is never closed; "
        "the rest of the file, 4 bytes, could not be read as records");
  CHECK(dataset->Note(dataset->ref(1)) == "");
  CHECK(dataset->warnings()[0] == "data.json:3 (byte 21): " + dataset->Note(dataset->ref(2)));
}

TEST_CASE("Dataset: an array without its end, or with something behind it, is warned of",
          "[sources]") {
  const ScratchFile file("data.json", GENERATE("[{\"a\": 1}", "[{\"a\": 1}] x"));
  const auto dataset = OpenAll({file.path()});

  REQUIRE(dataset->warnings().size() == 1);
  CHECK(dataset->warnings()[0].find("data.json: the JSON array is not closed") == 0);
  CHECK(dataset->Note(dataset->ref(dataset->size() - 1)) == "");
}

TEST_CASE("Dataset: the scan says how far it is", "[sources]") {
  const ScratchFile a("a.jsonl", "1\n2\n");
  const ScratchFile b("b.json", "[{\"a\": 1}]");
  ScanProgress progress;
  DatasetOptions options;
  options.progress = &progress;

  OpenAll({a.path(), b.path()}, options);

  CHECK(progress.bytes_total == 14);
  CHECK(progress.bytes_done == 14);
  CHECK(progress.records == 3);
}

TEST_CASE("Dataset: records across the pieces of the scan are whole", "[sources]") {
  // 3 000 records of about 1 kB: nearly three pieces of 1 MiB.
  std::string lines, array = "[";
  for (int i = 0; i < 3000; ++i) {
    const std::string record =
        "{\"i\": " + std::to_string(i) + ", \"t\": \"" + std::string(1000 + i % 7, 'x') + "\"}";
    lines += record + "\r\n";
    array += (i > 0 ? ",\n" : "") + record;
  }
  const ScratchFile lines_file("l.jsonl", lines);
  const ScratchFile array_file("a.json", array + "]");
  const auto dataset = OpenAll({lines_file.path(), array_file.path()});

  REQUIRE(dataset->size() == 6000);
  std::string buffer, other;
  for (int64_t i = 0; i < 3000; ++i) {
    REQUIRE(*dataset->Read(i, &buffer) == *dataset->Read(i + 3000, &other));
    REQUIRE(dataset->ref(i).line == i + 1);
    REQUIRE(dataset->ref(i + 3000).line == i + 1);
  }
}

TEST_CASE("Dataset: sources keep their order and ranges, empty ones included", "[sources]") {
  const ScratchFile a("a.jsonl", "1\n2\n");
  const ScratchFile none("none.jsonl", "");
  const ScratchFile b("b.jsonl", "3\n");
  DatasetOptions options;
  options.allow_empty_sources = true;
  const auto dataset = OpenAll({none.path(), a.path(), none.path(), b.path()}, options);

  CHECK(dataset->num_sources() == 4);
  CHECK(dataset->size() == 3);
  CHECK(dataset->records(0).count == 0);
  CHECK(dataset->records(1).first == 0);
  CHECK(dataset->records(1).count == 2);
  CHECK(dataset->records(3).first == 2);
  CHECK(dataset->ref(1).source == 1);
  CHECK(dataset->ref(2).source == 3);
  CHECK(dataset->name(3) == "b.jsonl");
  CHECK(dataset->Find({1, 2}) == 1);
  CHECK(dataset->Find({1, 1}) == -1);
  CHECK(dataset->Find({2, 0}) == -1);
  CHECK(dataset->Find({9, 0}) == -1);
}

TEST_CASE("Dataset: the manifest digest knows names, sizes and counts, not folders", "[sources]") {
  const ScratchFile here("a.jsonl", "1\n2\n");
  const ScratchFile there("a.jsonl", "8\n9\n");
  const ScratchFile renamed("b.jsonl", "1\n2\n");
  const ScratchFile longer("a.jsonl", "1\n22\n");
  const uint64_t digest = OpenAll({here.path()})->manifest_digest();

  CHECK(OpenAll({there.path()})->manifest_digest() == digest);
  CHECK(OpenAll({renamed.path()})->manifest_digest() != digest);
  CHECK(OpenAll({longer.path()})->manifest_digest() != digest);
  CHECK(OpenAll({here.path(), renamed.path()})->manifest_digest() !=
        OpenAll({renamed.path(), here.path()})->manifest_digest());
}

TEST_CASE("Dataset: a record over the limit is indexed and refused when read", "[sources]") {
  const ScratchFile file("data.jsonl", "ok\n" + std::string(100, 'x') + "\nok\n");
  DatasetOptions options;
  options.max_record_bytes = 99;
  const auto dataset = OpenAll({file.path()}, options);
  std::string buffer;

  REQUIRE(dataset->size() == 3);
  CHECK_THAT(dataset->Read(1, &buffer).status(), HasCode(absl::StatusCode::kResourceExhausted));
  CHECK_THAT(dataset->Read(1, &buffer).status(),
             HasMessage("100 bytes, allowed are 99 (max_record_bytes)"));
  CHECK(dataset->Read(2, &buffer).ok());
}

TEST_CASE("Dataset: a file that shrank is data loss, not a crash", "[sources]") {
  ScratchFile file("data.jsonl", "{\"a\": 1}\n{\"a\": 2}\n");
  const auto dataset = OpenAll({file.path()});
  file.Write("{\"a\"");
  std::string buffer;

  CHECK_THAT(dataset->Read(1, &buffer).status(), HasCode(absl::StatusCode::kDataLoss));
  CHECK_THAT(dataset->Read(0, &buffer).status(), HasMessage("4 bytes early"));
}

TEST_CASE("Dataset: what cannot be read is one sentence that names the file", "[sources]") {
  const ScratchFile empty("empty.jsonl", "\xef\xbb\xbf\n \r\n");
  const ScratchFile empty_array("empty.json", "[]");
  const ScratchFile utf16("utf16.jsonl", absl::string_view("\xff\xfe{\0", 4));
  const ScratchFile gzip("data.jsonl.gz", "\x1f\x8b\x08");
  const ScratchFile object("config.json", "{\n  \"a\": 1\n}\n");
  const auto status_of = [](const std::string& path) { return Dataset::Open({path}).status(); };

  CHECK_THAT(Dataset::Open({}).status(), HasCode(absl::StatusCode::kNotFound));
  CHECK_THAT(status_of("/nonexistent/x.jsonl"), HasCode(absl::StatusCode::kNotFound));
  CHECK_THAT(status_of("/nonexistent/x.jsonl"),
             HasMessage("data file /nonexistent/x.jsonl does not exist"));
  CHECK_THAT(status_of(empty.folder()), HasMessage("is a directory"));
  CHECK_THAT(status_of("/dev/null"), HasMessage("is not a regular file"));
  CHECK_THAT(status_of(empty.path()), HasMessage("is empty: no record in 7 bytes"));
  CHECK_THAT(status_of(empty_array.path()), HasMessage("is empty"));
  CHECK_THAT(status_of(utf16.path()), HasMessage("is UTF-16"));
  CHECK_THAT(status_of(gzip.path()), HasMessage("gzip"));
  CHECK_THAT(status_of(object.path()), HasMessage("one JSON object over several lines"));
  DatasetOptions options;
  options.max_record_bytes = 0;
  CHECK_THAT(Dataset::Open({empty.path()}, options).status(),
             HasMessage("max_record_bytes must be in"));
}

}  // namespace
}  // namespace odb
