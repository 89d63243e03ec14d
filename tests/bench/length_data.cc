#include "tests/bench/length_data.h"

#include <simdjson.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include "base/random.h"
#include "shared_data.h"

namespace odb {
namespace {

double Uniform(Random* random) {
  return (static_cast<double>(random->Below(uint64_t{1} << 32)) + 0.5) / 4294967296.0;
}

double Normal(Random* random) {
  constexpr double kTwoPi = 6.283185307179586;
  return std::sqrt(-2 * std::log(Uniform(random))) * std::cos(kTwoPi * Uniform(random));
}

// Lengths at 1000 quantiles of one set, straight lines between those that are known.
void AppendQuantiles(const simdjson::dom::object& set, std::vector<double>* lengths) {
  const std::vector<std::pair<double, const char*>> known = {
      {0, "min"}, {0.1, "p10"}, {0.5, "p50"}, {0.9, "p90"}, {0.99, "p99"}, {1, "max"}};
  std::vector<std::pair<double, double>> points;
  for (const auto& [quantile, name] : known) {
    double length = 0;
    if (set[name].get(length) == simdjson::SUCCESS) points.emplace_back(quantile, length);
  }
  double num = 0;
  if (points.size() != known.size() || set["n"].get(num) != simdjson::SUCCESS) return;
  const int64_t samples = std::max<int64_t>(static_cast<int64_t>(num), 1);
  size_t at = 0;
  for (int64_t i = 0; i < samples; ++i) {
    const double quantile = (static_cast<double>(i) + 0.5) / static_cast<double>(samples);
    while (at + 2 < points.size() && points[at + 1].first < quantile) ++at;
    const auto& [from, low] = points[at];
    const auto& [to, high] = points[at + 1];
    lengths->push_back(low + (high - low) * (quantile - from) / (to - from));
  }
}

LengthData RealLengths() {
  LengthData real;
  const std::string folder = ODB_SHARED_DATA_DIR;
  if (folder.empty()) return real;
  simdjson::dom::parser parser;
  simdjson::dom::element root;
  simdjson::dom::object sets;
  if (parser.load(folder + "/data/length_stats.json").get(root) != simdjson::SUCCESS ||
      root["text"].get(sets) != simdjson::SUCCESS) {
    std::fprintf(stderr, "no text lengths in %s/data/length_stats.json\n", folder.c_str());
    return real;
  }
  for (const auto& [name, statistics] : sets) {
    simdjson::dom::object set;
    if (statistics["qwen3_chatml"].get(set) == simdjson::SUCCESS) {
      AppendQuantiles(set, &real.quantiles);
    }
  }
  if (!real.quantiles.empty()) real.name = "real";
  return real;
}

}  // namespace

std::vector<LengthData> AllLengthData() {
  std::vector<LengthData> all = {{"log-normal 0.29", 600, 0.29, false, {}},
                                 {"log-normal 0.48", 1000, 0.48, false, {}},
                                 {"log-normal 1.00", 1500, 1.00, false, {}},
                                 {"bimodal 0.80", 400, 0.80, true, {}}};
  LengthData real = RealLengths();
  if (!real.name.empty()) all.push_back(std::move(real));
  return all;
}

std::vector<int32_t> DrawLengths(const LengthData& data, int64_t num, int32_t longest,
                                 uint64_t seed) {
  Random random(seed);
  std::vector<int32_t> lengths;
  lengths.reserve(static_cast<size_t>(num));
  for (int64_t i = 0; i < num; ++i) {
    double length = 0;
    if (!data.quantiles.empty()) {
      length = data.quantiles[static_cast<size_t>(random.Below(data.quantiles.size()))];
    } else if (data.bimodal) {
      // Four in five around 0.6 of the mean, one in five around 2.6: CV 0.82 with 0.12 spread.
      const double mode = random.Below(5) == 0 ? 2.6 * data.mean : 0.6 * data.mean;
      length = mode * (1 + 0.12 * Normal(&random));
    } else {
      const double variance = std::log(1 + data.cv * data.cv);
      length = data.mean * std::exp(std::sqrt(variance) * Normal(&random) - variance / 2);
    }
    length = std::min(std::max(length, 8.0), static_cast<double>(longest));
    lengths.push_back(static_cast<int32_t>(std::lround(length)));
  }
  return lengths;
}

}  // namespace odb
