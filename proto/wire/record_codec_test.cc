#include "proto/wire/record_codec.h"

#include <catch2/catch.hpp>
#include <limits>
#include <string>

#include "base/random.h"
#include "tests/support/status_matchers.h"

namespace odb {
namespace {

constexpr int64_t kWindowMax = 4;

Offer ReadyOffer(size_t num_samples) {
  Offer offer;
  offer.header.rank = Rank(3);
  offer.header.epoch = Epoch(2);
  offer.header.iterator = 5;
  offer.header.round = RoundId(812);
  offer.header.generation = Generation(7);
  offer.header.state = OfferState::kReady;
  offer.header.waiting = true;
  offer.header.position = 41;
  offer.header.dropped = 6;
  offer.header.unread = 60;
  offer.header.modality_mask = 3;
  offer.header.config_digest = 0xffeeddccbbaa9988;
  offer.header.plan_digest = 0x1122334455667788;
  for (size_t i = 0; i < num_samples; ++i) {
    const auto n = static_cast<int32_t>(i);
    offer.window.push_back(
        SampleShape{100 + n, 50 + n, n, 2 * n, 0x8000000000000000ULL + i, n % 2 == 1});
  }
  return offer;
}

void CheckSame(const Offer& a, const Offer& b) {
  CHECK(a.header.wire_version == b.header.wire_version);
  CHECK(a.header.rank == b.header.rank);
  CHECK(a.header.epoch == b.header.epoch);
  CHECK(a.header.iterator == b.header.iterator);
  CHECK(a.header.round == b.header.round);
  CHECK(a.header.generation == b.header.generation);
  CHECK(a.header.state == b.header.state);
  CHECK(a.header.not_ready_reason == b.header.not_ready_reason);
  CHECK(a.header.closing_reason == b.header.closing_reason);
  CHECK(a.header.waiting == b.header.waiting);
  CHECK(a.header.position == b.header.position);
  CHECK(a.header.dropped == b.header.dropped);
  CHECK(a.header.unread == b.header.unread);
  CHECK(a.header.modality_mask == b.header.modality_mask);
  CHECK(a.header.config_digest == b.header.config_digest);
  CHECK(a.header.plan_digest == b.header.plan_digest);
  CHECK(a.window == b.window);
}

TEST_CASE("RecordCodec: every offer comes back as it was, in one size", "[wire]") {
  const RecordCodec codec(kWindowMax);
  Offer offer = ReadyOffer(static_cast<size_t>(GENERATE(1, 2, 4)));
  SECTION("ready") {}
  SECTION("dry") {
    offer.window.clear();
    offer.header.state = OfferState::kDry;
  }
  SECTION("not ready, with each reason") {
    offer.window.clear();
    offer.header.state = OfferState::kNotReady;
    offer.header.not_ready_reason = static_cast<NotReadyReason>(GENERATE(range(0, 6)));
  }
  SECTION("closing, with each reason") {
    offer.window.clear();
    offer.header.state = OfferState::kClosing;
    offer.header.closing_reason = static_cast<ClosingReason>(GENERATE(range(1, 6)));
  }
  SECTION("extreme values") {
    offer.header.epoch = Epoch(std::numeric_limits<int64_t>::min());
    offer.header.position = std::numeric_limits<int64_t>::max();
    offer.header.modality_mask = std::numeric_limits<uint32_t>::max();
    offer.window[0].length = std::numeric_limits<int32_t>::max();
    offer.window[0].id_hash = std::numeric_limits<uint64_t>::max();
  }

  const std::string bytes = codec.EncodeOffer(offer);
  // 104 + 4 x 24
  CHECK(bytes.size() == 200);
  CHECK(bytes.size() == OfferRecordBytes(kWindowMax));
  CHECK(bytes.size() == codec.sizes().offer);

  const absl::StatusOr<Offer> decoded = codec.DecodeOffer(bytes);
  REQUIRE(decoded.ok());
  CheckSame(*decoded, offer);
  Offer head_only = offer;
  head_only.window.clear();
  const absl::StatusOr<OfferHeader> head = codec.DecodeOfferHead(bytes);
  REQUIRE(head.ok());
  CheckSame(Offer{*head, {}}, head_only);
}

TEST_CASE("RecordCodec: bytes are little endian at the documented offsets", "[wire]") {
  const std::string bytes = RecordCodec(kWindowMax).EncodeOffer(ReadyOffer(1));
  CHECK(bytes.substr(0, 8) == std::string("\x01\0\0\0\x01\x01\0\0", 8));
  CHECK(bytes.substr(40, 8) == std::string("\x2c\x03\0\0\0\0\0\0", 8));  // round 812 = 0x32c
  CHECK(bytes.substr(80, 8) == "\x88\x77\x66\x55\x44\x33\x22\x11");
  CHECK(bytes.substr(88, 8) == std::string("\x01\0\0\0\x04\0\0\0", 8));
  CHECK(bytes.substr(96, 8) == std::string("\x3c\0\0\0\0\0\0\0", 8));
  CHECK(bytes.substr(104, 4) == std::string("\x64\0\0\0", 4));
  CHECK(bytes.substr(128) == std::string(72, '\0'));  // three samples of room
}

TEST_CASE("RecordCodec: a window without room is still a record", "[wire]") {
  const RecordCodec codec(0);
  Offer offer = ReadyOffer(0);
  offer.header.state = OfferState::kDry;
  CHECK(codec.EncodeOffer(offer).size() == 104);
  CHECK(codec.DecodeOffer(codec.EncodeOffer(offer)).ok());
}

TEST_CASE("RecordCodec: resync and confirm records come back as they were", "[wire]") {
  const RecordCodec codec(kWindowMax);
  ResyncRecord resync;
  resync.rank = Rank(1);
  resync.generation = Generation(3);
  resync.last_completed_round = RoundId(811);
  resync.plan_digest = 0xfedcba9876543210;
  resync.has_stored_offer = GENERATE(true, false);
  resync.has_planned_offer = GENERATE(true, false);
  const std::string resync_bytes = codec.EncodeResync(resync);
  CHECK(resync_bytes.size() == codec.sizes().resync);
  const absl::StatusOr<ResyncRecord> resynced = codec.DecodeResync(resync_bytes);
  REQUIRE(resynced.ok());
  CHECK(resynced->rank == resync.rank);
  CHECK(resynced->generation == resync.generation);
  CHECK(resynced->last_completed_round == resync.last_completed_round);
  CHECK(resynced->plan_digest == resync.plan_digest);
  CHECK(resynced->has_stored_offer == resync.has_stored_offer);
  CHECK(resynced->has_planned_offer == resync.has_planned_offer);

  const ConfirmRecord confirm{Rank(2), RoundId(812), Generation(3), 0xfedcba9876543210};
  const std::string confirm_bytes = codec.EncodeConfirm(confirm);
  CHECK(confirm_bytes.size() == codec.sizes().confirm);
  const absl::StatusOr<ConfirmRecord> confirmed = codec.DecodeConfirm(confirm_bytes);
  REQUIRE(confirmed.ok());
  CHECK(confirmed->rank == confirm.rank);
  CHECK(confirmed->round == confirm.round);
  CHECK(confirmed->generation == confirm.generation);
  CHECK(confirmed->plan_digest == confirm.plan_digest);
}

struct Damage {
  size_t offset;
  char value;
  const char* message;
};

TEST_CASE("RecordCodec: a damaged offer is refused in one sentence", "[wire]") {
  const RecordCodec codec(kWindowMax);
  std::string bytes = codec.EncodeOffer(ReadyOffer(2));
  const Damage damage = GENERATE(
      Damage{0, 2, "the offer record is of wire version 2, this program speaks 1"},
      Damage{4, 3, "the offer record says kind 3, not 1"},
      Damage{5, 4, "state must be in 0 .. 3, got 4"},
      Damage{5, 2, "an offer has samples if and only if it is READY; state 2 came with 2 samples"},
      Damage{6, 6, "not_ready_reason must be in 0 .. 5, got 6"},
      Damage{7, 6, "closing_reason must be in 0 .. 5, got 6"},
      Damage{7, 1, "an offer has a closing_reason if and only if it is CLOSING"},
      Damage{8, 2, "waiting must be in 0 .. 1, got 2"},
      Damage{23, '\x80', "rank must be >= 0, got -9223372036854775805"},
      Damage{39, '\x80', "iterator must be >= 0"}, Damage{47, '\x80', "round must be >= 0"},
      Damage{55, '\x80', "generation must be >= 0"}, Damage{63, '\x80', "position must be >= 0"},
      Damage{71, '\x80', "dropped must be >= 0"}, Damage{88, 0, "state 1 came with 0 samples"},
      Damage{88, 5, "the number of samples must be in 0 .. 4, got 5"},
      Damage{92, 5, "window_max must be in 4 .. 4, got 5"},
      Damage{107, '\x80', "length of a sample must be >= 1, got -2147483548"},
      Damage{111, '\x80', "loss_tokens of a sample must be >= 0"},
      Damage{115, '\x80', "vision_load of a sample must be >= 0"},
      Damage{103, '\x80', "unread must be >= 0"},
      Damage{199, 9, "byte 199 of the record is padding and must be 0, got 9"});

  bytes[damage.offset] = damage.value;

  const absl::Status status = codec.DecodeOffer(bytes).status();
  CHECK_THAT(status, HasCode(absl::StatusCode::kInvalidArgument));
  CHECK_THAT(status, HasMessage(damage.message));
}

TEST_CASE("RecordCodec: damaged resync and confirm records are refused", "[wire]") {
  const RecordCodec codec(kWindowMax);
  const Damage damage =
      GENERATE(Damage{0, 0, "wire version 0"}, Damage{4, 1, "says kind 1"}, Damage{5, 2, ""},
               Damage{6, 7, ""}, Damage{7, 1, "padding"}, Damage{15, '\x80', "rank must be >= 0"},
               Damage{23, '\x80', "generation must be >= 0"}, Damage{31, '\x80', "round must be"});
  std::string resync = codec.EncodeResync(ResyncRecord());
  std::string confirm = codec.EncodeConfirm(ConfirmRecord());
  REQUIRE(codec.DecodeResync(resync).ok());
  REQUIRE(codec.DecodeConfirm(confirm).ok());

  resync[damage.offset] = damage.value;
  confirm[damage.offset] = damage.value;

  CHECK_THAT(codec.DecodeResync(resync).status(), HasCode(absl::StatusCode::kInvalidArgument));
  CHECK_THAT(codec.DecodeResync(resync).status(), HasMessage(damage.message));
  CHECK_THAT(codec.DecodeConfirm(confirm).status(), HasCode(absl::StatusCode::kInvalidArgument));
  CHECK_THAT(codec.DecodeConfirm(confirm).status(), HasMessage(damage.message));
}

TEST_CASE("RecordCodec: a record of another size is refused with both sizes", "[wire]") {
  const RecordCodec codec(kWindowMax);
  const std::string bytes = codec.EncodeOffer(ReadyOffer(1));
  CHECK_THAT(codec.DecodeOffer(bytes.substr(1)).status(),
             HasMessage("the offer record has 199 bytes, not 200"));
  CHECK_THAT(codec.DecodeOffer("").status(), HasMessage("has 0 bytes"));
  CHECK_THAT(codec.DecodeOffer(bytes + "x").status(), HasMessage("has 201 bytes"));
  CHECK_THAT(codec.DecodeResync(bytes).status(),
             HasMessage("the resync record has 200 bytes, not 40"));
  CHECK_THAT(codec.DecodeConfirm("x").status(),
             HasMessage("the confirm record has 1 bytes, not 40"));
}

// Random bytes, and random changes of good records: whatever is accepted is a record, bit by bit.
TEST_CASE("RecordCodec: what it accepts encodes to the same bytes again", "[wire]") {
  const RecordCodec codec(kWindowMax);
  Random random(4711);
  int accepted = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string bytes = codec.EncodeOffer(ReadyOffer(1 + random.Below(4)));
    for (uint64_t changes = 1 + random.Below(3); changes > 0; --changes) {
      bytes[random.Below(bytes.size())] = static_cast<char>(random.Below(256));
    }
    if (random.Below(10) == 0) bytes.resize(random.Below(200));
    const absl::StatusOr<Offer> offer = codec.DecodeOffer(bytes);
    accepted += offer.ok();
    if (offer.ok()) REQUIRE(codec.EncodeOffer(*offer) == bytes);

    std::string small = codec.EncodeResync(ResyncRecord());
    small[random.Below(small.size())] = static_cast<char>(random.Below(256));
    const absl::StatusOr<ResyncRecord> resync = codec.DecodeResync(small);
    if (resync.ok()) REQUIRE(codec.EncodeResync(*resync) == small);
    small[4] = 3;
    const absl::StatusOr<ConfirmRecord> confirm = codec.DecodeConfirm(small);
    if (confirm.ok()) REQUIRE(codec.EncodeConfirm(*confirm) == small);
  }
  // Most bytes are values of which any is good.
  CHECK(accepted > 1000);
  CHECK(accepted < 19000);
}

}  // namespace
}  // namespace odb
