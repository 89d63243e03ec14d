#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/ids.h"

namespace odb {

// Why a sample could not be used. The names are part of what odbd promises (journals, metrics and
// `odbctl quarantine list` show them): they are never renamed, and numbers are never used again.
// README.md of this folder explains each.
enum class QuarantineReason : uint8_t {
  // The record's bytes.
  kUnreadable = 0,
  kRecordTooLong = 1,
  kInvalidUtf8 = 2,
  kNulByte = 3,
  kInvalidJson = 4,
  kLoneSurrogate = 5,
  kTrailingData = 6,
  kNotAnObject = 7,
  // The conversation in it.
  kUnknownFormat = 8,
  kEmptyConversation = 9,
  kUnknownRole = 10,
  kBadContent = 11,
  kBadTools = 12,
  kNoAssistant = 13,
  kUnsupportedMedia = 14,
  // What became of it.
  kOverLength = 15,
  kNoLossTokens = 16,
  kEmptySample = 17,
  // Worker processes.
  kCrashedWorker = 18,
  kTimedOut = 19,
  kTransformError = 20,
  // The tensors of a record that was tokenized before.
  kBadTensor = 21,
};
constexpr int kNumQuarantineReasons = 22;

// "invalid_utf8", ...: stable, snake_case.
absl::string_view QuarantineReasonName(QuarantineReason reason);

// One sentence for people.
absl::string_view QuarantineReasonText(QuarantineReason reason);

// The inverse of QuarantineReasonName; nullopt if there is no such reason.
std::optional<QuarantineReason> ParseQuarantineReason(absl::string_view name);

// All reasons, in numeric order.
absl::Span<const QuarantineReason> AllQuarantineReasons();

// One sample that could not be used.
struct QuarantineEntry {
  SampleId id;
  std::string file;  // name without the folder; filled in by whoever knows the dataset
  int64_t line = 0;  // from 1
  int64_t byte = 0;  // of the record in the file
  QuarantineReason reason = QuarantineReason::kTransformError;
  std::string detail;  // what was found, where and what would be right; no line breaks

  // "data.jsonl:417 (byte 88,112) invalid_utf8: byte 0xff at 12 of the record"
  std::string ToString() const;
};

// 88112 -> "88,112".
std::string WithThousandsSeparators(int64_t value);

}  // namespace odb
