#include "proto/wire/handover.h"

#include <catch2/catch.hpp>
#include <string>

#include "tests/support/status_matchers.h"

namespace odb {
namespace {

HandoverToken TokenOf(char fill) {
  HandoverToken token;
  token.fill(fill);
  return token;
}

TEST_CASE("handover: a request survives the wire", "[wire]") {
  const HandoverRequest request = {0x0123456789abcdefULL, TokenOf('t')};

  const std::string bytes = EncodeHandoverRequest(request);
  const HandoverRequest decoded = DecodeHandoverRequest(bytes).value();

  // Fixed layout: magic, little-endian id, token.
  CHECK(bytes == "ODBHAND1\xef\xcd\xab\x89\x67\x45\x23\x01" + std::string(32, 't'));
  CHECK(bytes.size() == kHandoverRequestBytes);
  CHECK(decoded.session_id == request.session_id);
  CHECK(decoded.token == request.token);
}

TEST_CASE("handover: a request for a step ring survives the wire", "[wire]") {
  const std::string bytes = EncodeStepRingRequest({0x0123456789abcdefULL, 258});
  const StepRingRequest decoded = DecodeStepRingRequest(bytes).value();

  CHECK(bytes == std::string("ODBSTEP1\xef\xcd\xab\x89\x67\x45\x23\x01\x02\x01\0\0\0\0\0\0", 24));
  CHECK(decoded.session_id == 0x0123456789abcdefULL);
  CHECK(decoded.last_step_id == 258);
  CHECK(IsStepRingPreface(bytes));
  CHECK(!IsHandoverPreface(bytes));
  CHECK(!IsStepRingPreface("ODBHAND1"));

  CHECK_THAT(DecodeStepRingRequest(bytes + "x").status(), HasMessage("has 24 bytes"));
  CHECK_THAT(DecodeStepRingRequest("ODBHAND1" + bytes.substr(8)).status(),
             HasMessage("starts with \"ODBSTEP1\""));
  std::string negative = bytes;
  negative[23] = '\x80';
  CHECK_THAT(DecodeStepRingRequest(negative).status(), HasMessage("no step has the number"));
}

TEST_CASE("handover: a response survives the wire, good or bad", "[wire]") {
  const std::string good = EncodeHandoverResponse({absl::OkStatus(), uint64_t{3} << 30});
  const std::string bad = EncodeHandoverResponse({absl::NotFoundError("no session 7"), 99});

  CHECK(good.size() == kHandoverResponseBytes);
  CHECK(bad.size() == kHandoverResponseBytes);
  CHECK(DecodeHandoverResponse(good)->status.ok());
  CHECK(DecodeHandoverResponse(good)->memory_bytes == uint64_t{3} << 30);
  CHECK(DecodeHandoverResponse(bad)->status == absl::NotFoundError("no session 7"));
  CHECK(DecodeHandoverResponse(bad)->memory_bytes == 0);
}

TEST_CASE("handover: a long message is cut between two characters", "[wire]") {
  // 255 bytes and a two-byte character: byte 256 would be its first half.
  const std::string text = std::string(255, 'x') + "é and more";

  const std::string bytes = EncodeHandoverResponse({absl::InternalError(text), 0});

  CHECK(DecodeHandoverResponse(bytes)->status.message() == std::string(255, 'x'));
}

TEST_CASE("handover: frames of another size or magic are refused", "[wire]") {
  std::string request = EncodeHandoverRequest({1, TokenOf('t')});
  std::string response = EncodeHandoverResponse({absl::OkStatus(), 4096});

  CHECK_THAT(DecodeHandoverRequest(request.substr(1)).status(),
             HasMessage("a hand-over request has 48 bytes, got 47"));
  CHECK_THAT(DecodeHandoverResponse(response + "x").status(),
             HasMessage("a hand-over response has 280 bytes, got 281"));
  request[7] = '2';
  response[0] = 'P';
  CHECK_THAT(DecodeHandoverRequest(request).status(), HasMessage("starts with \"ODBHAND1\""));
  CHECK_THAT(DecodeHandoverResponse(response).status(),
             HasCode(absl::StatusCode::kInvalidArgument));
}

TEST_CASE("handover: a response with impossible numbers is refused", "[wire]") {
  const std::string good = EncodeHandoverResponse({absl::OkStatus(), 4096});
  const auto with = [&good](size_t at, char value) {
    std::string bytes = good;
    bytes[at] = value;
    return DecodeHandoverResponse(bytes).status();
  };

  CHECK_THAT(with(/*code*/ 8, 17), HasMessage("code is 0 to 16, got 17"));
  CHECK_THAT(with(/*message size, 256s*/ 13, 2), HasMessage("at most 256 bytes, got 512"));
  CHECK_THAT(with(/*arena size, 256s*/ 17, 0), HasMessage("names the size of the memory"));
}

TEST_CASE("handover: tokens are equal only if every byte is", "[wire]") {
  const HandoverToken token = MakeHandoverToken(std::string(32, 'a')).value();
  HandoverToken other = token;
  other[31] = 'b';

  CHECK(TokensEqual(token, TokenOf('a')));
  CHECK_FALSE(TokensEqual(token, other));
  CHECK_THAT(MakeHandoverToken("short").status(), HasMessage("has 32 bytes, got 5"));
}

TEST_CASE("handover: eight bytes tell a hand-over from gRPC", "[wire]") {
  const std::string grpc = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", handover = "ODBHAND1";

  CHECK(IsGrpcPreface(grpc.substr(0, 8)));
  CHECK(IsGrpcPreface(grpc));
  CHECK(IsGrpcPreface(grpc + "frames"));
  CHECK_FALSE(IsGrpcPreface(grpc.substr(0, 7)));
  CHECK_FALSE(IsGrpcPreface("PRI * HXXX"));
  CHECK_FALSE(IsGrpcPreface(handover));
  CHECK_FALSE(IsGrpcPreface(""));
  CHECK(IsHandoverPreface(handover));
  CHECK_FALSE(IsHandoverPreface(handover.substr(0, 7)));
  CHECK_FALSE(IsHandoverPreface(grpc));
  CHECK_FALSE(IsHandoverPreface("GET / HT"));
}

}  // namespace
}  // namespace odb
