#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/ids.h"
#include "server/sources/indexed_corpus.h"
#include "server/sources/record_scanner.h"

namespace odb {

// Where one record lies. Its text is the bytes [offset, offset + bytes) of the source.
struct RecordRef {
  int32_t source = 0;  // position of the file in the dataset
  int64_t offset = 0;  // bytes from the start of the file, a byte order mark included
  int64_t bytes = 0;   // without the line end
  int64_t line = 0;    // line on which it starts, from 1; counts \n only, as `sed -n Np` does

  SampleId id() const { return SampleId{source, offset}; }
};

// The records of one source within the dataset's numbering: [first, first + count).
struct RecordRange {
  int64_t first = 0;
  int64_t count = 0;
};

// How far Open is, for whoever waits for it; of several datasets, one after the other, the bytes of
// all so far. Threads: thread-safe.
struct ScanProgress {
  std::atomic<int64_t> bytes_done{0};
  std::atomic<int64_t> bytes_total{0};  // 0: not known yet
  std::atomic<int64_t> records{0};      // found so far, of this dataset
};

struct DatasetOptions {
  // A longer record is one bad record (record_too_long) and is never read into memory.
  int64_t max_record_bytes = int64_t{16} << 20;
  // An empty file is an error by default: it is nearly always a mistake. With views that bind
  // sources to ranks it may be meant.
  bool allow_empty_sources = false;
  // Told while Open reads; may be null. Must outlive that call.
  ScanProgress* progress = nullptr;
};

// An ordered list of JSON Lines and JSON array files, and of tokenized corpora with an index
// (indexed_corpus.h), read-only, indexed by one scan.
//
// What a file is, its content tells: `[` as its first character means a JSON array, unless the
// first line is a complete array and more lines follow; the magic of a corpus index, a corpus,
// whose records are read from the .bin file beside it; anything else is JSON Lines. A byte order
// mark, CRLF, blank lines and a missing last line end are no part of any record. Records are not
// parsed here: whatever is wrong within one is found when it is preprocessed.
//
// Ownership: owns the descriptors; copies the names. Threads: immutable after Open, so thread-safe.
// Memory: 16 bytes a record.
class Dataset {
 public:
  // Errors: NotFound (no such file, no file named), PermissionDenied, InvalidArgument (a directory,
  // an empty file, UTF-16, gzip, an option out of range), Internal (a failed read); one sentence
  // that names the file.
  static absl::StatusOr<std::unique_ptr<Dataset>> Open(const std::vector<std::string>& paths,
                                                       const DatasetOptions& options = {});
  ~Dataset();
  Dataset(const Dataset&) = delete;
  Dataset& operator=(const Dataset&) = delete;

  int64_t size() const { return num_records_; }
  RecordRef ref(int64_t index) const;  // `index` in [0, size())
  // Asks the processor for what ref(index) reads: views jump about an index that is larger than
  // any cache, and several records asked for at once are waited for together.
  void Prefetch(int64_t index) const;

  // Reads a record into `buffer` and returns a view of it there. The buffer is meant to be used
  // again for the next record: it grows to the longest and is never cut back.
  //
  // Errors: ResourceExhausted (longer than max_record_bytes), DataLoss (the file shrank or a read
  // failed since Open).
  absl::StatusOr<absl::string_view> Read(int64_t index, std::string* buffer) const;
  absl::StatusOr<absl::string_view> Read(const RecordRef& ref, std::string* buffer) const;

  // The record where it lies in memory, for as long as the dataset, if its source is mapped (the
  // data of a corpus) and nothing speaks against reading it there. Whoever has used it asks
  // IsStillThere; if it is not, Read says what is wrong. Meant for data that is in memory; from a
  // disk it would come page by page.
  std::optional<absl::string_view> View(const RecordRef& ref) const;
  // Whether what View returned for `ref` was the record until now.
  bool IsStillThere(const RecordRef& ref) const;

  // What is to be known of a record that cannot be used, beyond what is in it: "the rest of the
  // file, 88,112 bytes, could not be read as records: ..."; empty for nearly all.
  std::string Note(const RecordRef& ref) const;

  int32_t num_sources() const { return static_cast<int32_t>(sources_.size()); }
  RecordRange records(int32_t source) const;
  const std::string& path(int32_t source) const;  // as given to Open
  const std::string& name(int32_t source) const;  // without the folder; what messages show
  int64_t bytes(int32_t source) const;            // file size at Open
  // kNone where the records are text. Of a corpus, name and bytes are those of its .bin file.
  TokenType token_type(int32_t source) const;

  // The record at a byte offset of a source, as SampleId names it; -1 if none starts there.
  int64_t Find(const SampleId& id) const;

  // Names without folders, sizes and record counts, in order: equal on two nodes that read equal
  // copies of the files, wherever these lie. Not a checksum of the content.
  uint64_t manifest_digest() const { return manifest_digest_; }

  // What Open noticed and could live with ("data.json: the array is not closed; ..."), for the log.
  const std::vector<std::string>& warnings() const { return warnings_; }

  const DatasetOptions& options() const { return options_; }

 private:
  struct Source;
  explicit Dataset(const DatasetOptions& options);
  size_t SourceOf(int64_t index) const;
  const ScannedRecord& RecordAt(size_t source, int64_t index) const;
  absl::Status AddSource(const std::string& path);
  absl::Status OpenFile(const std::string& path, Source* source);
  absl::Status Scan(Source* source);
  absl::Status ScanIndex(Source* source);
  std::string Note(const RecordRef& ref, const Source& source) const;
  void WarnOfArray(Source* source, bool ends_within_record);
  uint64_t ComputeManifestDigest() const;

  const DatasetOptions options_;
  std::vector<std::unique_ptr<Source>> sources_;
  std::vector<std::string> warnings_;
  int64_t num_records_ = 0;
  uint64_t manifest_digest_ = 0;
};

}  // namespace odb
