#include "server/preprocess/quarantine.h"

#include <array>

#include "absl/strings/str_cat.h"

namespace odb {
namespace {

using Reason = QuarantineReason;

struct ReasonInfo {
  Reason reason;
  const char* name;
  const char* text;
};

constexpr ReasonInfo kReasons[kNumQuarantineReasons] = {
    {Reason::kUnreadable, "unreadable", "the record could not be read from its file"},
    {Reason::kRecordTooLong, "record_too_long", "the record is longer than max_record_bytes"},
    {Reason::kInvalidUtf8, "invalid_utf8", "the record is not valid UTF-8"},
    {Reason::kNulByte, "nul_byte", "the record holds a zero byte"},
    {Reason::kInvalidJson, "invalid_json", "the record is not valid JSON"},
    {Reason::kLoneSurrogate, "lone_surrogate",
     "a string holds one half of a surrogate pair, which is no character"},
    {Reason::kTrailingData, "trailing_data", "something follows the JSON value of the record"},
    {Reason::kNotAnObject, "not_an_object", "the record is JSON, but not an object"},
    {Reason::kUnknownFormat, "unknown_format", "the keys are those of no known format"},
    {Reason::kEmptyConversation, "empty_conversation", "the conversation has no turns"},
    {Reason::kUnknownRole, "unknown_role", "a turn has a role that is not known"},
    {Reason::kBadContent, "bad_content", "a turn's content has a shape that is not known"},
    {Reason::kBadTools, "bad_tools", "tools or tool calls have a shape that is not known"},
    {Reason::kNoAssistant, "no_assistant", "no turn is the assistant's: nothing to learn"},
    {Reason::kUnsupportedMedia, "unsupported_media",
     "the record has pictures, video or audio, which this stream does not read"},
    {Reason::kOverLength, "over_length", "the sample has more tokens than max_length"},
    {Reason::kNoLossTokens, "no_loss_tokens", "no token of the sample counts in the loss"},
    {Reason::kEmptySample, "empty_sample", "the sample has no tokens"},
    {Reason::kCrashedWorker, "crashed_worker", "the sample ended two worker processes"},
    {Reason::kTimedOut, "timed_out", "the sample took longer than its time limit"},
    {Reason::kTransformError, "transform_error", "preprocessing failed on the sample"},
    {Reason::kBadTensor, "bad_tensor",
     "a tensor of a tokenized record has another shape or a value out of range"},
};

const ReasonInfo& Info(Reason reason) { return kReasons[static_cast<size_t>(reason)]; }

}  // namespace

absl::string_view QuarantineReasonName(Reason reason) { return Info(reason).name; }

absl::string_view QuarantineReasonText(Reason reason) { return Info(reason).text; }

std::optional<Reason> ParseQuarantineReason(absl::string_view name) {
  for (const ReasonInfo& info : kReasons) {
    if (name == info.name) return info.reason;
  }
  return std::nullopt;
}

absl::Span<const Reason> AllQuarantineReasons() {
  static constexpr auto kAll = [] {
    std::array<Reason, kNumQuarantineReasons> all{};
    for (size_t i = 0; i < all.size(); ++i) all[i] = kReasons[i].reason;
    return all;
  }();
  return kAll;
}

std::string WithThousandsSeparators(int64_t value) {
  std::string digits = absl::StrCat(value);
  const size_t first = value < 0 ? 1 : 0;
  for (size_t at = digits.size(); at > first + 3;) {
    at -= 3;
    digits.insert(at, ",");
  }
  return digits;
}

std::string QuarantineEntry::ToString() const {
  return absl::StrCat(file, ":", line, " (byte ", WithThousandsSeparators(byte), ") ",
                      QuarantineReasonName(reason), detail.empty() ? "" : ": ", detail);
}

}  // namespace odb
