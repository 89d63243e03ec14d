#pragma once

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "server/delivery/rank_world.h"

// What tests of whole epochs ask of the steps that the trainers of a RankWorld got.

namespace odb {

using Ids = std::map<std::pair<int32_t, int64_t>, int>;  // sample -> times

inline void CheckAllOk(const std::vector<absl::Status>& results) {
  for (const absl::Status& status : results) CHECK(status == absl::OkStatus());
}

inline void AddIds(const std::vector<v1::Step>& steps, int64_t iterator, Ids* ids) {
  for (const v1::Step& step : steps) {
    if (step.iterator() != iterator) continue;
    for (int i = 0; i < step.sample_keys_size(); ++i) {
      ++(*ids)[{step.sample_sources(i), step.sample_keys(i)}];
    }
  }
}

inline int64_t TimesMax(const Ids& ids) {
  int64_t times = 0;
  for (const auto& [id, count] : ids) times = std::max<int64_t>(times, count);
  return times;
}

// Every rank has the same steps; global counts are the sums of the local ones.
inline void CheckTotals(RankWorld* world, int32_t ranks) {
  const std::vector<v1::Step>& first = world->trainer(0)->steps;
  bool sizes_equal = true;
  bool sums_right = true;
  bool scales_right = true;
  for (int32_t rank = 1; rank < ranks; ++rank) {
    sizes_equal = sizes_equal && world->trainer(rank)->steps.size() == first.size();
  }
  REQUIRE(sizes_equal);
  for (size_t i = 0; i < first.size(); ++i) {
    v1::Counts sum;
    double scales = 0;
    for (int32_t rank = 0; rank < ranks; ++rank) {
      const v1::Step& step = world->trainer(rank)->steps[i];
      sum.set_samples(sum.samples() + step.local().samples());
      sum.set_tokens(sum.tokens() + step.local().tokens());
      sum.set_loss_tokens(sum.loss_tokens() + step.local().loss_tokens());
      sum.set_padded_tokens(sum.padded_tokens() + step.local().padded_tokens());
      scales += step.loss_scale();
      sums_right = sums_right && step.index() == first[i].index() &&
                   step.total_samples() == first[i].total_samples() &&
                   step.emitted_samples() == first[i].emitted_samples();
    }
    for (int32_t rank = 0; rank < ranks; ++rank) {
      const v1::Counts& global = world->trainer(rank)->steps[i].global();
      sums_right = sums_right && global.samples() == sum.samples() &&
                   global.tokens() == sum.tokens() && global.loss_tokens() == sum.loss_tokens() &&
                   global.padded_tokens() == sum.padded_tokens();
    }
    // With one step per window the factors are dp_size x local / global.
    scales_right = scales_right && std::abs(scales - ranks) < 1e-9;
  }
  CHECK(sums_right);
  CHECK(scales_right);
}

inline void CheckLedger(const RankWorld& world) {
  const v1::Ledger ledger = world.ledger().Snapshot();
  CHECK(ledger.read() ==
        ledger.emitted() + ledger.quarantined() + ledger.in_flight() + ledger.abandoned());
  CHECK(ledger.in_flight() == 0);
}

}  // namespace odb
