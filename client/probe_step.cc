#include "client/probe_step.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/os/memfd.h"
#include "base/status_macros.h"
#include "client/step_memory.h"

namespace odb {
namespace {

constexpr uint64_t kTensorAlignment = 64;
constexpr uint64_t kBytesMax = uint64_t{1} << 46;

// The step's message, its tensors one behind the other; `bytes` is what they take.
absl::StatusOr<v1::Step> Describe(const v1::ProbeStep& probe, int64_t index, uint64_t* bytes) {
  v1::Step step;
  step.set_index(index);
  step.mutable_local()->set_padded_tokens(probe.samples() * probe.length());
  for (const v1::ProbeTensor& wanted : probe.tensors()) {
    const auto element = static_cast<uint64_t>(ElementBytes(wanted.dtype()));
    uint64_t size = element;
    bool is_possible = element > 0 && wanted.element().size() == element;
    for (const int64_t axis : wanted.shape()) {
      is_possible = is_possible && axis >= 0 &&
                    !__builtin_mul_overflow(size, static_cast<uint64_t>(axis), &size) &&
                    size <= kBytesMax;
    }
    if (!is_possible || *bytes > kBytesMax) {
      return absl::InternalError(
          absl::StrCat("the daemon described a tensor ", wanted.name(), " that cannot be"));
    }
    v1::Tensor* const tensor = step.add_tensors();
    tensor->set_name(wanted.name());
    tensor->set_dtype(wanted.dtype());
    *tensor->mutable_shape() = wanted.shape();
    tensor->set_offset(*bytes);
    tensor->set_bytes(size);
    *bytes += (size + kTensorAlignment - 1) / kTensorAlignment * kTensorAlignment;
  }
  return step;
}

void Fill(const v1::ProbeTensor& wanted, uint64_t bytes, char* data) {
  const std::string& element = wanted.element();
  if (wanted.increment() != 0 && wanted.dtype() == v1::DTYPE_INT64) {
    int64_t value = 0;
    std::memcpy(&value, element.data(), sizeof(value));
    for (uint64_t at = 0; at < bytes; at += sizeof(value)) {
      std::memcpy(data + at, &value, sizeof(value));
      value += wanted.increment();
    }
    return;
  }
  if (bytes == 0) return;
  std::memcpy(data, element.data(), element.size());
  // What is there is copied behind itself, twice as much each time.
  for (uint64_t filled = element.size(); filled < bytes;) {
    const uint64_t more = std::min(filled, bytes - filled);
    std::memcpy(data + filled, data, more);
    filled += more;
  }
}

}  // namespace

absl::StatusOr<StepHandle> MakeProbeStep(const v1::ProbeStep& probe, int64_t index) {
  uint64_t bytes = 0;
  ASSIGN_OR_RETURN(v1::Step step, Describe(probe, index, &bytes));
  const size_t size = std::max<size_t>(bytes, 1);
  ASSIGN_OR_RETURN(const FileDescriptor memory, CreateSealedMemfd("odb-probe", size));
  ASSIGN_OR_RETURN(MappedRegion mapped,
                   MappedRegion::Map(memory.get(), size, MappedRegion::Access::kReadWrite));
  // Here, where it is an error and not a signal.
  RETURN_IF_ERROR(mapped.Pretouch(0, size));
  for (int i = 0; i < probe.tensors_size(); ++i) {
    Fill(probe.tensors(i), step.tensors(i).bytes(), mapped.data() + step.tensors(i).offset());
  }
  // Owners: the step, and whoever reads a tensor of it.
  auto region = std::make_shared<const MappedRegion>(std::move(mapped));
  char* const data = region->data();
  return ClientStep::Create(std::move(step), {std::move(region), data, size}, /*outbox=*/nullptr,
                            /*with_tensors=*/true);
}

}  // namespace odb
