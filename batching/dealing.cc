#include "batching/dealing.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

namespace odb {
namespace {

// Sweeps over the steps, and the straggler's price in the first of them: two sweeps at each price,
// which then halves. A price of 2^12 asks for 16 (mean length)^2 of variance for a straggler of 1.
constexpr int kSweeps = 12;
constexpr int kFirstPriceBits = 12;
// Costs and tokens are counted in so many bits, lengths in parts of the mean length.
constexpr int kCostBits = 20;
constexpr int kTokenBits = 24;
constexpr int kLengthBits = 12;
constexpr int64_t kLongestLength = int64_t{1} << (2 * kLengthBits);  // longer ones count as this

// How far to shift right so that `value` has at most `bits` bits.
int ShiftTo(int64_t value, int bits) {
  int shift = 0;
  while ((value >> shift) >= (int64_t{1} << bits)) ++shift;
  return shift;
}

// A group at its place, or an empty place.
struct Slot {
  int64_t tokens = 0;
  int32_t cost = 0;
  int32_t samples = 0;
  int32_t group = -1;  // of its pool, by the order given
};

// Sums over the slots of a step.
struct Step {
  int64_t tokens = 0;
  int64_t samples = 0;
  int64_t cost = 0;
  int64_t largest = 0;  // cost of a slot
  int64_t second = 0;   // ... and of another
  int64_t length = 0;   // tokens / samples
  int64_t straggler = 0;
};

// The slots of a round, and exchanges between them.
class Table {
 public:
  Table(int64_t num_steps, const std::vector<PoolGroups>& pools);

  int64_t stragglers() const { return stragglers_; }

  // How steps are paired in a sweep: the longest with the shortest; each of the shorter half with
  // one of the longer; or any.
  enum class Pairing { kExtremes, kHalves, kAny };
  void Sweep(Pairing pairing, int price_bits, int64_t most_stragglers, Random* random);

  // Orders the groups as they lie in the table.
  void Store(std::vector<PoolGroups>* pools) const;

 private:
  Slot* SlotsOf(size_t step) { return &slots_[step * num_ranks_]; }
  void PutByCost(const PoolGroups& pool, size_t first_rank);
  void SumUp();
  // The mean length of a step. One without groups is as long as the mean.
  int64_t LengthOf(int64_t tokens, int64_t samples) const {
    return samples == 0 ? mean_length_ : std::min(tokens / samples, kLongestLength);
  }
  int64_t StragglerOf(int64_t largest, int64_t cost) const {
    return cost == 0 ? 0 : largest * static_cast<int64_t>(num_ranks_) * kStragglerUnit / cost;
  }
  int64_t DistanceOf(int64_t length) const {
    return (length - mean_length_) * (length - mean_length_);
  }
  void FindLargest(size_t step);
  void Replace(size_t step, Slot* slot, const Slot& by, int64_t length, int64_t straggler);
  void Exchange(size_t a, Slot* of_a, size_t b, Slot* of_b, int price_bits,
                int64_t most_stragglers);
  void OrderSteps(Pairing pairing, Random* random);

  size_t num_ranks_ = 0;
  std::vector<size_t> pool_ranks_;  // [pool]
  std::vector<Slot> slots_;         // [step][rank], ranks by pool
  std::vector<Step> steps_;
  std::vector<uint64_t> keys_;  // scratch
  std::vector<size_t> order_;   // scratch: of the steps
  int cost_shift_ = 0;
  int token_shift_ = 0;
  int64_t length_factor_ = 1;
  int64_t mean_length_ = 0;
  int64_t stragglers_ = 0;
};

Table::Table(int64_t num_steps, const std::vector<PoolGroups>& pools)
    : steps_(static_cast<size_t>(num_steps)) {
  int64_t highest_cost = 0;
  int64_t most_tokens = 0;
  int64_t samples = 0;
  for (const PoolGroups& pool : pools) {
    pool_ranks_.push_back(static_cast<size_t>(pool.num_ranks));
    num_ranks_ += pool_ranks_.back();
    for (const CostedGroup& group : pool.groups) {
      highest_cost = std::max(highest_cost, group.cost);
      most_tokens = std::max(most_tokens, group.tokens);
      samples += group.run.size();
    }
  }
  cost_shift_ = ShiftTo(highest_cost, kCostBits);
  token_shift_ = ShiftTo(most_tokens, kTokenBits);
  int64_t tokens = 0;
  for (const PoolGroups& pool : pools) {
    for (const CostedGroup& group : pool.groups) tokens += group.tokens >> token_shift_;
  }
  constexpr int kMoreBits = 18;
  length_factor_ =
      std::max<int64_t>((samples << (kLengthBits + kMoreBits)) / std::max<int64_t>(tokens, 1), 1);
  slots_.resize(steps_.size() * num_ranks_);
  size_t first_rank = 0;
  for (const PoolGroups& pool : pools) {
    PutByCost(pool, first_rank);
    first_rank += static_cast<size_t>(pool.num_ranks);
  }
  for (Slot& slot : slots_) slot.tokens = (slot.tokens * length_factor_) >> kMoreBits;
  SumUp();
}

void Table::PutByCost(const PoolGroups& pool, size_t first_rank) {
  // Highest cost first, then as given.
  keys_.clear();
  for (const CostedGroup& group : pool.groups) {
    const auto cost = static_cast<uint64_t>(group.cost >> cost_shift_);
    keys_.push_back(((uint64_t{1} << kCostBits) - cost) << 32 | keys_.size());
  }
  std::sort(keys_.begin(), keys_.end());
  const auto of_pool = static_cast<size_t>(pool.num_ranks);
  size_t step = 0;
  size_t rank = 0;
  for (const uint64_t key : keys_) {
    const auto at = static_cast<size_t>(key & 0xffffffffU);
    const CostedGroup& group = pool.groups[at];
    Slot& slot = SlotsOf(step)[first_rank + rank];
    slot.group = static_cast<int32_t>(at);
    slot.cost = static_cast<int32_t>(std::max<int64_t>(group.cost >> cost_shift_, 1));
    slot.tokens = group.tokens >> token_shift_;
    slot.samples = group.run.size();
    if (++rank == of_pool) {
      rank = 0;
      ++step;
    }
  }
}

void Table::SumUp() {
  int64_t tokens = 0;
  int64_t samples = 0;
  for (size_t step = 0; step < steps_.size(); ++step) {
    Step& sums = steps_[step];
    const Slot* slots = SlotsOf(step);
    for (size_t rank = 0; rank < num_ranks_; ++rank) {
      sums.tokens += slots[rank].tokens;
      sums.samples += slots[rank].samples;
      sums.cost += slots[rank].cost;
    }
    tokens += sums.tokens;
    samples += sums.samples;
  }
  mean_length_ = tokens / std::max<int64_t>(samples, 1);
  for (size_t step = 0; step < steps_.size(); ++step) {
    Step& sums = steps_[step];
    FindLargest(step);
    sums.length = LengthOf(sums.tokens, sums.samples);
    sums.straggler = StragglerOf(sums.largest, sums.cost);
    stragglers_ += sums.straggler;
  }
}

void Table::FindLargest(size_t step) {
  int32_t largest = 0;
  int32_t second = 0;
  const Slot* slots = SlotsOf(step);
  for (size_t rank = 0; rank < num_ranks_; ++rank) {
    second = std::max(second, std::min(largest, slots[rank].cost));
    largest = std::max(largest, slots[rank].cost);
  }
  steps_[step].largest = largest;
  steps_[step].second = second;
}

void Table::Replace(size_t step, Slot* slot, const Slot& by, int64_t length, int64_t straggler) {
  Step& sums = steps_[step];
  const Slot out = *slot;
  *slot = by;
  sums.tokens += by.tokens - out.tokens;
  sums.samples += by.samples - out.samples;
  sums.cost += by.cost - out.cost;
  sums.length = length;
  stragglers_ += straggler - sums.straggler;
  sums.straggler = straggler;
  if (out.cost < sums.second || (out.cost == sums.largest && by.cost >= sums.second)) {
    const int64_t largest = out.cost == sums.largest ? 0 : sums.largest;
    sums.second = std::max(sums.second, std::min<int64_t>(largest, by.cost));
    sums.largest = std::max<int64_t>(largest, by.cost);
  } else {
    FindLargest(step);
  }
}

// Exchanges two slots if that is worth its price.
void Table::Exchange(size_t a, Slot* of_a, size_t b, Slot* of_b, int price_bits,
                     int64_t most_stragglers) {
  const Step& step_a = steps_[a];
  const Step& step_b = steps_[b];
  const int64_t tokens = of_b->tokens - of_a->tokens;
  const int64_t samples = of_b->samples - of_a->samples;
  const int64_t cost = of_b->cost - of_a->cost;
  const int64_t length_a = LengthOf(step_a.tokens + tokens, step_a.samples + samples);
  const int64_t length_b = LengthOf(step_b.tokens - tokens, step_b.samples - samples);
  const int64_t gain = DistanceOf(step_a.length) + DistanceOf(step_b.length) -
                       DistanceOf(length_a) - DistanceOf(length_b);
  if (gain <= 0) return;
  const auto largest_after = [](const Step& step, const Slot& out, const Slot& in) {
    return std::max<int64_t>(out.cost == step.largest ? step.second : step.largest, in.cost);
  };
  const int64_t straggler_a = StragglerOf(largest_after(step_a, *of_a, *of_b), step_a.cost + cost);
  const int64_t straggler_b = StragglerOf(largest_after(step_b, *of_b, *of_a), step_b.cost - cost);
  const int64_t loss = straggler_a + straggler_b - step_a.straggler - step_b.straggler;
  if (loss * (int64_t{1} << price_bits) >= gain) return;
  if (loss > 0 && stragglers_ + loss > most_stragglers) return;
  const Slot into_b = *of_a;
  Replace(a, of_a, *of_b, length_a, straggler_a);
  Replace(b, of_b, into_b, length_b, straggler_b);
}

void Table::OrderSteps(Pairing pairing, Random* random) {
  order_.resize(steps_.size());
  std::iota(order_.begin(), order_.end(), size_t{0});
  if (pairing == Pairing::kAny) {
    Shuffle(&order_, random);
    return;
  }
  std::sort(order_.begin(), order_.end(), [this](size_t a, size_t b) {
    return std::make_pair(steps_[a].length, a) < std::make_pair(steps_[b].length, b);
  });
  if (pairing == Pairing::kExtremes) {
    std::reverse(order_.begin() + static_cast<std::ptrdiff_t>(order_.size() / 2), order_.end());
  }
}

void Table::Sweep(Pairing pairing, int price_bits, int64_t most_stragglers, Random* random) {
  OrderSteps(pairing, random);
  const size_t half = steps_.size() / 2;
  for (size_t i = 0; i < half; ++i) {
    const size_t a = order_[half + i];
    const size_t b = order_[i];
    const uint64_t turn = random->Next() >> 32;
    size_t first_rank = 0;
    for (const size_t of_pool : pool_ranks_) {
      Slot* of_a = SlotsOf(a) + first_rank;
      Slot* of_b = SlotsOf(b) + first_rank;
      first_rank += of_pool;
      size_t other = of_pool == 1 ? 0 : static_cast<size_t>(turn % of_pool);
      for (size_t rank = 0; rank < of_pool; ++rank) {
        if (of_a[rank].group >= 0 && of_b[other].group >= 0) {
          Exchange(a, &of_a[rank], b, &of_b[other], price_bits, most_stragglers);
        }
        if (++other == of_pool) other = 0;
      }
    }
  }
}

void Table::Store(std::vector<PoolGroups>* pools) const {
  std::vector<CostedGroup> ordered;
  size_t first_rank = 0;
  for (PoolGroups& pool : *pools) {
    const auto of_pool = static_cast<size_t>(pool.num_ranks);
    ordered.clear();
    for (size_t i = 0; i < pool.groups.size(); ++i) {
      const Slot& slot = slots_[i / of_pool * num_ranks_ + first_rank + i % of_pool];
      ordered.push_back(pool.groups[static_cast<size_t>(slot.group)]);
    }
    pool.groups.swap(ordered);
    first_rank += of_pool;
  }
}

// floor(sqrt(value)).
int64_t Root(int64_t value) {
  int64_t root = 0;
  for (int64_t bit = int64_t{1} << 31; bit > 0; bit >>= 1) {
    if ((root + bit) <= value / (root + bit)) root += bit;
  }
  return root;
}

}  // namespace

int64_t DealingSlack(int64_t steps, int64_t num_pools) {
  const int64_t by_position =
      num_pools > 1 ? Root(steps * (kStragglerUnit * kStragglerUnit)) / 6 : kStragglerUnit;
  return std::min(steps * kStragglerUnit / 8, by_position);
}

void DealGroups(int64_t steps, Random* random, std::vector<PoolGroups>* pools) {
  Table table(steps, *pools);
  const int64_t most_stragglers =
      table.stragglers() + DealingSlack(steps, static_cast<int64_t>(pools->size()));
  for (int sweep = 0; sweep < kSweeps; ++sweep) {
    const auto pairing = static_cast<Table::Pairing>(sweep % 3);
    table.Sweep(pairing, kFirstPriceBits - sweep / 2, most_stragglers, random);
  }
  table.Store(pools);
}

}  // namespace odb
