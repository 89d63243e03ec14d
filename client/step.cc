#include "client/step.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace odb {
namespace {

constexpr uint64_t kTensorAlignment = 64;

absl::Status CheckTensor(const v1::Tensor& tensor, uint64_t memory_bytes) {
  const int64_t element = ElementBytes(tensor.dtype());
  if (element == 0) {
    return absl::InternalError(
        absl::StrCat("tensor ", tensor.name(), " has unknown type ", tensor.dtype()));
  }
  uint64_t bytes = element;
  for (const int64_t size : tensor.shape()) {
    if (size < 0 || __builtin_mul_overflow(bytes, static_cast<uint64_t>(size), &bytes)) {
      return absl::InternalError(
          absl::StrCat("tensor ", tensor.name(), " has an impossible dimension ", size));
    }
  }
  if (bytes != tensor.bytes() || tensor.offset() % kTensorAlignment != 0 ||
      tensor.offset() > memory_bytes || bytes > memory_bytes - tensor.offset()) {
    return absl::InternalError(absl::StrCat("tensor ", tensor.name(), " of ", bytes,
                                            " bytes was announced with ", tensor.bytes(), " at ",
                                            tensor.offset(), " in an arena of ", memory_bytes));
  }
  return absl::OkStatus();
}

}  // namespace

int64_t ElementBytes(v1::DType dtype) {
  switch (dtype) {
    case v1::DTYPE_INT64:
    case v1::DTYPE_FLOAT64:
      return 8;
    case v1::DTYPE_INT32:
    case v1::DTYPE_FLOAT32:
      return 4;
    case v1::DTYPE_FLOAT16:
    case v1::DTYPE_BFLOAT16:
      return 2;
    case v1::DTYPE_BOOL:
    case v1::DTYPE_UINT8:
      return 1;
    default:
      return 0;
  }
}

ClientStep::ClientStep(v1::Step message, StepMemory memory, std::shared_ptr<Outbox> outbox)
    : message_(std::move(message)), memory_(std::move(memory)), outbox_(std::move(outbox)) {}

ClientStep::~ClientStep() {
  if (outbox_ != nullptr && !forgotten_) outbox_->Return(message_.step_id());
}

absl::StatusOr<StepHandle> ClientStep::Create(v1::Step message, StepMemory memory,
                                              std::shared_ptr<Outbox> outbox, bool with_tensors) {
  if (message.sample_sources_size() != message.sample_keys_size()) {
    return absl::InternalError(absl::StrCat("step ", message.index(), " names ",
                                            message.sample_keys_size(), " samples of ",
                                            message.sample_sources_size(), " sources"));
  }
  if (!with_tensors) message.clear_tensors();
  for (const v1::Tensor& tensor : message.tensors()) {
    RETURN_IF_ERROR(CheckTensor(tensor, memory.bytes));
  }
  return StepHandle(new ClientStep(std::move(message), std::move(memory), std::move(outbox)));
}

TensorView ClientStep::tensor(int i) const {
  INVARIANT(i >= 0 && i < message_.tensors_size(), "tensor index out of range");
  const v1::Tensor& tensor = message_.tensors(i);
  return TensorView{tensor.name(), tensor.dtype(),
                    absl::MakeConstSpan(tensor.shape().data(), tensor.shape().size()),
                    memory_.data + tensor.offset(), static_cast<int64_t>(tensor.bytes())};
}

}  // namespace odb
