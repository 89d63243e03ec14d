#include "proto/wire/handover.h"

#include <algorithm>
#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace odb {
namespace {

constexpr absl::string_view kMagic = "ODBHAND1";
constexpr absl::string_view kStepRingMagic = "ODBSTEP1";
constexpr absl::string_view kHttp2Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
constexpr uint32_t kStatusCodeMax = static_cast<uint32_t>(absl::StatusCode::kUnauthenticated);

void AppendLittleEndian(uint64_t value, size_t bytes, std::string* out) {
  for (size_t i = 0; i < bytes; ++i) out->push_back(static_cast<char>(value >> (8 * i) & 0xff));
}

// Takes an integer off the front.
uint64_t TakeLittleEndian(size_t bytes, absl::string_view* in) {
  uint64_t value = 0;
  for (size_t i = 0; i < bytes; ++i) {
    value |= static_cast<uint64_t>(static_cast<unsigned char>((*in)[i])) << (8 * i);
  }
  in->remove_prefix(bytes);
  return value;
}

absl::Status CheckFrame(absl::string_view bytes, size_t size, absl::string_view what) {
  if (bytes.size() != size) {
    return absl::InvalidArgumentError(
        absl::StrCat("a hand-over ", what, " has ", size, " bytes, got ", bytes.size()));
  }
  if (!IsHandoverPreface(bytes)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a hand-over ", what, " starts with \"", kMagic, "\""));
  }
  return absl::OkStatus();
}

// The longest prefix of at most `size` bytes that does not end inside a UTF-8 character.
absl::string_view CutToCharacters(absl::string_view text, size_t size) {
  if (text.size() <= size) return text;
  const auto continues = [&](size_t at) {
    return (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80;
  };
  while (size > 0 && continues(size)) --size;
  return text.substr(0, size);
}

}  // namespace

std::string EncodeHandoverRequest(const HandoverRequest& request) {
  std::string bytes(kMagic);
  AppendLittleEndian(request.session_id, 8, &bytes);
  bytes.append(request.token.data(), request.token.size());
  return bytes;
}

absl::StatusOr<HandoverRequest> DecodeHandoverRequest(absl::string_view bytes) {
  RETURN_IF_ERROR(CheckFrame(bytes, kHandoverRequestBytes, "request"));
  bytes.remove_prefix(kHandoverMagicBytes);
  HandoverRequest request;
  request.session_id = TakeLittleEndian(8, &bytes);
  std::copy(bytes.begin(), bytes.end(), request.token.begin());
  return request;
}

std::string EncodeStepRingRequest(const StepRingRequest& request) {
  std::string bytes(kStepRingMagic);
  AppendLittleEndian(request.session_id, 8, &bytes);
  AppendLittleEndian(static_cast<uint64_t>(request.last_step_id), 8, &bytes);
  return bytes;
}

absl::StatusOr<StepRingRequest> DecodeStepRingRequest(absl::string_view bytes) {
  if (bytes.size() != kStepRingRequestBytes || !IsStepRingPreface(bytes)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a step ring's request has ", kStepRingRequestBytes,
                     " bytes and starts with \"", kStepRingMagic, "\""));
  }
  bytes.remove_prefix(kHandoverMagicBytes);
  StepRingRequest request;
  request.session_id = TakeLittleEndian(8, &bytes);
  const uint64_t last_step_id = TakeLittleEndian(8, &bytes);
  if (last_step_id > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return absl::InvalidArgumentError(absl::StrCat("no step has the number ", last_step_id));
  }
  request.last_step_id = static_cast<int64_t>(last_step_id);
  return request;
}

std::string EncodeHandoverResponse(const HandoverResponse& response) {
  const absl::string_view message =
      CutToCharacters(response.status.message(), kHandoverMessageBytesMax);
  std::string bytes(kMagic);
  AppendLittleEndian(static_cast<uint32_t>(response.status.code()), 4, &bytes);
  AppendLittleEndian(message.size(), 4, &bytes);
  AppendLittleEndian(response.status.ok() ? response.memory_bytes : 0, 8, &bytes);
  bytes.append(message.data(), message.size());
  bytes.resize(kHandoverResponseBytes, '\0');
  return bytes;
}

absl::StatusOr<HandoverResponse> DecodeHandoverResponse(absl::string_view bytes) {
  RETURN_IF_ERROR(CheckFrame(bytes, kHandoverResponseBytes, "response"));
  bytes.remove_prefix(kHandoverMagicBytes);
  const uint64_t code = TakeLittleEndian(4, &bytes);
  const uint64_t message_bytes = TakeLittleEndian(4, &bytes);
  const uint64_t memory_bytes = TakeLittleEndian(8, &bytes);
  if (code > kStatusCodeMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("a hand-over code is 0 to ", kStatusCodeMax, ", got ", code));
  }
  if (message_bytes > kHandoverMessageBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("a hand-over message has at most ",
                                                   kHandoverMessageBytesMax, " bytes, got ",
                                                   message_bytes));
  }
  if (code == 0 && memory_bytes == 0) {
    return absl::InvalidArgumentError("a hand-over that succeeds names the size of the memory");
  }
  HandoverResponse response;
  response.status =
      absl::Status(static_cast<absl::StatusCode>(code), bytes.substr(0, message_bytes));
  response.memory_bytes = memory_bytes;
  return response;
}

absl::StatusOr<HandoverToken> MakeHandoverToken(absl::string_view bytes) {
  HandoverToken token;
  if (bytes.size() != token.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a hand-over token has ", token.size(), " bytes, got ", bytes.size()));
  }
  std::copy(bytes.begin(), bytes.end(), token.begin());
  return token;
}

bool TokensEqual(const HandoverToken& a, const HandoverToken& b) {
  unsigned char difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference |= static_cast<unsigned char>(a[i] ^ b[i]);
  return difference == 0;
}

bool IsHandoverPreface(absl::string_view first_bytes) {
  return absl::StartsWith(first_bytes, kMagic);
}

bool IsStepRingPreface(absl::string_view first_bytes) {
  return absl::StartsWith(first_bytes, kStepRingMagic);
}

bool IsGrpcPreface(absl::string_view first_bytes) {
  return first_bytes.size() >= kHandoverMagicBytes &&
         absl::StartsWith(kHttp2Preface, first_bytes.substr(0, kHttp2Preface.size()));
}

}  // namespace odb
