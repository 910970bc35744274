#include "models/blocks/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "graph/composite.h"
#include "graph/ops.h"

namespace fettle {
namespace {

// Returns the index of the frequency (as a real number) that makes `turns` full turns over the positions of the
// original context.
double dim_that_turns(const RopeParameters& rope, int64_t rotary_dim, double turns) {
  const double context = static_cast<double>(rope.original_max_position_embeddings);
  return static_cast<double>(rotary_dim) * std::log(context / (turns * 2 * std::numbers::pi)) /
         (2 * std::log(rope.rope_theta));
}

void stretch_yarn(std::vector<double>& frequencies, const RopeParameters& rope, int64_t rotary_dim) {
  double low = dim_that_turns(rope, rotary_dim, rope.beta_fast),
         high = dim_that_turns(rope, rotary_dim, rope.beta_slow);
  if (rope.truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0), high = std::min(high, static_cast<double>(rotary_dim - 1));
  if (low == high) high += 0.001;
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double divided = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    frequencies[i] *= divided / rope.factor + (1 - divided);
  }
}

// Returns g for documents of these lengths. The rope type `dynamic` multiplies rope_theta by g^(R / (R - 2)), like
// Transformers' _compute_dynamic_ntk_parameters. g is 1 for lengths up to original_max_position_embeddings.
Tensor growth_of(const RopeParameters& rope, const Tensor& lengths_B) {
  const Tensor times = lengths_B * (rope.factor / static_cast<double>(rope.original_max_position_embeddings));
  return maximum(times - (rope.factor - 1), constant(1, DType::kF32));
}

// Returns e [R / 2] with e[i] = -2 i / (R - 2). Dynamic scaling multiplies rope_theta by g^(R / (R - 2)), which
// multiplies frequency i by g^e[i].
Tensor table_of_exponents(int64_t rotary_dim) {
  std::vector<double> exponents;
  for (int64_t i = 0; i < rotary_dim; i += 2)
    exponents.push_back(rotary_dim == 2 ? 0 : -static_cast<double>(i) / static_cast<double>(rotary_dim - 2));
  return literal(exponents, {DType::kF32, {rotary_dim / 2}});
}

}  // namespace

std::vector<double> inverse_frequencies(const RopeParameters& rope, int64_t rotary_dim,
                                        const std::vector<double>& divisors) {
  std::vector<double> out;
  for (int64_t i = 0; i < rotary_dim; i += 2) {
    double frequency = std::pow(rope.rope_theta, -static_cast<double>(i) / static_cast<double>(rotary_dim));
    if (rope.rope_type == "proportional")
      frequency = i + 2 <= static_cast<int64_t>(rope.partial_rotary_factor * static_cast<double>(rotary_dim))
                      ? frequency / rope.factor
                      : 0;
    if (!divisors.empty()) frequency /= divisors[static_cast<size_t>(i / 2)];
    if (rope.rope_type == "linear") frequency /= rope.factor;
    if (rope.rope_type == "llama3") {  // keeps high frequencies, divides low ones, and blends between them
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
  if (rope.rope_type == "yarn") stretch_yarn(out, rope, rotary_dim);
  return out;
}

Rope rope_tables(const RopeParameters& rope, int64_t head_dim, const Tensor& positions_BT, const Tensor& lengths_B) {
  PathScope scope("rope");
  const int64_t rotary_dim = rope.rotary_dim(head_dim), b = positions_BT.dim(0), t = positions_BT.dim(1);
  auto table = [&](const std::vector<double>& divisors) {
    return literal(inverse_frequencies(rope, rotary_dim, divisors), {DType::kF32, {rotary_dim / 2}});
  };
  Tensor frequencies = table(rope.short_factor);
  auto lengths_of_rows = [&] {
    return lengths_B ? convert(lengths_B, DType::kF32) : reduce_max(convert(positions_BT, DType::kF32), {1}) + 1.0;
  };
  if (rope.rope_type == "dynamic") {
    const Tensor growth = growth_of(rope, lengths_of_rows());
    frequencies = frequencies * exp(reshape(log(growth), {b, 1, 1, 1}) * table_of_exponents(rotary_dim));
  }
  if (rope.rope_type == "longrope") {
    const Tensor lengths = lengths_of_rows();
    const Tensor original = constant(static_cast<double>(rope.original_max_position_embeddings), DType::kF32);
    const Tensor is_long = reshape(compare(lengths, Direction::kGT, original), {b, 1, 1, 1});
    frequencies = select(is_long, table(rope.long_factor), frequencies);
  }
  const Tensor positions = reshape(convert(positions_BT, DType::kF32), {b, t, 1, 1});
  const Tensor angles = positions * frequencies;
  const Rope plain{cosine(angles), sine(angles), rope.interleaved};
  if (rope.attention_factor == 1) return plain;
  return {plain.cos * rope.attention_factor, plain.sin * rope.attention_factor, rope.interleaved};
}

Tensor apply_rope(const Rope& rope, const Tensor& x_BTNH) {
  const int64_t half = rope.cos.dim(3), head_dim = x_BTNH.dim(3);
  const Tensor x = convert(x_BTNH, DType::kF32);
  Tensor first = slice(x, 3, 0, half), second = slice(x, 3, half, 2 * half);
  if (rope.interleaved) {
    const Dims one{x.dim(0), x.dim(1), x.dim(2), half};
    const Tensor pairs = reshape(slice(x, 3, 0, 2 * half), {one[0], one[1], one[2], half, 2});
    first = reshape(slice(pairs, 4, 0, 1), one), second = reshape(slice(pairs, 4, 1, 2), one);
  }
  const Tensor turned = first * rope.cos - second * rope.sin, across = second * rope.cos + first * rope.sin;
  std::vector<Tensor> parts{turned, across};
  if (rope.interleaved)
    parts = {reshape(concatenate({expand(turned, 4), expand(across, 4)}, 4), {x.dim(0), x.dim(1), x.dim(2), 2 * half})};
  if (2 * half < head_dim) parts.push_back(slice(x, 3, 2 * half, head_dim));
  return convert(concatenate(parts, 3), x_BTNH.dtype());
}

}  // namespace fettle
