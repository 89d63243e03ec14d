#include "server/sources/dataset.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "base/os/mapped_file.h"
#include "base/status_macros.h"
#include "server/sources/indexed_corpus.h"
#include "server/sources/record_scanner.h"

namespace odb {
namespace {

constexpr int64_t kScanBytes = int64_t{1} << 20;
constexpr absl::string_view kByteOrderMark = "\xef\xbb\xbf";

// What a file's first bytes say of it.
struct FileShape {
  bool is_array = false;
  int64_t first_offset = 0;  // behind a byte order mark
};

std::string NameOf(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  return slash == std::string::npos ? path : path.substr(slash + 1);
}

absl::Status SystemError(const std::string& path, const char* what) {
  const int error = errno;
  const std::string text = absl::StrCat("data file ", path, ": ", what, ": ", strerror(error));
  if (error == ENOENT || error == ENOTDIR) {
    return absl::NotFoundError(absl::StrCat("data file ", path, " does not exist"));
  }
  if (error == EACCES || error == EPERM) {
    return absl::PermissionDeniedError(
        absl::StrCat("data file ", path, " cannot be read: permission denied for uid ", getuid()));
  }
  return absl::InternalError(text);
}

// Reads exactly `bytes` at `offset`, or fewer at the end of the file; -1 on error (errno).
int64_t ReadAt(int fd, int64_t offset, int64_t bytes, char* out) {
  int64_t done = 0;
  while (done < bytes) {
    const ssize_t got = pread(fd, out + done, static_cast<size_t>(bytes - done), offset + done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return -1;
    if (got == 0) break;
    done += got;
  }
  return done;
}

// A file that cannot be looked at counts as empty: opening it will say why.
int64_t TotalBytes(const std::vector<std::string>& paths) {
  int64_t bytes = 0;
  for (const std::string& path : paths) {
    struct stat info;
    if (stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode)) bytes += info.st_size;
  }
  return bytes;
}

bool IsBlank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

// The first line is a lone brace: one object written over several lines.
bool IsPrettyPrintedObject(absl::string_view head) {
  const size_t end = head.find('\n');
  return end != absl::string_view::npos && absl::StripAsciiWhitespace(head.substr(0, end)) == "{";
}

// `[` comes first. JSON Lines all the same if the first line is a whole array and more follows.
bool FirstLineIsWholeArray(absl::string_view head) {
  const size_t begin = head.find('[');
  const size_t end = head.find('\n', begin);
  if (end == absl::string_view::npos) return false;
  const bool more_follows = std::any_of(head.begin() + static_cast<int64_t>(end), head.end(),
                                        [](char c) { return !IsBlank(c); });
  std::vector<ScannedRecord> ignored;
  ArrayScanner scanner(0, &ignored);
  scanner.Feed(head.substr(begin, end - begin));
  scanner.Finish();
  return scanner.closed() && more_follows;
}

// PREFIX.bin of an indexed corpus, named where its index is wanted.
bool IsCorpusData(const std::string& path) {
  struct stat info;
  return absl::EndsWith(path, ".bin") &&
         stat((path.substr(0, path.size() - 4) + ".idx").c_str(), &info) == 0;
}

absl::StatusOr<FileShape> RecogniseFile(const std::string& path, absl::string_view head) {
  FileShape shape;
  if (IsCorpusData(path)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "data file ", path, " holds the token ids of an indexed corpus; name its .idx file"));
  }
  if (absl::StartsWith(head, "\xff\xfe") || absl::StartsWith(head, "\xfe\xff")) {
    return absl::InvalidArgumentError(
        absl::StrCat("data file ", path, " is UTF-16; odbd reads UTF-8 (try: iconv -f UTF-16)"));
  }
  if (absl::StartsWith(head, "\x1f\x8b")) {
    return absl::InvalidArgumentError(
        absl::StrCat("data file ", path, " is gzip-compressed; decompress it first (gunzip)"));
  }
  if (absl::StartsWith(head, kByteOrderMark)) {
    shape.first_offset = static_cast<int64_t>(kByteOrderMark.size());
    head.remove_prefix(kByteOrderMark.size());
  }
  if (IsPrettyPrintedObject(head)) {
    return absl::InvalidArgumentError(
        absl::StrCat("data file ", path, " is one JSON object over several lines; odbd reads one ",
                     "object a line (JSON Lines) or an array of objects"));
  }
  const auto first = std::find_if_not(head.begin(), head.end(), IsBlank);
  shape.is_array = first != head.end() && *first == '[' && !FirstLineIsWholeArray(head);
  return shape;
}

}  // namespace

struct Dataset::Source {
  ~Source() {
    if (fd >= 0) close(fd);
  }

  std::string path;
  std::string name;
  int fd = -1;
  int64_t open_record = -1;  // offset of the record of an array that is never closed; -1: none
  int64_t bytes = 0;
  int64_t first_record = 0;
  TokenType token_type = TokenType::kNone;
  std::vector<ScannedRecord> records;
  std::unique_ptr<MappedFile> mapped;  // null: not a corpus, or it could not be mapped
};

Dataset::Dataset(const DatasetOptions& options) : options_(options) {}
Dataset::~Dataset() = default;

absl::StatusOr<std::unique_ptr<Dataset>> Dataset::Open(const std::vector<std::string>& paths,
                                                       const DatasetOptions& options) {
  if (paths.empty()) return absl::NotFoundError("no data file is named; give at least one");
  if (options.max_record_bytes < 1 ||
      options.max_record_bytes >= std::numeric_limits<int32_t>::max()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "max_record_bytes must be in [1, 2147483646], got ", options.max_record_bytes));
  }
  std::unique_ptr<Dataset> dataset(new Dataset(options));
  if (options.progress != nullptr) options.progress->bytes_total += TotalBytes(paths);
  for (const std::string& path : paths) RETURN_IF_ERROR(dataset->AddSource(path));
  dataset->manifest_digest_ = dataset->ComputeManifestDigest();
  return dataset;
}

absl::Status Dataset::Scan(Source* source) {
  std::string piece(static_cast<size_t>(kScanBytes), '\0');
  int64_t got = ReadAt(source->fd, 0, kScanBytes, piece.data());
  if (got < 0) return SystemError(source->path, "read");
  const absl::string_view head(piece.data(), static_cast<size_t>(got));
  if (IsCorpusIndex(head)) return ScanIndex(source);
  ASSIGN_OR_RETURN(const FileShape shape, RecogniseFile(source->path, head));
  LineScanner lines(shape.first_offset, &source->records);
  ArrayScanner array(shape.first_offset, &source->records);
  int64_t skip = shape.first_offset;
  for (int64_t offset = 0; got > 0; offset += got) {
    if (offset > 0) {
      got = ReadAt(source->fd, offset, kScanBytes, piece.data());
      if (got < 0) return SystemError(source->path, "read");
    }
    const absl::string_view text(piece.data() + skip, static_cast<size_t>(got - skip));
    skip = 0;
    if (shape.is_array) {
      array.Feed(text);
    } else {
      lines.Feed(text);
    }
    if (options_.progress == nullptr) continue;
    options_.progress->bytes_done += got;
    options_.progress->records = num_records_ + static_cast<int64_t>(source->records.size());
  }
  if (shape.is_array) {
    array.Finish();
    if (!array.closed()) WarnOfArray(source, array.ends_within_record());
  } else {
    lines.Finish();
  }
  return absl::OkStatus();
}

absl::Status Dataset::ScanIndex(Source* source) {
  std::string index(static_cast<size_t>(source->bytes), '\0');
  const int64_t got = ReadAt(source->fd, 0, source->bytes, index.data());
  if (got < 0) return SystemError(source->path, "read");
  index.resize(static_cast<size_t>(got));
  const std::string data_path = CorpusDataPath(source->path);
  if (data_path.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("data file ", source->path,
                     " is the index of a tokenized corpus; its name must end with .idx, so that ",
                     "the .bin file beside it can be found"));
  }
  close(std::exchange(source->fd, -1));
  RETURN_IF_ERROR(OpenFile(data_path, source));
  auto corpus = ParseCorpusIndex(index, source->bytes);
  if (!corpus.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("data file ", source->path, ": the index of ",
                                                   source->name,
                                                   " is wrong: ", corpus.status().message()));
  }
  if (corpus->num_empty > 0) {
    warnings_.push_back(absl::StrCat(source->name, ": ", corpus->num_empty,
                                     " sequences without a token are left out"));
  }
  source->token_type = corpus->type;
  auto mapped = MappedFile::Map(source->fd, static_cast<size_t>(source->bytes));
  if (mapped.ok()) source->mapped = *std::move(mapped);
  source->records = std::move(corpus->records);
  if (options_.progress != nullptr) {
    options_.progress->bytes_done += got;
    options_.progress->records = num_records_ + static_cast<int64_t>(source->records.size());
  }
  return absl::OkStatus();
}

void Dataset::WarnOfArray(Source* source, bool ends_within_record) {
  if (!ends_within_record) {
    warnings_.push_back(absl::StrCat(source->name,
                                     ": the JSON array is not closed or something "
                                     "follows it; the file may be cut"));
    return;
  }
  const ScannedRecord& last = source->records.back();
  source->open_record = last.offset;
  warnings_.push_back(absl::StrCat(source->name, ":", last.line, " (byte ", last.offset,
                                   "): ", Note({0, last.offset, last.bytes, last.line}, *source)));
}

std::string Dataset::Note(const RecordRef& ref) const {
  return Note(ref, *sources_[static_cast<size_t>(ref.source)]);
}

std::string Dataset::Note(const RecordRef& ref, const Source& source) const {
  if (ref.offset != source.open_record) return "";
  return absl::StrCat(
      "a quote or bracket of the record that begins here is never closed; the rest ",
      "of the file, ", source.bytes - ref.offset, " bytes, could not be read as records");
}

// Opens `path` as what the records are read from.
absl::Status Dataset::OpenFile(const std::string& path, Source* source) {
  source->name = NameOf(path);
  // O_NONBLOCK: a pipe must not hold up the open; it is refused below.
  source->fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (source->fd < 0) return SystemError(path, "open");
  // Without it each read of a record may write down when the file was read last. Only the file's
  // owner may ask for that; for everybody else reading costs what it costs.
  fcntl(source->fd, F_SETFL, O_NONBLOCK | O_NOATIME);
  struct stat info;
  if (fstat(source->fd, &info) != 0) return SystemError(path, "stat");
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "data file ", path, " is ", S_ISDIR(info.st_mode) ? "a directory" : "not a regular file",
        "; name a JSON Lines or JSON array file, or the index (.idx) of a tokenized corpus"));
  }
  source->bytes = info.st_size;
  return absl::OkStatus();
}

absl::Status Dataset::AddSource(const std::string& path) {
  auto source = std::make_unique<Source>();
  source->path = path;
  RETURN_IF_ERROR(OpenFile(path, source.get()));
  source->first_record = num_records_;

  RETURN_IF_ERROR(Scan(source.get()));
  if (source->records.empty() && !options_.allow_empty_sources) {
    return absl::InvalidArgumentError(
        absl::StrCat("data file ", path, " is empty: no record in ", source->bytes, " bytes"));
  }
  source->records.shrink_to_fit();
  num_records_ += static_cast<int64_t>(source->records.size());
  sources_.push_back(std::move(source));
  return absl::OkStatus();
}

size_t Dataset::SourceOf(int64_t index) const {
  INVARIANT(index >= 0 && index < num_records_, "record index out of range");
  // The last source that begins at or before the record; an empty source begins where the next
  // one does, so it is never the last.
  const auto after = std::upper_bound(
      sources_.begin(), sources_.end(), index,
      [](int64_t value, const std::unique_ptr<Source>& s) { return value < s->first_record; });
  return static_cast<size_t>(after - sources_.begin()) - 1;
}

const ScannedRecord& Dataset::RecordAt(size_t source, int64_t index) const {
  const Source& s = *sources_[source];
  return s.records[static_cast<size_t>(index - s.first_record)];
}

RecordRef Dataset::ref(int64_t index) const {
  const size_t source = SourceOf(index);
  const ScannedRecord& record = RecordAt(source, index);
  return RecordRef{static_cast<int32_t>(source), record.offset, record.bytes, record.line};
}

void Dataset::Prefetch(int64_t index) const {
  __builtin_prefetch(&RecordAt(SourceOf(index), index));
}

absl::StatusOr<absl::string_view> Dataset::Read(int64_t index, std::string* buffer) const {
  return Read(ref(index), buffer);
}

absl::StatusOr<absl::string_view> Dataset::Read(const RecordRef& ref, std::string* buffer) const {
  const Source& source = *sources_[static_cast<size_t>(ref.source)];
  if (ref.bytes > options_.max_record_bytes) {
    return absl::ResourceExhaustedError(absl::StrCat(
        ref.bytes, " bytes, allowed are ", options_.max_record_bytes, " (max_record_bytes)"));
  }
  const size_t bytes = static_cast<size_t>(ref.bytes);
  if (buffer->size() < bytes) buffer->resize(bytes);
  const int64_t got = ReadAt(source.fd, ref.offset, ref.bytes, buffer->data());
  if (got < 0) return absl::DataLossError(absl::StrCat("read failed: ", strerror(errno)));
  if (got < ref.bytes) {
    return absl::DataLossError(
        absl::StrCat("the file ended ", ref.bytes - got, " bytes early; was it changed?"));
  }
  return absl::string_view(buffer->data(), bytes);
}

std::optional<absl::string_view> Dataset::View(const RecordRef& ref) const {
  const MappedFile* const mapped = sources_[static_cast<size_t>(ref.source)]->mapped.get();
  const bool is_wanted = mapped != nullptr && !mapped->is_damaged();
  if (!is_wanted || ref.bytes > options_.max_record_bytes) return std::nullopt;
  return absl::string_view(mapped->data() + ref.offset, static_cast<size_t>(ref.bytes));
}

bool Dataset::IsStillThere(const RecordRef& ref) const {
  const Source& source = *sources_[static_cast<size_t>(ref.source)];
  const absl::string_view viewed(source.mapped->data() + ref.offset,
                                 static_cast<size_t>(ref.bytes));
  // Where the file was cut, zeros follow. To ask for its size costs as much as reading the record,
  // so it is asked only if the record ends with a token that is zero.
  const auto token_bytes = static_cast<size_t>(TokenBytes(source.token_type));
  const absl::string_view last_token = viewed.substr(viewed.size() - token_bytes);
  const bool is_zero = last_token.find_first_not_of('\0') == absl::string_view::npos;
  if (source.mapped->is_damaged()) {  // perhaps by this look at it
    // Pages that could not be read stay zeros: what is the same now was the same before.
    std::string buffer;
    const auto read = Read(ref, &buffer);
    return read.ok() && *read == viewed;
  }
  if (!is_zero) return true;
  struct stat info;
  return fstat(source.fd, &info) == 0 && info.st_size >= ref.offset + ref.bytes;
}

RecordRange Dataset::records(int32_t source) const {
  const Source& s = *sources_[static_cast<size_t>(source)];
  return RecordRange{s.first_record, static_cast<int64_t>(s.records.size())};
}

const std::string& Dataset::path(int32_t source) const {
  return sources_[static_cast<size_t>(source)]->path;
}

const std::string& Dataset::name(int32_t source) const {
  return sources_[static_cast<size_t>(source)]->name;
}

int64_t Dataset::bytes(int32_t source) const {
  return sources_[static_cast<size_t>(source)]->bytes;
}

TokenType Dataset::token_type(int32_t source) const {
  return sources_[static_cast<size_t>(source)]->token_type;
}

int64_t Dataset::Find(const SampleId& id) const {
  if (id.source < 0 || id.source >= num_sources()) return -1;
  const Source& source = *sources_[static_cast<size_t>(id.source)];
  const auto found = std::lower_bound(
      source.records.begin(), source.records.end(), id.key,
      [](const ScannedRecord& record, int64_t offset) { return record.offset < offset; });
  if (found == source.records.end() || found->offset != id.key) return -1;
  return source.first_record + (found - source.records.begin());
}

uint64_t Dataset::ComputeManifestDigest() const {
  std::string manifest;
  for (const auto& source : sources_) {
    // A name holds no \0, so the parts cannot be confused.
    absl::StrAppend(&manifest, source->name, absl::string_view("\0", 1), source->bytes, " ",
                    source->records.size(), "\n");
  }
  return Hash64(manifest);
}

}  // namespace odb
