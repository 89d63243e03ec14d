#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "batching/offer.h"

namespace odb {

// Of the records below; every record begins with it.
constexpr uint32_t kWireVersion = 1;

// Bytes of one record of each kind. Equal on all ranks of a job: Gloo ends a process whose peer
// sends another size.
struct WireRecordSizes {
  size_t resync = 0;
  size_t offer = 0;
  size_t confirm = 0;
};

// 104 bytes of head and 24 for each sample that the window has room for. `window_max` >= 0.
size_t OfferRecordBytes(int64_t window_max);

// Records that ranks exchange, as bytes: little endian, fixed offsets, zero padded, the same on
// every machine. Offers of any number of samples up to window_max have one size.
//
//   all      0 u32 wire_version   4 u8 kind (1 offer, 2 resync, 3 confirm)
//   offer    5 u8 state, 6 u8 not_ready_reason, 7 u8 closing_reason, 8 u32 waiting,
//            12 u32 modality_mask, 16 i64 rank, 24 i64 epoch, 32 i64 iterator, 40 i64 round,
//            48 i64 generation, 56 i64 position, 64 i64 dropped, 72 u64 config_digest,
//            80 u64 plan_digest, 88 u32 samples in the window, 92 u32 window_max, 96 i64 unread,
//            then for each sample i32 length, i32 loss_tokens, i32 vision_load, u32 waited_rounds
//            (bit 31: alone), u64 id_hash
//   resync   5 u8 has_stored_offer, 6 u8 has_planned_offer, 8 i64 rank, 16 i64 generation,
//            24 i64 last_completed_round, 32 u64 plan_digest
//   confirm  8 i64 rank, 16 i64 generation, 24 i64 round, 32 u64 plan_digest
//
// Ownership: a value. Threads: const methods may be called from any thread.
// Errors: Decode* return InvalidArgument with one sentence for a size, version, kind, state, count
// or value that no encoder of this version writes; what they accept encodes to the same bytes
// again.
class RecordCodec {
 public:
  // `window_max` >= 0.
  explicit RecordCodec(int64_t window_max);

  int64_t window_max() const { return window_max_; }
  WireRecordSizes sizes() const;

  // The window must hold at most window_max samples (programmer's error otherwise).
  std::string EncodeOffer(const Offer& offer) const;
  std::string EncodeResync(const ResyncRecord& record) const;
  std::string EncodeConfirm(const ConfirmRecord& record) const;

  absl::StatusOr<Offer> DecodeOffer(absl::string_view bytes) const;
  // All but the samples, which are neither read nor checked.
  absl::StatusOr<OfferHeader> DecodeOfferHead(absl::string_view bytes) const;
  absl::StatusOr<ResyncRecord> DecodeResync(absl::string_view bytes) const;
  absl::StatusOr<ConfirmRecord> DecodeConfirm(absl::string_view bytes) const;

 private:
  int64_t window_max_;
};

}  // namespace odb
