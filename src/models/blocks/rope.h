// Defines rotary embedding of queries and keys. Source: RoFormer. The types of scaling follow
// transformers/modeling_rope_utils.py.
#pragma once

#include "models/config.h"
#include "models/model.h"

namespace fettle {

// Cosines and sines [B, T, 1, R / 2] in f32. R = rope.rotary_dim(head_dim) dims of a head are rotated.
struct Rope {
  Tensor cos, sin;
  bool interleaved = false;
};

// Returns the frequencies [R / 2], one for each pair of rotated dims. The angle of a pair is the position times its
// frequency. longrope divides the frequencies by `divisors`, which is empty for other types.
std::vector<double> inverse_frequencies(const RopeParameters& rope, int64_t rotary_dim,
                                        const std::vector<double>& divisors);

// Returns the cosines and sines for the positions. longrope has different factors for short and for long documents.
// Only longrope and dynamic use `lengths_B` (i32), the number of tokens of each line's document. If it is null, each
// line's largest position + 1 is used.
Rope rope_tables(const RopeParameters& rope, int64_t head_dim, const Tensor& positions_BT, const Tensor& lengths_B);
// Rotates the first R dims of x and leaves the other dims unchanged. The pair of dims i and i + R / 2 is rotated by
// angle i; with `interleaved`, the pair is dims 2i and 2i + 1.
Tensor apply_rope(const Rope& rope, const Tensor& x_BTNH);

}  // namespace fettle
