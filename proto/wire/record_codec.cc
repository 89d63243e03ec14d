#include "proto/wire/record_codec.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace odb {
namespace {

constexpr size_t kOfferHeadBytes = 104;
constexpr size_t kSampleBytes = 24;
constexpr uint32_t kAloneBit = uint32_t{1} << 31;  // of waited_rounds
constexpr size_t kResyncBytes = 40;
constexpr size_t kConfirmBytes = 40;
constexpr uint8_t kOfferKind = 1;

// Whoever adds a field gives it bytes here, in EncodeOffer and DecodeOffer, and a line in the test.
static_assert(sizeof(OfferHeader) == 104, "OfferHeader has changed, and the wire has not");
static_assert(sizeof(SampleShape) == 32, "SampleShape has changed, and the wire has not");

constexpr uint8_t kResyncKind = 2;
constexpr uint8_t kConfirmKind = 3;

// Every round encodes and decodes all samples on all ranks, so a value is one move.
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the wire is little endian");

template <typename T>
void Put(char* bytes, size_t offset, T value) {
  std::memcpy(bytes + offset, &value, sizeof value);
}
template <typename T>
void Put(std::string* bytes, size_t offset, T value) {
  Put(&(*bytes)[0], offset, value);
}

template <typename T>
T Get(const char* bytes, size_t offset) {
  T value;
  std::memcpy(&value, bytes + offset, sizeof value);
  return value;
}
template <typename T>
T Get(absl::string_view bytes, size_t offset) {
  return Get<T>(bytes.data(), offset);
}

absl::string_view KindName(uint8_t kind) {
  return kind == kOfferKind ? "offer" : kind == kResyncKind ? "resync" : "confirm";
}

absl::Status CheckFrame(absl::string_view bytes, size_t size, uint8_t kind) {
  if (bytes.size() != size) {
    return absl::InvalidArgumentError(
        absl::StrCat("the ", KindName(kind), " record has ", bytes.size(), " bytes, not ", size));
  }
  const auto version = Get<uint32_t>(bytes, 0);
  if (version != kWireVersion) {
    return absl::InvalidArgumentError(absl::StrCat("the ", KindName(kind),
                                                   " record is of wire version ", version,
                                                   ", this program speaks ", kWireVersion));
  }
  const auto got = Get<uint8_t>(bytes, 4);
  if (got != kind) {
    return absl::InvalidArgumentError(
        absl::StrCat("the ", KindName(kind), " record says kind ", got, ", not ", kind));
  }
  return absl::OkStatus();
}

absl::Status CheckRange(absl::string_view what, int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(what, " must be in ", least, " .. ", most, ", got ", value));
}

absl::Status CheckNotNegative(absl::string_view what, int64_t value) {
  if (value >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(what, " must be >= 0, got ", value));
}

absl::Status CheckZero(absl::string_view bytes, size_t begin, size_t end) {
  // All equal to the one before, and the first is zero.
  const char* const first = bytes.data() + begin;
  if (begin == end || (*first == 0 && std::memcmp(first, first + 1, end - begin - 1) == 0)) {
    return absl::OkStatus();
  }
  for (size_t i = begin; i < end; ++i) {
    if (bytes[i] == 0) continue;
    return absl::InvalidArgumentError(absl::StrCat("byte ", i,
                                                   " of the record is padding and must "
                                                   "be 0, got ",
                                                   Get<uint8_t>(bytes, i)));
  }
  return absl::OkStatus();
}

absl::Status CheckHead(const OfferHeader& head, size_t num_samples) {
  RETURN_IF_ERROR(CheckNotNegative("rank", head.rank.value()));
  RETURN_IF_ERROR(CheckNotNegative("iterator", head.iterator));
  RETURN_IF_ERROR(CheckNotNegative("round", head.round.value()));
  RETURN_IF_ERROR(CheckNotNegative("generation", head.generation.value()));
  RETURN_IF_ERROR(CheckNotNegative("position", head.position));
  RETURN_IF_ERROR(CheckNotNegative("dropped", head.dropped));
  RETURN_IF_ERROR(CheckNotNegative("unread", head.unread));
  if ((head.state == OfferState::kReady) != (num_samples > 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("an offer has samples if and only if it is READY; state ",
                     static_cast<int>(head.state), " came with ", num_samples, " samples"));
  }
  if ((head.state == OfferState::kClosing) != (head.closing_reason != ClosingReason::kNone)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "an offer has a closing_reason if and only if it is CLOSING; state ",
        static_cast<int>(head.state), " came with reason ", static_cast<int>(head.closing_reason)));
  }
  return absl::OkStatus();
}

void PutSample(const SampleShape& sample, char* bytes) {
  Put<int32_t>(bytes, 0, sample.length);
  Put<int32_t>(bytes, 4, sample.loss_tokens);
  Put<int32_t>(bytes, 8, sample.vision_load);
  Put<uint32_t>(bytes, 12,
                static_cast<uint32_t>(sample.waited_rounds) | (sample.alone ? kAloneBit : 0));
  Put<uint64_t>(bytes, 16, sample.id_hash);
}

SampleShape GetSample(const char* bytes) {
  SampleShape sample;
  sample.length = Get<int32_t>(bytes, 0);
  sample.loss_tokens = Get<int32_t>(bytes, 4);
  sample.vision_load = Get<int32_t>(bytes, 8);
  const auto waited = Get<uint32_t>(bytes, 12);
  sample.waited_rounds = static_cast<int32_t>(waited & ~kAloneBit);
  sample.alone = (waited & kAloneBit) != 0;
  sample.id_hash = Get<uint64_t>(bytes, 16);
  return sample;
}

bool IsValid(const SampleShape& sample) {
  return sample.length >= 1 && sample.loss_tokens >= 0 && sample.vision_load >= 0;
}

absl::Status CheckSample(const SampleShape& sample) {
  if (sample.length < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("length of a sample must be >= 1, got ", sample.length));
  }
  RETURN_IF_ERROR(CheckNotNegative("loss_tokens of a sample", sample.loss_tokens));
  return CheckNotNegative("vision_load of a sample", sample.vision_load);
}

}  // namespace

size_t OfferRecordBytes(int64_t window_max) {
  INVARIANT(window_max >= 0 && window_max <= INT32_MAX, "window_max is a number of samples");
  return kOfferHeadBytes + kSampleBytes * static_cast<size_t>(window_max);
}

RecordCodec::RecordCodec(int64_t window_max) : window_max_(window_max) {
  OfferRecordBytes(window_max);  // checks it
}

WireRecordSizes RecordCodec::sizes() const {
  return {kResyncBytes, OfferRecordBytes(window_max_), kConfirmBytes};
}

std::string RecordCodec::EncodeOffer(const Offer& offer) const {
  INVARIANT(offer.window.size() <= static_cast<size_t>(window_max_),
            "an offer holds at most window_max samples");
  const OfferHeader& head = offer.header;
  std::string bytes(OfferRecordBytes(window_max_), '\0');
  Put<uint32_t>(&bytes, 0, head.wire_version);
  Put<uint8_t>(&bytes, 4, kOfferKind);
  Put<uint8_t>(&bytes, 5, static_cast<uint8_t>(head.state));
  Put<uint8_t>(&bytes, 6, static_cast<uint8_t>(head.not_ready_reason));
  Put<uint8_t>(&bytes, 7, static_cast<uint8_t>(head.closing_reason));
  Put<uint32_t>(&bytes, 8, head.waiting ? 1 : 0);
  Put<uint32_t>(&bytes, 12, head.modality_mask);
  Put<int64_t>(&bytes, 16, head.rank.value());
  Put<int64_t>(&bytes, 24, head.epoch.value());
  Put<int64_t>(&bytes, 32, head.iterator);
  Put<int64_t>(&bytes, 40, head.round.value());
  Put<int64_t>(&bytes, 48, head.generation.value());
  Put<int64_t>(&bytes, 56, head.position);
  Put<int64_t>(&bytes, 64, head.dropped);
  Put<int64_t>(&bytes, 96, head.unread);
  Put<uint64_t>(&bytes, 72, head.config_digest);
  Put<uint64_t>(&bytes, 80, head.plan_digest);
  Put<uint32_t>(&bytes, 88, static_cast<uint32_t>(offer.window.size()));
  Put<uint32_t>(&bytes, 92, static_cast<uint32_t>(window_max_));
  char* at = &bytes[0] + kOfferHeadBytes;
  for (const SampleShape& sample : offer.window) {
    PutSample(sample, at);
    at += kSampleBytes;
  }
  return bytes;
}

absl::StatusOr<OfferHeader> RecordCodec::DecodeOfferHead(absl::string_view bytes) const {
  RETURN_IF_ERROR(CheckFrame(bytes, OfferRecordBytes(window_max_), kOfferKind));
  RETURN_IF_ERROR(CheckRange("window_max", Get<uint32_t>(bytes, 92), window_max_, window_max_));
  RETURN_IF_ERROR(CheckRange("the number of samples", Get<uint32_t>(bytes, 88), 0, window_max_));
  RETURN_IF_ERROR(CheckRange("state", Get<uint8_t>(bytes, 5), 0, 3));
  RETURN_IF_ERROR(CheckRange("not_ready_reason", Get<uint8_t>(bytes, 6), 0, 5));
  RETURN_IF_ERROR(CheckRange("closing_reason", Get<uint8_t>(bytes, 7), 0, 5));
  RETURN_IF_ERROR(CheckRange("waiting", Get<uint32_t>(bytes, 8), 0, 1));
  OfferHeader head;
  head.wire_version = Get<uint32_t>(bytes, 0);
  head.state = static_cast<OfferState>(Get<uint8_t>(bytes, 5));
  head.not_ready_reason = static_cast<NotReadyReason>(Get<uint8_t>(bytes, 6));
  head.closing_reason = static_cast<ClosingReason>(Get<uint8_t>(bytes, 7));
  head.waiting = Get<uint32_t>(bytes, 8) == 1;
  head.modality_mask = Get<uint32_t>(bytes, 12);
  head.rank = Rank(Get<int64_t>(bytes, 16));
  head.epoch = Epoch(Get<int64_t>(bytes, 24));
  head.iterator = Get<int64_t>(bytes, 32);
  head.round = RoundId(Get<int64_t>(bytes, 40));
  head.generation = Generation(Get<int64_t>(bytes, 48));
  head.position = Get<int64_t>(bytes, 56);
  head.dropped = Get<int64_t>(bytes, 64);
  head.unread = Get<int64_t>(bytes, 96);
  head.config_digest = Get<uint64_t>(bytes, 72);
  head.plan_digest = Get<uint64_t>(bytes, 80);
  RETURN_IF_ERROR(CheckHead(head, Get<uint32_t>(bytes, 88)));
  return head;
}

absl::StatusOr<Offer> RecordCodec::DecodeOffer(absl::string_view bytes) const {
  Offer offer;
  ASSIGN_OR_RETURN(offer.header, DecodeOfferHead(bytes));
  const size_t num_samples = Get<uint32_t>(bytes, 88);
  offer.window.resize(num_samples);
  const char* at = bytes.data() + kOfferHeadBytes;
  for (SampleShape& sample : offer.window) {
    sample = GetSample(at);
    if (!IsValid(sample)) return CheckSample(sample);
    at += kSampleBytes;
  }
  RETURN_IF_ERROR(CheckZero(bytes, kOfferHeadBytes + num_samples * kSampleBytes, bytes.size()));
  return offer;
}

std::string RecordCodec::EncodeResync(const ResyncRecord& record) const {
  std::string bytes(kResyncBytes, '\0');
  Put<uint32_t>(&bytes, 0, record.wire_version);
  Put<uint8_t>(&bytes, 4, kResyncKind);
  Put<uint8_t>(&bytes, 5, record.has_stored_offer ? 1 : 0);
  Put<uint8_t>(&bytes, 6, record.has_planned_offer ? 1 : 0);
  Put<int64_t>(&bytes, 8, record.rank.value());
  Put<int64_t>(&bytes, 16, record.generation.value());
  Put<int64_t>(&bytes, 24, record.last_completed_round.value());
  Put<uint64_t>(&bytes, 32, record.plan_digest);
  return bytes;
}

absl::StatusOr<ResyncRecord> RecordCodec::DecodeResync(absl::string_view bytes) const {
  RETURN_IF_ERROR(CheckFrame(bytes, kResyncBytes, kResyncKind));
  RETURN_IF_ERROR(CheckRange("has_stored_offer", Get<uint8_t>(bytes, 5), 0, 1));
  RETURN_IF_ERROR(CheckRange("has_planned_offer", Get<uint8_t>(bytes, 6), 0, 1));
  RETURN_IF_ERROR(CheckZero(bytes, 7, 8));
  RETURN_IF_ERROR(CheckNotNegative("rank", Get<int64_t>(bytes, 8)));
  RETURN_IF_ERROR(CheckNotNegative("generation", Get<int64_t>(bytes, 16)));
  RETURN_IF_ERROR(CheckNotNegative("last_completed_round", Get<int64_t>(bytes, 24)));
  ResyncRecord record;
  record.wire_version = Get<uint32_t>(bytes, 0);
  record.has_stored_offer = Get<uint8_t>(bytes, 5) == 1;
  record.has_planned_offer = Get<uint8_t>(bytes, 6) == 1;
  record.rank = Rank(Get<int64_t>(bytes, 8));
  record.generation = Generation(Get<int64_t>(bytes, 16));
  record.last_completed_round = RoundId(Get<int64_t>(bytes, 24));
  record.plan_digest = Get<uint64_t>(bytes, 32);
  return record;
}

std::string RecordCodec::EncodeConfirm(const ConfirmRecord& record) const {
  std::string bytes(kConfirmBytes, '\0');
  Put<uint32_t>(&bytes, 0, kWireVersion);
  Put<uint8_t>(&bytes, 4, kConfirmKind);
  Put<int64_t>(&bytes, 8, record.rank.value());
  Put<int64_t>(&bytes, 16, record.generation.value());
  Put<int64_t>(&bytes, 24, record.round.value());
  Put<uint64_t>(&bytes, 32, record.plan_digest);
  return bytes;
}

absl::StatusOr<ConfirmRecord> RecordCodec::DecodeConfirm(absl::string_view bytes) const {
  RETURN_IF_ERROR(CheckFrame(bytes, kConfirmBytes, kConfirmKind));
  RETURN_IF_ERROR(CheckZero(bytes, 5, 8));
  RETURN_IF_ERROR(CheckNotNegative("rank", Get<int64_t>(bytes, 8)));
  RETURN_IF_ERROR(CheckNotNegative("generation", Get<int64_t>(bytes, 16)));
  RETURN_IF_ERROR(CheckNotNegative("round", Get<int64_t>(bytes, 24)));
  ConfirmRecord record;
  record.rank = Rank(Get<int64_t>(bytes, 8));
  record.generation = Generation(Get<int64_t>(bytes, 16));
  record.round = RoundId(Get<int64_t>(bytes, 24));
  record.plan_digest = Get<uint64_t>(bytes, 32);
  return record;
}

}  // namespace odb
