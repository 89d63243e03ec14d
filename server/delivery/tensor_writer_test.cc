#include "server/delivery/tensor_writer.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <string>
#include <vector>

#include "server/delivery/step_layout.h"
#include "tests/support/status_matchers.h"

namespace odb {
namespace {

// Tokens 1, 2, ..., the last `loss_tokens` of which are labels too.
Sample SampleOf(int32_t length, int32_t loss_tokens) {
  Sample sample;
  for (int32_t i = 0; i < length; ++i) {
    sample.input_ids.push_back(i + 1);
    sample.labels.push_back(i < length - loss_tokens ? kIgnoredLabel : i + 1);
  }
  sample.loss_tokens = loss_tokens;
  return sample;
}

// The memory of a step, every byte `fill` before it is written.
std::string Written(const std::vector<Sample>& samples, const StepLayout& layout,
                    const TensorFormat& format, char fill = 99) {
  std::string memory(static_cast<size_t>(layout.bytes), fill);
  std::vector<const Sample*> pointers;
  for (const Sample& sample : samples) pointers.push_back(&sample);
  WriteTensors(pointers, layout, format, memory.data());
  return memory;
}

template <typename T>
std::vector<T> Elements(const std::string& memory, const TensorPlace& place) {
  std::vector<T> elements(static_cast<size_t>(place.bytes) / sizeof(T));
  std::memcpy(elements.data(), memory.data() + place.offset, static_cast<size_t>(place.bytes));
  return elements;
}

using Longs = std::vector<int64_t>;
using Ints = std::vector<int32_t>;
using Bytes = std::vector<uint8_t>;

TEST_CASE("WriteTensors: int64 tensors padded on the right, unless told otherwise", "[delivery]") {
  TensorFormat format;
  format.pad_token_id = 256;
  const StepLayout layout = MakeLayout({/*rows=*/2, /*length=*/5}, format);

  const std::string memory = Written({SampleOf(3, 1), SampleOf(5, 2)}, layout, format);

  REQUIRE(layout.tensors.size() == 3);
  CHECK(Elements<int64_t>(memory, layout.tensors[0]) == Longs{1, 2, 3, 256, 256, 1, 2, 3, 4, 5});
  CHECK(Elements<int64_t>(memory, layout.tensors[1]) ==
        Longs{-100, -100, 3, -100, -100, -100, -100, -100, 4, 5});
  CHECK(Elements<int64_t>(memory, layout.tensors[2]) == Longs{1, 1, 1, 0, 0, 1, 1, 1, 1, 1});
}

TEST_CASE("WriteTensors: int32 ids and a bool mask; labels stay int64", "[delivery]") {
  TensorFormat format;
  format.ids = ElementType::kInt32;
  format.mask = MaskType::kBool;
  format.pad_token_id = 256;
  const StepLayout layout = MakeLayout({2, 4}, format);

  const std::string memory = Written({SampleOf(2, 1), SampleOf(4, 4)}, layout, format);

  REQUIRE(layout.tensors.size() == 3);
  CHECK(layout.tensors[0].dtype == v1::DTYPE_INT32);
  CHECK(Elements<int32_t>(memory, layout.tensors[0]) == Ints{1, 2, 256, 256, 1, 2, 3, 4});
  CHECK(layout.tensors[1].dtype == v1::DTYPE_INT64);
  CHECK(Elements<int64_t>(memory, layout.tensors[1]) == Longs{-100, 2, -100, -100, 1, 2, 3, 4});
  CHECK(layout.tensors[2].dtype == v1::DTYPE_BOOL);
  CHECK(Elements<uint8_t>(memory, layout.tensors[2]) == Bytes{1, 1, 0, 0, 1, 1, 1, 1});
}

TEST_CASE("WriteTensors: padded on the left, the last token of every row is the last column",
          "[delivery]") {
  TensorFormat format;
  format.padding = PaddingSide::kLeft;
  format.pad_token_id = 256;
  format.mask = GENERATE(MaskType::kBool, MaskType::kInt64);
  const StepLayout layout = MakeLayout({2, 4}, format);

  const std::string memory = Written({SampleOf(2, 1), SampleOf(4, 3)}, layout, format);

  CHECK(Elements<int64_t>(memory, layout.tensors[0]) == Longs{256, 256, 1, 2, 1, 2, 3, 4});
  CHECK(Elements<int64_t>(memory, layout.tensors[1]) == Longs{-100, -100, -100, 2, -100, 2, 3, 4});
  if (format.mask == MaskType::kBool) {
    CHECK(Elements<uint8_t>(memory, layout.tensors[2]) == Bytes{0, 0, 1, 1, 1, 1, 1, 1});
  } else {
    CHECK(Elements<int64_t>(memory, layout.tensors[2]) == Longs{0, 0, 1, 1, 1, 1, 1, 1});
  }
}

TEST_CASE("WriteTensors: on the left no label is predicted from padding, unless it is shifted data",
          "[delivery]") {
  TensorFormat format;
  format.padding = PaddingSide::kLeft;
  const StepLayout layout = MakeLayout({1, 4}, format);

  // All of the sample are labels; the model would predict the first from the second column, which
  // is padding, while loss_tokens counts 2.
  CHECK(Elements<int64_t>(Written({SampleOf(3, 3)}, layout, format), layout.tensors[1]) ==
        Longs{-100, -100, 2, 3});
  format.label_shift = LabelShift::kData;
  CHECK(Elements<int64_t>(Written({SampleOf(3, 3)}, layout, format), layout.tensors[1]) ==
        Longs{-100, 1, 2, 3});
}

TEST_CASE("WriteTensors: every byte of a tensor is written and none beside it", "[delivery]") {
  TensorFormat format;
  format.ids = GENERATE(ElementType::kInt32, ElementType::kInt64);
  format.mask = GENERATE(MaskType::kNone, MaskType::kBool, MaskType::kInt64);
  format.padding = GENERATE(PaddingSide::kRight, PaddingSide::kLeft);
  const StepLayout layout = MakeLayout({3, 7}, format);
  const std::vector<Sample> samples = {SampleOf(1, 1), SampleOf(7, 2), SampleOf(4, 4)};

  const std::string first = Written(samples, layout, format, 99);
  const std::string second = Written(samples, layout, format, 66);

  int64_t written = 0;
  bool gaps_untouched = true;
  for (size_t i = 0; i < first.size(); ++i) {
    if (first[i] == second[i]) {
      ++written;
    } else {
      gaps_untouched = gaps_untouched && first[i] == 99 && second[i] == 66;
    }
  }
  int64_t bytes = 0;
  for (const TensorPlace& place : layout.tensors) bytes += place.bytes;
  CHECK(written == bytes);
  CHECK(gaps_untouched);
}

TEST_CASE("StepLayout: tensors lie one behind the other, each aligned", "[delivery]") {
  const TensorFormat format;
  const StepLayout layout = MakeLayout({2, 5}, format);
  CHECK(layout.bytes == 384);  // 3 x (2 x 5 x 8 = 80, up to 128)
  CHECK(StepBytesMax(10, format) == layout.bytes);

  v1::Step step;
  DescribeTensors(layout, /*offset=*/640, &step);

  REQUIRE(step.tensors_size() == 3);
  CHECK(step.tensors(1).name() == "labels");
  CHECK(step.tensors(1).offset() == 768);
  CHECK(step.tensors(1).bytes() == 80);
}

TEST_CASE("StepLayout: smaller types and no mask take less", "[delivery]") {
  TensorFormat format;
  format.ids = ElementType::kInt32;
  format.mask = MaskType::kBool;
  CHECK(MakeLayout({4, 16}, format).bytes == 256 + 512 + 64);
  format.mask = MaskType::kNone;
  CHECK(MakeLayout({4, 16}, format).bytes == 256 + 512);
}

TEST_CASE("WriteTensors: a tensor without a layout is refused by name", "[delivery]") {
  Sample sample = SampleOf(3, 1);
  CHECK(CheckHasLayout(sample).ok());
  sample.extras.push_back({"pixel_values", ElementType::kFloat32, {1}, "0000"});

  CHECK_THAT(CheckHasLayout(sample), HasMessage("\"pixel_values\""));
}

}  // namespace
}  // namespace odb
