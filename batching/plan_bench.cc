// How long one plan takes: rounds of R ranks with N samples each, lengths as in chat data.
//   bazel run -c opt //batching:plan_bench
#include <benchmark/benchmark.h>

#include "base/random.h"
#include "batching/plan.h"

namespace odb {
namespace {

std::vector<Offer> MakeOffers(int64_t num_ranks, int64_t num_samples) {
  Random random(67108);
  std::vector<Offer> offers(static_cast<size_t>(num_ranks));
  for (Offer& offer : offers) {
    offer.header.state = OfferState::kReady;
    for (int64_t i = 0; i < num_samples; ++i) {
      SampleShape sample;
      // A long tail: products of two uniform numbers, 16 to 4096 tokens.
      sample.length = 16 + static_cast<int32_t>(random.Below(64) * random.Below(64) *
                                                random.Below(4096) / 4096);
      sample.loss_tokens = sample.length / 2;
      sample.id_hash = random.Next();
      offer.window.push_back(sample);
    }
  }
  return offers;
}

void BM_MakePlan(benchmark::State& state, Policy policy) {
  const std::vector<Offer> offers = MakeOffers(state.range(0), state.range(1));
  PlanOptions options;
  options.policy = policy;
  options.budget = 16384;
  options.max_steps = static_cast<int32_t>(state.range(2));
  for (auto _ : state) {
    auto plan = MakePlan(options, {}, offers);
    benchmark::DoNotOptimize(plan);
  }
}
void Worlds(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"ranks", "samples", "max_steps"})
      ->Args({8, 1024, 1024})
      ->Args({8, 1024, 32})
      ->Args({1, 1024, 1024})
      ->Args({1024, 128, 128})
      ->Unit(benchmark::kMicrosecond);
}
BENCHMARK_CAPTURE(BM_MakePlan, paper, Policy::kPaper)->Apply(Worlds);
BENCHMARK_CAPTURE(BM_MakePlan, balanced, Policy::kBalanced)->Apply(Worlds);

}  // namespace
}  // namespace odb

BENCHMARK_MAIN();
