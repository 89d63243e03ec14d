#include "server/preprocess/tensor_parser.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

namespace odb {
namespace {

ExtraTensorSpec SpecOf(ElementType type, std::vector<int64_t> shape) {
  ExtraTensorSpec spec;
  spec.name = "x";
  spec.type = type;
  spec.shape = std::move(shape);
  return spec;
}

NamedTensor Parsed(const std::string& json, const ExtraTensorSpec& spec, int64_t num_tokens = 3) {
  simdjson::dom::parser parser;
  NamedTensor tensor;
  const auto rejection = ParseTensor(parser.parse(json), spec, num_tokens, &tensor);
  if (rejection) FAIL(rejection->detail);
  return tensor;
}

std::string Fault(const std::string& json, const ExtraTensorSpec& spec, int64_t num_tokens = 3) {
  simdjson::dom::parser parser;
  NamedTensor tensor;
  const auto rejection = ParseTensor(parser.parse(json), spec, num_tokens, &tensor);
  if (!rejection) return "a tensor";
  CHECK(rejection->reason == QuarantineReason::kBadTensor);
  return rejection->detail;
}

template <typename T>
std::vector<T> Elements(const std::string& bytes) {
  std::vector<T> elements(bytes.size() / sizeof(T));
  std::memcpy(elements.data(), bytes.data(), bytes.size());
  return elements;
}

using Sizes = std::vector<int64_t>;

TEST_CASE("ParseTensor: nested arrays become elements in row-major order", "[preprocess]") {
  const NamedTensor matrix =
      Parsed("[[1, 2, 3], [4, 5, 6]]", SpecOf(ElementType::kInt32, {kAnySize, 3}));
  CHECK(matrix.name == "x");
  CHECK(matrix.type == ElementType::kInt32);
  CHECK(matrix.shape == Sizes{2, 3});
  CHECK(Elements<int32_t>(matrix.bytes) == std::vector<int32_t>{1, 2, 3, 4, 5, 6});

  const NamedTensor scalar = Parsed("2.5", SpecOf(ElementType::kFloat64, {}));
  CHECK(scalar.shape.empty());
  CHECK(Elements<double>(scalar.bytes) == std::vector<double>{2.5});

  const NamedTensor cube = Parsed("[[[1], [0]], [[true], [false]]]",
                                  SpecOf(ElementType::kBool, {2, kAnySize, kAnySize}));
  CHECK(cube.shape == Sizes{2, 2, 1});
  CHECK(Elements<uint8_t>(cube.bytes) == std::vector<uint8_t>{1, 0, 1, 0});
}

TEST_CASE("ParseTensor: an empty axis leaves those below it empty, unless they are fixed",
          "[preprocess]") {
  CHECK(Parsed("[]", SpecOf(ElementType::kInt64, {kAnySize, 4})).shape == Sizes{0, 4});
  CHECK(Parsed("[]", SpecOf(ElementType::kInt64, {kAnySize, kAnySize})).shape == Sizes{0, 0});
}

TEST_CASE("ParseTensor: a fault is named with its place", "[preprocess]") {
  const auto per_token = SpecOf(ElementType::kFloat32, {kTokenSize, 2});
  CHECK(Parsed("[[1, 2], [3, 4], [5, 6]]", per_token).shape == Sizes{3, 2});
  CHECK(Fault("[[1, 2], [3, 4]]", per_token) == "x has 2 entries, not 3");
  CHECK(Fault("[[1, 2], [3], [5, 6]]", per_token) == "x[1] has 1 entries, not 2");
  CHECK(Fault("[[1, 2], [3, null], [5, 6]]", per_token) == "x[1][1] is \"null\", no float32");
  CHECK(Fault("[[1, 2], [3, [4]], [5, 6]]", per_token) == "x[1][1] is \"[4]\", no float32");
  CHECK(Fault("[1, 2, 3]", per_token) == "x[0] is no array");
  CHECK(Fault("{}", per_token) == "x is no array");
  CHECK(Fault("[[1], [2, 3]]", SpecOf(ElementType::kInt64, {kAnySize, kAnySize})) ==
        "x[1] has 2 entries, not 1");
}

TEST_CASE("ParseTensor: a value that the type does not hold is refused", "[preprocess]") {
  const auto [type, json] = GENERATE(table<ElementType, std::string>({
      {ElementType::kUint8, "256"},
      {ElementType::kUint8, "-1"},
      {ElementType::kInt32, "2147483648"},
      {ElementType::kInt64, "9223372036854775808"},
      {ElementType::kInt64, "1.5"},
      {ElementType::kBool, "2"},
      {ElementType::kFloat32, "1e39"},
      {ElementType::kFloat16, "65520"},
      {ElementType::kBfloat16, "3.4e38"},
      {ElementType::kFloat32, "\"1\""},
  }));

  CHECK(Fault(json, SpecOf(type, {})).find("x is ") == 0);
}

TEST_CASE("AppendElement: half precision rounds to the nearest, ties to even", "[preprocess]") {
  const auto bits = [](ElementType type, double value) {
    std::string bytes;
    REQUIRE(AppendElement(type, value, &bytes));
    return Elements<uint16_t>(bytes).at(0);
  };
  CHECK(bits(ElementType::kFloat16, 1.0) == 0x3c00);
  CHECK(bits(ElementType::kFloat16, -2.0) == 0xc000);
  CHECK(bits(ElementType::kFloat16, 65504) == 0x7bff);
  CHECK(bits(ElementType::kFloat16, 65519) == 0x7bff);
  CHECK(bits(ElementType::kFloat16, 1 + 0x1p-11) == 0x3c00);        // a tie: down to even
  CHECK(bits(ElementType::kFloat16, 1 + 3 * 0x1p-11) == 0x3c02);    // a tie: up to even
  CHECK(bits(ElementType::kFloat16, 0x1p-14) == 0x0400);            // the smallest normal one
  CHECK(bits(ElementType::kFloat16, 0x1p-24) == 0x0001);            // the smallest one
  CHECK(bits(ElementType::kFloat16, 0x1p-25) == 0x0000);            // half of it: to even
  CHECK(bits(ElementType::kFloat16, 3 * 0x1p-25) == 0x0002);        // a tie: up to even
  CHECK(bits(ElementType::kFloat16, 0x1p-14 - 0x1p-26) == 0x0400);  // up to the normal ones
  CHECK(bits(ElementType::kFloat16, -0.0) == 0x8000);
  CHECK(bits(ElementType::kBfloat16, 1.0) == 0x3f80);
  CHECK(bits(ElementType::kBfloat16, 1 + 0x1p-8) == 0x3f80);
  CHECK(bits(ElementType::kBfloat16, 1 + 3 * 0x1p-8) == 0x3f82);
  CHECK(bits(ElementType::kBfloat16, -0.5) == 0xbf00);
}

TEST_CASE("AppendElement: what is refused is not appended", "[preprocess]") {
  std::string bytes;
  CHECK_FALSE(AppendElement(ElementType::kUint8, int64_t{300}, &bytes));
  CHECK_FALSE(AppendElement(ElementType::kInt64, 1.5, &bytes));
  CHECK_FALSE(AppendElement(ElementType::kFloat16, 1e6, &bytes));
  CHECK(bytes.empty());
  CHECK(AppendElement(ElementType::kBfloat16, int64_t{3}, &bytes));
  CHECK(bytes.size() == 2);
}

}  // namespace
}  // namespace odb
