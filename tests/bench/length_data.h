#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace odb {

// A named distribution of sample lengths [tokens].
struct LengthData {
  std::string name;
  double mean = 0;
  double cv = 0;                  // standard deviation / mean
  bool bimodal = false;           // else log-normal
  std::vector<double> quantiles;  // if not empty: lengths at equidistant quantiles, to draw from
};

// Log-normal with CV 0.29, 0.48 and 1.00 and bimodal with 0.80, as published for vision-language
// fine-tuning sets; then, where the third-party data is there, the text sets of its statistics as
// one mixture ("real").
std::vector<LengthData> AllLengthData();

// `num` lengths, 8 .. longest. The same for the same arguments.
std::vector<int32_t> DrawLengths(const LengthData& data, int64_t num, int32_t longest,
                                 uint64_t seed);

}  // namespace odb
