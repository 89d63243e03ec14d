#include "server/delivery/tensor_writer.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <string>
#include <utility>
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

template <typename T>
NamedTensor TensorOf(const std::string& name, ElementType type, std::vector<int64_t> shape,
                     const std::vector<T>& elements) {
  NamedTensor tensor{name, type, std::move(shape), std::string(elements.size() * sizeof(T), 0)};
  std::memcpy(tensor.bytes.data(), elements.data(), tensor.bytes.size());
  return tensor;
}

template <typename T>
ExtraTensorSpec SpecOf(const std::string& name, ElementType type, std::vector<int64_t> shape,
                       ExtraLayout layout, T padding) {
  ExtraTensorSpec spec{name, type, std::move(shape), layout, std::string(sizeof(T), 0)};
  std::memcpy(spec.padding.data(), &padding, sizeof(T));
  return spec;
}

StepLayout LayoutOf(const StepShape& shape, const std::vector<Sample>& samples,
                    const TensorFormat& format) {
  std::vector<const Sample*> pointers;
  for (const Sample& sample : samples) pointers.push_back(&sample);
  return MakeLayout(shape, pointers, format);
}

// The memory of a step, every byte `fill` before it is written.
std::string Written(const std::vector<Sample>& samples, const StepLayout& layout,
                    const TensorFormat& format, char fill = 99) {
  std::string memory(static_cast<size_t>(layout.bytes), fill);
  std::vector<const Sample*> pointers;
  for (const Sample& sample : samples) pointers.push_back(&sample);
  int64_t bytes = 0;
  for (const TensorPlace& place : layout.tensors) bytes += place.bytes;
  CHECK(WriteTensors(pointers, layout, format, memory.data()) == bytes);
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
  const StepLayout layout = MakeLayout({/*rows=*/2, /*length=*/5}, {}, format);

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
  const StepLayout layout = MakeLayout({2, 4}, {}, format);

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
  const StepLayout layout = MakeLayout({2, 4}, {}, format);

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
  const StepLayout layout = MakeLayout({1, 4}, {}, format);

  // All of the sample are labels; the model would predict the first from the second column, which
  // is padding, while loss_tokens counts 2.
  CHECK(Elements<int64_t>(Written({SampleOf(3, 3)}, layout, format), layout.tensors[1]) ==
        Longs{-100, -100, 2, 3});
  format.label_shift = LabelShift::kData;
  CHECK(Elements<int64_t>(Written({SampleOf(3, 3)}, layout, format), layout.tensors[1]) ==
        Longs{-100, 1, 2, 3});
}

TEST_CASE("WriteTensors: where every token counts the labels are the ids", "[delivery]") {
  TensorFormat format;
  format.pad_token_id = 256;
  Sample sample = SampleOf(3, 3);
  sample.labels.clear();
  const StepLayout layout = MakeLayout({2, 4}, {}, format);

  const std::string memory = Written({sample, SampleOf(4, 1)}, layout, format);
  CHECK(Elements<int64_t>(memory, layout.tensors[0]) == Longs{1, 2, 3, 256, 1, 2, 3, 4});
  CHECK(Elements<int64_t>(memory, layout.tensors[1]) == Longs{1, 2, 3, -100, -100, -100, -100, 4});

  format.padding = PaddingSide::kLeft;
  CHECK(Elements<int64_t>(Written({sample, SampleOf(4, 1)}, layout, format), layout.tensors[1]) ==
        Longs{-100, -100, 2, 3, -100, -100, -100, 4});
}

TEST_CASE("WriteTensors: a step larger than the cache has the same bytes", "[delivery]") {
  TensorFormat format;
  format.pad_token_id = 256;
  format.padding = GENERATE(PaddingSide::kRight, PaddingSide::kLeft);
  format.position_ids = true;
  format.extras = {
      SpecOf<double>("weights", ElementType::kFloat64, {kTokenSize}, ExtraLayout::kPad, -0.5)};
  constexpr int32_t kLong = 200001;  // odd, so that rows begin at multiples of 8 bytes only
  std::vector<Sample> samples = {SampleOf(kLong, 7), SampleOf(3, 2), SampleOf(kLong - 2, 1000)};
  for (Sample& sample : samples) {
    const std::vector<double> weights(sample.input_ids.begin(), sample.input_ids.end());
    sample.extras = {TensorOf("weights", ElementType::kFloat64, {sample.length()}, weights)};
  }
  const StepLayout layout = LayoutOf({3, kLong}, samples, format);
  REQUIRE(layout.bytes >= int64_t{16} << 20);

  const std::string memory = Written(samples, layout, format);

  Longs ids, labels, mask, positions;
  std::vector<double> weights;
  for (const Sample& sample : samples) {
    for (int32_t column = 0; column < kLong; ++column) {
      const bool is_left = format.padding == PaddingSide::kLeft;
      const int32_t i = is_left ? column - (kLong - sample.length()) : column;
      const bool is_token = i >= 0 && i < sample.length();
      const auto at = static_cast<size_t>(i);
      ids.push_back(is_token ? sample.input_ids[at] : 256);
      labels.push_back(is_token ? sample.labels[at] : -100);
      mask.push_back(is_token);
      positions.push_back(std::clamp(i, 0, sample.length() - 1));
      weights.push_back(is_token ? sample.input_ids[at] : -0.5);
    }
  }
  CHECK((Elements<int64_t>(memory, layout.tensors[0]) == ids));  // in brackets: not to be printed
  CHECK((Elements<int64_t>(memory, layout.tensors[1]) == labels));
  CHECK((Elements<int64_t>(memory, layout.tensors[2]) == mask));
  CHECK((Elements<int64_t>(memory, layout.tensors[3]) == positions));
  CHECK((Elements<double>(memory, layout.tensors[4]) == weights));
}

TEST_CASE("WriteTensors: positions count from each sample's first token, and padding adds none",
          "[delivery]") {
  TensorFormat format;
  format.position_ids = true;
  format.mask = GENERATE(MaskType::kInt64, MaskType::kNone);
  const size_t last = format.mask == MaskType::kNone ? 2 : 3;
  const StepLayout layout = MakeLayout({3, 4}, {}, format);
  const std::vector<Sample> samples = {SampleOf(2, 1), SampleOf(4, 3), SampleOf(1, 1)};

  REQUIRE(layout.tensors.size() == last + 1);
  CHECK(layout.tensors[last].name == "position_ids");
  CHECK(layout.tensors[last].dtype == v1::DTYPE_INT64);
  CHECK(Elements<int64_t>(Written(samples, layout, format), layout.tensors[last]) ==
        Longs{0, 1, 1, 1, 0, 1, 2, 3, 0, 0, 0, 0});
  format.padding = PaddingSide::kLeft;
  CHECK(Elements<int64_t>(Written(samples, layout, format), layout.tensors[last]) ==
        Longs{0, 0, 0, 1, 0, 1, 2, 3, 0, 0, 0, 0});
}

TEST_CASE("WriteTensors: concatenated tensors lie one behind the other, with their offsets",
          "[delivery]") {
  TensorFormat format;
  format.extras = {
      SpecOf<float>("boxes", ElementType::kFloat32, {kAnySize, 2}, ExtraLayout::kConcatenate, 0)};
  std::vector<Sample> samples = {SampleOf(2, 1), SampleOf(1, 1), SampleOf(3, 1)};
  const auto boxes = [](int64_t rows, const std::vector<float>& elements) {
    return TensorOf("boxes", ElementType::kFloat32, {rows, 2}, elements);
  };
  samples[0].extras = {boxes(1, {1, 2})};
  samples[1].extras = {boxes(0, {})};
  samples[2].extras = {boxes(2, {3, 4, 5, 6})};
  const StepLayout layout = LayoutOf({3, 4}, samples, format);

  const std::string memory = Written(samples, layout, format);

  REQUIRE(layout.tensors.size() == 5);
  CHECK(layout.tensors[3].name == "boxes");
  CHECK(layout.tensors[3].dtype == v1::DTYPE_FLOAT32);
  CHECK(layout.tensors[3].shape == Longs{3, 2});
  CHECK(Elements<float>(memory, layout.tensors[3]) == std::vector<float>{1, 2, 3, 4, 5, 6});
  CHECK(layout.tensors[4].name == "boxes_offsets");
  CHECK(layout.tensors[4].dtype == v1::DTYPE_INT64);
  CHECK(Elements<int64_t>(memory, layout.tensors[4]) == Longs{0, 1, 1, 3});
}

TEST_CASE("WriteTensors: padded tensors are stacked, every axis as long as the longest",
          "[delivery]") {
  TensorFormat format;
  format.padding = PaddingSide::kLeft;  // has no say in axes that are not tokens
  format.extras = {
      SpecOf<int16_t>("image", ElementType::kFloat16, {kAnySize, kAnySize}, ExtraLayout::kPad, -1)};
  std::vector<Sample> samples = {SampleOf(2, 1), SampleOf(1, 1), SampleOf(1, 1)};
  const auto image = [](std::vector<int64_t> shape, const std::vector<int16_t>& elements) {
    return TensorOf("image", ElementType::kFloat16, std::move(shape), elements);
  };
  samples[0].extras = {image({1, 3}, {1, 2, 3})};
  samples[1].extras = {image({2, 1}, {4, 5})};
  samples[2].extras = {image({0, 0}, {})};
  const StepLayout layout = LayoutOf({3, 2}, samples, format);

  const std::string memory = Written(samples, layout, format);

  CHECK(layout.tensors[3].shape == Longs{3, 2, 3});
  CHECK(Elements<int16_t>(memory, layout.tensors[3]) ==
        std::vector<int16_t>{1, 2, 3, -1, -1, -1, 4, -1, -1, 5, -1, -1, -1, -1, -1, -1, -1, -1});
}

TEST_CASE("WriteTensors: a tensor with a size per token is padded as the tokens are",
          "[delivery]") {
  TensorFormat format;
  format.padding = GENERATE(PaddingSide::kRight, PaddingSide::kLeft);
  format.extras = {
      SpecOf<uint8_t>("kinds", ElementType::kUint8, {kTokenSize, 2}, ExtraLayout::kPad, 9)};
  std::vector<Sample> samples = {SampleOf(1, 1), SampleOf(3, 1)};
  samples[0].extras = {TensorOf<uint8_t>("kinds", ElementType::kUint8, {1, 2}, {1, 2})};
  samples[1].extras = {TensorOf<uint8_t>("kinds", ElementType::kUint8, {3, 2}, {3, 4, 5, 6, 7, 8})};
  const StepLayout layout = LayoutOf({2, 3}, samples, format);

  const std::string memory = Written(samples, layout, format);

  CHECK(layout.tensors[3].shape == Longs{2, 3, 2});
  CHECK(Elements<uint8_t>(memory, layout.tensors[3]) ==
        (format.padding == PaddingSide::kRight ? Bytes{1, 2, 9, 9, 9, 9, 3, 4, 5, 6, 7, 8}
                                               : Bytes{9, 9, 9, 9, 1, 2, 3, 4, 5, 6, 7, 8}));
}

TEST_CASE("WriteTensors: numbers without an axis become one per sample", "[delivery]") {
  TensorFormat format;
  format.mask = MaskType::kNone;
  format.extras = {SpecOf<double>("weight", ElementType::kFloat64, {}, ExtraLayout::kPad, 0)};
  std::vector<Sample> samples = {SampleOf(1, 1), SampleOf(1, 1)};
  samples[0].extras = {TensorOf<double>("weight", ElementType::kFloat64, {}, {0.5})};
  samples[1].extras = {TensorOf<double>("weight", ElementType::kFloat64, {}, {2})};
  const StepLayout layout = LayoutOf({2, 1}, samples, format);

  REQUIRE(layout.tensors.size() == 3);
  CHECK(layout.tensors[2].shape == Longs{2});
  CHECK(Elements<double>(Written(samples, layout, format), layout.tensors[2]) ==
        std::vector<double>{0.5, 2});
}

TEST_CASE("WriteTensors: every byte of a tensor is written and none beside it", "[delivery]") {
  TensorFormat format;
  format.ids = GENERATE(ElementType::kInt32, ElementType::kInt64);
  format.mask = GENERATE(MaskType::kNone, MaskType::kBool, MaskType::kInt64);
  format.padding = GENERATE(PaddingSide::kRight, PaddingSide::kLeft);
  format.extras = {
      SpecOf<uint8_t>("a", ElementType::kBool, {kAnySize, 3}, ExtraLayout::kConcatenate, 0),
      SpecOf<int32_t>("b", ElementType::kInt32, {kTokenSize}, ExtraLayout::kPad, 5),
      SpecOf<uint8_t>("c", ElementType::kUint8, {kAnySize, 2}, ExtraLayout::kPad, 5)};
  std::vector<Sample> samples = {SampleOf(1, 1), SampleOf(7, 2), SampleOf(4, 4)};
  for (Sample& sample : samples) {
    const int64_t length = sample.length();
    const auto bytes = [](int64_t count) {
      return std::vector<uint8_t>(static_cast<size_t>(count));
    };
    sample.extras = {TensorOf("a", ElementType::kBool, {length - 1, 3}, bytes(3 * (length - 1))),
                     TensorOf("b", ElementType::kInt32, {length}, sample.input_ids),
                     TensorOf("c", ElementType::kUint8, {length % 3, 2}, bytes(length % 3 * 2))};
    REQUIRE(CheckExtras(sample, format).ok());
  }
  const StepLayout layout = LayoutOf({3, 7}, samples, format);

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
  const StepLayout layout = MakeLayout({2, 5}, {}, format);
  CHECK(layout.bytes == 384);  // 3 x (2 x 5 x 8 = 80, up to 128)
  CHECK(TokenBytesMax(10, format) == layout.bytes);

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
  CHECK(MakeLayout({4, 16}, {}, format).bytes == 256 + 512 + 64);
  format.mask = MaskType::kNone;
  CHECK(MakeLayout({4, 16}, {}, format).bytes == 256 + 512);
  format.position_ids = true;
  CHECK(MakeLayout({4, 16}, {}, format).bytes == 256 + 512 + 512);
  CHECK(TokenBytesMax(64, format) == 256 + 512 + 512);
}

TEST_CASE("StepLayout: the bounds hold for the worst step", "[delivery]") {
  TensorFormat format;
  format.extras = {
      SpecOf<int32_t>("per_token", ElementType::kInt32, {kTokenSize, 3}, ExtraLayout::kPad, 0),
      SpecOf<uint8_t>("varies", ElementType::kUint8, {kAnySize, 2}, ExtraLayout::kConcatenate, 0),
      SpecOf<float>("fixed", ElementType::kFloat32, {5}, ExtraLayout::kPad, 0)};
  // Eight rows of two tokens; `varies` has ten elements, as many as a record may hold.
  std::vector<Sample> samples(8, SampleOf(2, 1));
  for (Sample& sample : samples) {
    sample.extras = {
        TensorOf<int32_t>("per_token", ElementType::kInt32, {2, 3}, {1, 2, 3, 4, 5, 6}),
        TensorOf<uint8_t>("varies", ElementType::kUint8, {5, 2}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}),
        TensorOf<float>("fixed", ElementType::kFloat32, {5}, {1, 2, 3, 4, 5})};
  }

  const int64_t bytes = LayoutOf({8, 2}, samples, format).bytes;

  // 3 x 16 x 8 = 384, and 16 x 3 x 4 = 192.
  CHECK(TokenBytesMax(16, format) == 384 + 192);
  // 8 x 10 up to 128, offsets 9 x 8 up to 128, 8 x 5 x 4 up to 192.
  CHECK(RowBytesMax(8, 10, format) == 128 + 128 + 192);
  CHECK(bytes == TokenBytesMax(16, format) + RowBytesMax(8, 10, format));
}

TEST_CASE("CheckExtras: a sample that has not the job's tensors is refused by name", "[delivery]") {
  TensorFormat format;
  Sample sample = SampleOf(3, 1);
  CHECK(CheckExtras(sample, format).ok());
  format.extras = {SpecOf<int32_t>("x", ElementType::kInt32, {kTokenSize}, ExtraLayout::kPad, 0)};
  CHECK_THAT(CheckExtras(sample, format), HasMessage("has 0 extra tensors, the job 1"));
  sample.extras = {TensorOf<int32_t>("x", ElementType::kInt32, {3}, {1, 2, 3})};
  CHECK(CheckExtras(sample, format).ok());

  SECTION("name") { sample.extras[0].name = "y"; }
  SECTION("type") { sample.extras[0].type = ElementType::kFloat32; }
  SECTION("axes") { sample.extras[0].shape = {3, 1}; }
  SECTION("size") { sample.extras[0].shape = {2}; }
  SECTION("bytes") { sample.extras[0].bytes += "0000"; }
  CHECK_THAT(CheckExtras(sample, format), HasCode(absl::StatusCode::kInternal));
  CHECK_THAT(CheckExtras(sample, format), HasMessage("that is not as the job's \"x\""));
}

}  // namespace
}  // namespace odb
