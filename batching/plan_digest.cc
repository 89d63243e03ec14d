#include "batching/plan_digest.h"

#include <string>

#include "absl/strings/string_view.h"
#include "base/hash.h"

namespace odb {
namespace {

// Written without loops: compilers then make one store of each.
void StoreLittle32(uint32_t value, char* p) {
  p[0] = static_cast<char>(value);
  p[1] = static_cast<char>(value >> 8);
  p[2] = static_cast<char>(value >> 16);
  p[3] = static_cast<char>(value >> 24);
}

void StoreLittle64(uint64_t value, char* p) {
  StoreLittle32(static_cast<uint32_t>(value), p);
  StoreLittle32(static_cast<uint32_t>(value >> 32), p + 4);
}

// Bytes to be hashed; numbers in little-endian order, lists with their size in front.
class DigestInput {
 public:
  explicit DigestInput(size_t num_bytes) : bytes_(num_bytes, '\0') {}

  void Add64(uint64_t value) { StoreLittle64(value, Next(8)); }

  void AddRefs(const std::vector<SampleRef>& refs) {
    char* p = Next(4 + 8 * refs.size());
    StoreLittle32(static_cast<uint32_t>(refs.size()), p);
    p += 4;
    for (const SampleRef ref : refs) {
      StoreLittle32(static_cast<uint32_t>(ref.rank), p);
      StoreLittle32(static_cast<uint32_t>(ref.position), p + 4);
      p += 8;
    }
  }

  void AddPositions(const std::vector<int32_t>& positions) {
    char* p = Next(4 + 4 * positions.size());
    StoreLittle32(static_cast<uint32_t>(positions.size()), p);
    for (const int32_t position : positions) {
      p += 4;
      StoreLittle32(static_cast<uint32_t>(position), p);
    }
  }

  void AddIds(const std::vector<SampleShape>& window) {
    char* p = Next(8 + 8 * window.size());
    StoreLittle64(window.size(), p);
    for (const SampleShape& sample : window) {
      p += 8;
      StoreLittle64(sample.id_hash, p);
    }
  }

  uint64_t Hash() const { return Hash64(absl::string_view(bytes_.data(), num_used_)); }

 private:
  char* Next(size_t num_bytes) {
    if (bytes_.size() - num_used_ < num_bytes) bytes_.resize(2 * bytes_.size() + num_bytes);
    char* next = &bytes_[num_used_];
    num_used_ += num_bytes;
    return next;
  }

  std::string bytes_;
  size_t num_used_ = 0;
};

}  // namespace

uint64_t PlanDigest(const Plan& plan, absl::Span<const Offer> offers) {
  size_t num_samples = 0;
  for (const Offer& offer : offers) num_samples += offer.window.size();
  const size_t num_groups = plan.totals.size() * offers.size();
  DigestInput input(num_samples * 16 + num_groups * 4 + plan.totals.size() * 40 +
                    offers.size() * 32 + 64);

  input.Add64(plan.epoch_end ? 1 : 0);
  input.Add64(plan.groups.size());
  input.Add64(plan.totals.size());
  for (const std::vector<PlannedGroup>& steps : plan.groups) {
    for (const PlannedGroup& group : steps) input.AddRefs(group.samples);
  }
  for (const StepTotals& totals : plan.totals) {
    input.Add64(static_cast<uint64_t>(totals.samples));
    input.Add64(static_cast<uint64_t>(totals.tokens));
    input.Add64(static_cast<uint64_t>(totals.loss_tokens));
    input.Add64(static_cast<uint64_t>(totals.padded_tokens));
    input.Add64(static_cast<uint64_t>(totals.vision_load));
  }
  for (const std::vector<int32_t>& leftovers : plan.leftovers) input.AddPositions(leftovers);
  for (const Offer& offer : offers) input.AddIds(offer.window);
  return input.Hash();
}

}  // namespace odb
