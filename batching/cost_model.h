#pragma once

#include <cstdint>

namespace odb {

// What a group costs its rank in compute, in units of one token of a very short sample: each token
// costs one for everything that is linear in length, and a share that grows with the length of its
// sample for attention.
//
//   cost of a group = padded tokens x (1 + padded length / quadratic_length)
//
// For a decoder of hidden size h, whose layers take 24 h^2 + 4 h L operations per token of a sample
// of L tokens, quadratic_length is 6 h. 0: no quadratic part.
struct CostModel {
  int64_t quadratic_length = 24'576;  // tokens; the default is h = 4096

  // `num_samples` rows of `padded_length` tokens, which are at most 2^31 - 1 each.
  int64_t GroupCost(int64_t num_samples, int64_t padded_length) const {
    const int64_t tokens = num_samples * padded_length;
    if (quadratic_length <= 0) return tokens;
    // tokens x length / quadratic_length, the quotient and the rest apart: no overflow.
    return tokens + tokens / quadratic_length * padded_length +
           tokens % quadratic_length * padded_length / quadratic_length;
  }
};

}  // namespace odb
