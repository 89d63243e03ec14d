#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace odb {

// The framing of the descriptor hand-over: how a client on the daemon's own machine gets the memory
// of its session. It shares the socket with gRPC; the first eight bytes of a connection tell them
// apart.
//
//   client → daemon    48 bytes   magic "ODBHAND1" · session id u64 · one-time token [32]
//   daemon → client   280 bytes   magic · code u32 · message bytes u32 · memory bytes u64 ·
//                                 message [256]
//
// Integers are little endian. The session's memfd travels (SCM_RIGHTS) with the first byte of the
// answer if its code is 0; otherwise none does. One exchange per connection, then both close.
//
// The step ring begins the same way, and replaces the Steps stream for a client that can use it:
//
//   client → daemon    24 bytes   magic "ODBSTEP1" · session id u64 · last step id u64
//   daemon → client   280 bytes   as above, with the memory of the rings (base/os/ring_channel.h)
//
// The session id and the last step received are those of the Attach event; whoever may use the
// socket may attach, by either way. This connection stays open and becomes the channel's socket.
//
// All functions are pure. Errors: InvalidArgument for bytes that are no such frame, saying why.

inline constexpr size_t kHandoverMagicBytes = 8;
inline constexpr size_t kHandoverTokenBytes = 32;
inline constexpr size_t kHandoverMessageBytesMax = 256;
inline constexpr size_t kHandoverRequestBytes = kHandoverMagicBytes + 8 + kHandoverTokenBytes;
inline constexpr size_t kStepRingRequestBytes = kHandoverMagicBytes + 8 + 8;
inline constexpr size_t kHandoverResponseBytes =
    kHandoverMagicBytes + 4 + 4 + 8 + kHandoverMessageBytesMax;

using HandoverToken = std::array<char, kHandoverTokenBytes>;

struct HandoverRequest {
  uint64_t session_id = 0;
  HandoverToken token = {};
};

struct HandoverResponse {
  absl::Status status;        // OK: the descriptor is with this message
  uint64_t memory_bytes = 0;  // what it holds; 0 unless OK
};

struct StepRingRequest {
  uint64_t session_id = 0;
  int64_t last_step_id = 0;  // 0 = none
};

std::string EncodeHandoverRequest(const HandoverRequest& request);
absl::StatusOr<HandoverRequest> DecodeHandoverRequest(absl::string_view bytes);

std::string EncodeStepRingRequest(const StepRingRequest& request);
absl::StatusOr<StepRingRequest> DecodeStepRingRequest(absl::string_view bytes);

// A message longer than the frame holds is cut between two characters (UTF-8).
std::string EncodeHandoverResponse(const HandoverResponse& response);
absl::StatusOr<HandoverResponse> DecodeHandoverResponse(absl::string_view bytes);

// Token from the bytes that gRPC carried. Errors: InvalidArgument unless they are 32.
absl::StatusOr<HandoverToken> MakeHandoverToken(absl::string_view bytes);

// Equality in a time that does not depend on where the two differ.
bool TokensEqual(const HandoverToken& a, const HandoverToken& b);

// What a connection is, by its first kHandoverMagicBytes bytes (fewer are neither).
bool IsHandoverPreface(absl::string_view first_bytes);
bool IsStepRingPreface(absl::string_view first_bytes);
bool IsGrpcPreface(absl::string_view first_bytes);  // the start of HTTP/2's "PRI * HTTP/2.0 …"

}  // namespace odb
