#pragma once

#include <cstdint>
#include <vector>

#include "server/preprocess/extra_tensor.h"
#include "server/preprocess/sample.h"

namespace odb {

enum class MaskType : uint8_t {
  kNone = 0,   // no attention_mask: the model finds padding by the pad token
  kBool = 1,   // as scaled_dot_product_attention takes it
  kInt64 = 2,  // as Hugging Face's tokenizers give it
};

enum class PaddingSide : uint8_t {
  kRight = 0,
  kLeft = 1,
};

// What the tensors of every step of a stream look like: constants of a job.
struct TensorFormat {
  ElementType ids = ElementType::kInt64;  // of input_ids: kInt64 or kInt32
  MaskType mask = MaskType::kInt64;
  // position_ids: 0, 1, 2, ... from the first token of each sample; padding has the position of the
  // token next to it. Never falls along a row, and is below the sample's length.
  bool position_ids = false;
  PaddingSide padding = PaddingSide::kRight;
  int32_t pad_token_id = 0;
  // Under kModel the first label of a sample never counts, since nothing of the sample predicts
  // it. Padded on the left it would be predicted from padding: it is kIgnoredLabel there.
  LabelShift label_shift = LabelShift::kModel;
  std::vector<ExtraTensorSpec> extras;
};

}  // namespace odb
