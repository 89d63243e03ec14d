#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace odb {

// Pure helpers of the text that odbctl prints.

// 1234567 -> "1,234,567".
std::string WithCommas(int64_t number);

// 0.9341 -> "93.4 %".
std::string Percent(double share);

// 3725.2 -> "1:02:05".
std::string Clock(double seconds);

// Bytes in units of 2^30, with as many digits as say something: "1.2", "0.15", "0.05", "0".
std::string Gibibytes(int64_t bytes);

// 420 -> "420 us", 31200 -> "31 ms", 412000 -> "0.4 s", 125000000 -> "0:02:05".
std::string TimeSpan(int64_t microseconds);

// Columns of UTF-8 text: its characters.
size_t Columns(absl::string_view text);

// At most `columns` columns; what is cut off is marked with "...".
std::string Cut(absl::string_view text, size_t columns);

}  // namespace odb
