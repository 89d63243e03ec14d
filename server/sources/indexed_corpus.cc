#include "server/sources/indexed_corpus.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace odb {
namespace {

constexpr absl::string_view kMagic("MMIDIDX\0\0", 9);
constexpr uint64_t kVersion = 1;
constexpr size_t kHeaderBytes = 9 + 8 + 1 + 8 + 8;

// The value at `offset`, which may be at any alignment.
template <typename T>
T At(absl::string_view bytes, size_t offset) {
  static_assert(std::is_integral_v<T>);
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

absl::StatusOr<TokenType> TypeOfCode(uint8_t code) {
  switch (code) {
    case 1:
      return TokenType::kUint8;
    case 2:
      return TokenType::kInt8;
    case 3:
      return TokenType::kInt16;
    case 4:
      return TokenType::kInt32;
    case 5:
      return TokenType::kInt64;
    case 8:
      return TokenType::kUint16;
    default:
      return absl::InvalidArgumentError(absl::StrCat(
          "its token type has code ", code, "; known are 1-5 and 8 (8 to 64 bit integers)"));
  }
}

}  // namespace

bool IsCorpusIndex(absl::string_view head) { return absl::StartsWith(head, kMagic); }

std::string CorpusDataPath(absl::string_view index_path) {
  constexpr absl::string_view kEnd = ".idx";
  if (!absl::EndsWith(index_path, kEnd)) return "";
  index_path.remove_suffix(kEnd.size());
  return absl::StrCat(index_path, ".bin");
}

absl::StatusOr<IndexedCorpus> ParseCorpusIndex(absl::string_view index, int64_t data_bytes) {
  if (index.size() < kHeaderBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("it is cut: ", index.size(), " bytes, the head alone takes ", kHeaderBytes));
  }
  const auto version = At<uint64_t>(index, 9);
  if (version != kVersion) {
    return absl::InvalidArgumentError(
        absl::StrCat("it has version ", version, "; known is ", kVersion));
  }
  IndexedCorpus corpus;
  ASSIGN_OR_RETURN(corpus.type, TypeOfCode(At<uint8_t>(index, 17)));
  const auto sequences = At<uint64_t>(index, 18);
  const size_t room = (index.size() - kHeaderBytes) / (sizeof(int32_t) + sizeof(int64_t));
  if (sequences > room) {
    return absl::InvalidArgumentError(absl::StrCat("it is cut: ", index.size(), " bytes hold ",
                                                   room, " sequences, it tells of ", sequences));
  }
  const size_t lengths = kHeaderBytes;
  const size_t pointers = lengths + sequences * sizeof(int32_t);
  int64_t before = 0;  // end of the sequence before
  corpus.records.reserve(sequences);
  for (size_t i = 0; i < sequences; ++i) {
    const int64_t length = At<int32_t>(index, lengths + i * sizeof(int32_t));
    const auto offset = At<int64_t>(index, pointers + i * sizeof(int64_t));
    const int64_t bytes = length * TokenBytes(corpus.type);
    if (length < 0 || offset < before || offset > data_bytes || bytes > data_bytes - offset) {
      return absl::InvalidArgumentError(
          absl::StrCat("its sequence ", i + 1, " of ", length, " tokens at byte ", offset,
                       " lies outside the data (", data_bytes, " bytes) or over the one before"));
    }
    before = offset + bytes;
    if (length == 0) {
      ++corpus.num_empty;
      continue;
    }
    constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
    ScannedRecord record;
    record.offset = offset;
    record.bytes = static_cast<int32_t>(std::min(bytes, kMost));
    record.line = static_cast<int32_t>(std::min(static_cast<int64_t>(i) + 1, kMost));
    corpus.records.push_back(record);
  }
  return corpus;
}

}  // namespace odb
