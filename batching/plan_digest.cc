#include "batching/plan_digest.h"

#include <string>

#include "absl/strings/string_view.h"
#include "base/hash.h"

namespace odb {
namespace {

// Bytes to be hashed; numbers in little-endian order, lists with their size in front.
class DigestInput {
 public:
  explicit DigestInput(size_t num_bytes) { bytes_.reserve(num_bytes); }

  void Add64(uint64_t value) { AddBytes<8>(value); }
  void Add32(uint32_t value) { AddBytes<4>(value); }
  void AddSize(size_t size) { Add64(size); }
  void AddPositions(const std::vector<int32_t>& positions) {
    Add32(static_cast<uint32_t>(positions.size()));
    for (const int32_t position : positions) Add32(static_cast<uint32_t>(position));
  }
  uint64_t Hash() const { return Hash64(bytes_); }

 private:
  template <int kNumBytes>
  void AddBytes(uint64_t value) {
    char bytes[kNumBytes];
    for (int i = 0; i < kNumBytes; ++i) bytes[i] = static_cast<char>(value >> (8 * i));
    bytes_.append(bytes, kNumBytes);
  }

  std::string bytes_;
};

}  // namespace

uint64_t PlanDigest(const Plan& plan, absl::Span<const Offer> offers) {
  size_t num_samples = 0;
  for (const Offer& offer : offers) num_samples += offer.window.size();
  const size_t num_groups = plan.totals.size() * offers.size();
  DigestInput input(num_samples * 12 + num_groups * 4 + plan.totals.size() * 40 +
                    offers.size() * 32 + 64);

  input.Add32(plan.epoch_end ? 1 : 0);
  input.AddSize(plan.groups.size());
  input.AddSize(plan.totals.size());
  for (const std::vector<PlannedGroup>& steps : plan.groups) {
    for (const PlannedGroup& group : steps) input.AddPositions(group.samples);
  }
  for (const StepTotals& totals : plan.totals) {
    input.Add64(static_cast<uint64_t>(totals.samples));
    input.Add64(static_cast<uint64_t>(totals.tokens));
    input.Add64(static_cast<uint64_t>(totals.loss_tokens));
    input.Add64(static_cast<uint64_t>(totals.padded_tokens));
    input.Add64(static_cast<uint64_t>(totals.vision_load));
  }
  for (const std::vector<int32_t>& leftovers : plan.leftovers) input.AddPositions(leftovers);
  for (const Offer& offer : offers) {
    input.AddSize(offer.window.size());
    for (const SampleShape& sample : offer.window) input.Add64(sample.id_hash);
  }
  return input.Hash();
}

}  // namespace odb
