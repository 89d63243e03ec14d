#include "server/preprocess/extra_tensor.h"

#include <cmath>
#include <cstring>
#include <limits>

namespace odb {
namespace {

template <typename T>
void AppendBytes(T value, std::string* out) {
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  out->append(bytes, sizeof(T));
}

template <typename T>
bool AppendInteger(int64_t value, std::string* out) {
  if (value < int64_t{std::numeric_limits<T>::min()} ||
      value > int64_t{std::numeric_limits<T>::max()}) {
    return false;
  }
  AppendBytes(static_cast<T>(value), out);
  return true;
}

uint32_t BitsOf(float value) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

// Rounded to the nearest, ties to even; infinity if it is too large.
uint16_t Bfloat16Of(float value) {
  const uint32_t bits = BitsOf(value);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

uint16_t Float16Of(float value) {
  constexpr uint32_t kInfinity = 0x7c00;
  const uint32_t sign = (BitsOf(value) >> 16) & 0x8000;
  const float magnitude = std::fabs(value);
  const uint32_t bits = BitsOf(magnitude);
  uint32_t half = 0;
  if (magnitude >= 65520.0F) {  // half way from the largest value, 65504, to the next one
    half = kInfinity;
  } else if (magnitude < 0x1p-14F) {
    // The last bit of 0.5 is 2^-24, that of the smallest values here: adding it rounds.
    half = BitsOf(magnitude + 0.5F) - BitsOf(0.5F);
  } else {
    half = (bits - ((127 - 15) << 23) + 0xfff + ((bits >> 13) & 1)) >> 13;
  }
  return static_cast<uint16_t>(sign | half);
}

bool AppendHalf(uint16_t half, uint16_t infinity, std::string* out) {
  if ((half & 0x7fff) == infinity) return false;
  AppendBytes(half, out);
  return true;
}

}  // namespace

bool AppendElement(ElementType type, int64_t value, std::string* out) {
  switch (type) {
    case ElementType::kInt32:
      return AppendInteger<int32_t>(value, out);
    case ElementType::kInt64:
      return AppendInteger<int64_t>(value, out);
    case ElementType::kUint8:
      return AppendInteger<uint8_t>(value, out);
    case ElementType::kBool:
      if (value != 0 && value != 1) return false;
      return AppendInteger<uint8_t>(value, out);
    default:
      return AppendElement(type, static_cast<double>(value), out);
  }
}

bool AppendElement(ElementType type, double value, std::string* out) {
  const auto single = static_cast<float>(value);
  switch (type) {
    case ElementType::kFloat64:
      AppendBytes(value, out);
      return true;
    case ElementType::kFloat32:
      if (std::isinf(single)) return false;
      AppendBytes(single, out);
      return true;
    case ElementType::kFloat16:
      return AppendHalf(Float16Of(single), 0x7c00, out);
    case ElementType::kBfloat16:
      return AppendHalf(Bfloat16Of(single), 0x7f80, out);
    default:
      return false;
  }
}

const char* ElementTypeName(ElementType type) {
  switch (type) {
    case ElementType::kInt32:
      return "int32";
    case ElementType::kInt64:
      return "int64";
    case ElementType::kFloat32:
      return "float32";
    case ElementType::kFloat64:
      return "float64";
    case ElementType::kFloat16:
      return "float16";
    case ElementType::kBfloat16:
      return "bfloat16";
    case ElementType::kUint8:
      return "uint8";
    case ElementType::kBool:
      return "bool";
  }
  return "unknown";
}

}  // namespace odb
