#include "models/blocks/rope.h"

#include <cmath>
#include <numbers>

#include "graph/ops.h"

namespace fettle {
namespace {

// Returns one frequency for each two rotated dims [R / 2]; `divisors` (longrope) may be empty.
std::vector<double> inverse_frequencies(const RopeParameters& rope, int64_t rotary_dim,
                                        const std::vector<double>& divisors) {
  std::vector<double> out;
  for (int64_t i = 0; i < rotary_dim; i += 2) {
    double frequency = std::pow(rope.rope_theta, -static_cast<double>(i) / static_cast<double>(rotary_dim));
    if (!divisors.empty()) frequency /= divisors[static_cast<size_t>(i / 2)];
    if (rope.rope_type == "linear") frequency /= rope.factor;
    if (rope.rope_type == "llama3") {  // keeps high frequencies, divides low ones, blends between
      const double context = static_cast<double>(rope.original_max_position_embeddings);
      const double wavelength = 2 * std::numbers::pi / frequency;
      if (wavelength > context / rope.low_freq_factor) {
        frequency /= rope.factor;
      } else if (wavelength >= context / rope.high_freq_factor) {
        const double smooth =
            (context / wavelength - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
        frequency = (1 - smooth) * frequency / rope.factor + smooth * frequency;
      }
    }
    out.push_back(frequency);
  }
  return out;
}

}  // namespace

Rope rope_tables(const RopeParameters& rope, int64_t head_dim, const Tensor& positions_BT, const Tensor& lengths_B) {
  PathScope scope("rope");
  const int64_t rotary_dim = rope.rotary_dim(head_dim), b = positions_BT.dim(0), t = positions_BT.dim(1);
  auto table = [&](const std::vector<double>& divisors) {
    return literal(inverse_frequencies(rope, rotary_dim, divisors), {DType::kF32, {rotary_dim / 2}});
  };
  Tensor frequencies = table(rope.short_factor);
  if (rope.rope_type == "longrope") {
    const Tensor lengths =
        lengths_B ? convert(lengths_B, DType::kF32) : reduce_max(convert(positions_BT, DType::kF32), {1}) + 1.0;
    const Tensor original = constant(static_cast<double>(rope.original_max_position_embeddings), DType::kF32);
    const Tensor is_long = reshape(compare(lengths, "GT", original), {b, 1, 1, 1});
    frequencies = select(is_long, table(rope.long_factor), frequencies);
  }
  const Tensor positions = reshape(convert(positions_BT, DType::kF32), {b, t, 1, 1});
  const Tensor angles = positions * frequencies;
  const Rope plain{cosine(angles), sine(angles)};
  if (rope.attention_factor == 1) return plain;
  return {plain.cos * rope.attention_factor, plain.sin * rope.attention_factor};
}

Tensor apply_rope(const Rope& rope, const Tensor& x_BTNH) {
  const int64_t half = rope.cos.dim(3), head_dim = x_BTNH.dim(3);
  const Tensor x = convert(x_BTNH, DType::kF32);
  const Tensor first = slice(x, 3, 0, half), second = slice(x, 3, half, 2 * half);
  std::vector<Tensor> parts{first * rope.cos - second * rope.sin, second * rope.cos + first * rope.sin};
  if (2 * half < head_dim) parts.push_back(slice(x, 3, 2 * half, head_dim));
  return convert(concatenate(parts, 3), x_BTNH.dtype());
}

}  // namespace fettle
