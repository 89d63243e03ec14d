#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/sources/record_scanner.h"

namespace odb {

// How the token ids of a record are stored, little-endian; kNone: a record is text.
enum class TokenType : uint8_t { kNone, kUint8, kInt8, kInt16, kUint16, kInt32, kInt64 };

constexpr int64_t TokenBytes(TokenType type) {
  switch (type) {
    case TokenType::kNone:
      return 0;
    case TokenType::kUint8:
    case TokenType::kInt8:
      return 1;
    case TokenType::kInt16:
    case TokenType::kUint16:
      return 2;
    case TokenType::kInt32:
      return 4;
    case TokenType::kInt64:
      return 8;
  }
  return 0;
}

// A corpus that was tokenized before, as Megatron-LM's and its descendants' preprocessing writes
// it: PREFIX.bin holds the token ids of all sequences, PREFIX.idx says where each one lies.
struct IndexedCorpus {
  TokenType type = TokenType::kNone;
  // Of the .bin file, in its order; `line` counts the sequences from 1. Empty ones are left out.
  std::vector<ScannedRecord> records;
  int64_t num_empty = 0;
};

// Whether a file that begins so is such an index.
bool IsCorpusIndex(absl::string_view head);

// "a/b.idx" -> "a/b.bin"; empty if the name does not end with .idx.
std::string CorpusDataPath(absl::string_view index_path);

// Parses a whole index. `data_bytes`: the size of the .bin file. Documents, which group sequences,
// and modes are not looked at: one sequence is one sample.
//
// Errors: InvalidArgument, what is wrong with the index in one clause ("it is cut: ...").
absl::StatusOr<IndexedCorpus> ParseCorpusIndex(absl::string_view index, int64_t data_bytes);

}  // namespace odb
