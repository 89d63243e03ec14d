#include "batching/pools.h"

#include <algorithm>
#include <cstddef>
#include <map>

namespace odb {

int64_t Pool::largest_window() const {
  int64_t largest = 0;
  auto end = static_cast<int64_t>(samples.size());
  for (size_t i = begins.size(); i > 0; --i) {
    largest = std::max(largest, end - begins[i - 1]);
    end = begins[i - 1];
  }
  return largest;
}

std::vector<Pool> MakePools(absl::Span<const Offer> offers,
                            absl::Span<const int32_t> node_of_rank) {
  std::vector<Pool> pools;
  std::map<int32_t, size_t> pool_of_node;
  for (size_t rank = 0; rank < offers.size(); ++rank) {
    size_t pool = pools.size();
    if (!node_of_rank.empty()) pool = pool_of_node.emplace(node_of_rank[rank], pool).first->second;
    if (pool == pools.size()) pools.emplace_back();
    pools[pool].ranks.push_back(static_cast<int32_t>(rank));
  }
  for (Pool& pool : pools) {
    if (pool.ranks.size() == 1) {
      pool.begins = {0};
      pool.samples = offers[static_cast<size_t>(pool.ranks[0])].window;
      continue;
    }
    size_t num_samples = 0;
    for (const int32_t rank : pool.ranks) {
      num_samples += offers[static_cast<size_t>(rank)].window.size();
    }
    pool.storage.reserve(num_samples);
    pool.refs.reserve(num_samples);
    for (const int32_t rank : pool.ranks) {
      const std::vector<SampleShape>& window = offers[static_cast<size_t>(rank)].window;
      pool.begins.push_back(static_cast<int32_t>(pool.storage.size()));
      pool.storage.insert(pool.storage.end(), window.begin(), window.end());
      for (size_t i = 0; i < window.size(); ++i) {
        pool.refs.push_back({rank, static_cast<int32_t>(i)});
      }
    }
    pool.samples = pool.storage;
  }
  return pools;
}

}  // namespace odb
