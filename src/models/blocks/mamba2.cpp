// Letters for dims in this file: X chunks, C positions of a chunk; N heads, G groups of heads, R = N / G heads of a
// group, K and H dims of a head's keys and values.
#include "models/blocks/mamba2.h"

#include <algorithm>

#include "graph/ops.h"
#include "graph/scan.h"
#include "models/blocks/short_convolution.h"

namespace fettle {
namespace {

constexpr int64_t kChunk = 128;

Tensor f32(const Tensor& x) {
  return convert(x, DType::kF32);
}

// Pads dim 1 of x [B, T, ..] to whole chunks, and returns the chunks [X, B, C, ..].
Tensor in_chunks(const Tensor& x, int64_t chunk) {
  const int64_t b = x.dim(0), t = x.dim(1), chunks = (t + chunk - 1) / chunk;
  const Dims none(static_cast<size_t>(x.rank()), 0);
  Dims high = none, apart{b, chunks, chunk}, order{1, 0, 2};
  high[1] = chunks * chunk - t;
  for (int64_t d = 2; d < x.rank(); ++d) apart.push_back(x.dim(d)), order.push_back(d + 1);
  return transpose(reshape(high[1] == 0 ? x : pad(x, none, high), apart), order);
}

// Returns a 0/1 matrix [C, C] with 1 where i >= j.
Tensor lower_triangle(int64_t size) {
  const Dims square{size, size};
  return f32(compare(iota({DType::kI32, square}, 0), Direction::kGE, iota({DType::kI32, square}, 1)));
}

Tensor equal_or_zero(const Tensor& a, const Tensor& b) {
  return f32(compare(a, Direction::kEQ, b));
}

}  // namespace

StateSpace state_space(const Tensor& x, const Tensor& k, const Tensor& q, const Tensor& decay,
                       const Tensor& segments_BT, int64_t chunk, const Tensor& state) {
  PathScope scope("state_space");
  const int64_t b = x.dim(0), t = x.dim(1), n = x.dim(2), h = x.dim(3), g = k.dim(2), r = n / g, dk = k.dim(3);
  const int64_t chunks = (t + chunk - 1) / chunk, missing = chunks * chunk - t;
  // Padding belongs to the last document. It does not change the state, because x is 0 and exp(decay) is 1 in padding.
  Tensor segments = segments_BT;
  if (missing > 0) segments = concatenate({segments, broadcast_to(slice(segments, 1, t - 1, t), {b, missing})}, 1);
  const Tensor of_chunk = in_chunks(segments, chunk);        // [X, B, C]
  const Tensor last = slice(of_chunk, 2, chunk - 1, chunk);  // document number at each chunk's last position
  const Tensor first = slice(slice(of_chunk, 2, 0, 1), 0, 0, 1);
  // The document number of the position before each chunk. For the first chunk, the document number of the chunk's own
  // first position.
  const Tensor ahead = chunks == 1 ? first : concatenate({first, slice(last, 0, 0, chunks - 1)}, 0);

  const Tensor lower = lower_triangle(chunk);
  const Tensor start = state ? reshape(state, {b, g, r, dk, h}) : full(0, {DType::kF32, {b, g, r, dk, h}});
  const ScanStep out = scan(
      chunks, {start},
      {in_chunks(reshape(x, {b, t, g, r, h}), chunk), in_chunks(k, chunk), in_chunks(q, chunk),
       in_chunks(reshape(decay, {b, t, g, r}), chunk), of_chunk, last, ahead},
      [&](const Tensor&, const std::vector<Tensor>& carried, const std::vector<Tensor>& xs) -> ScanStep {
        const Tensor values = transpose(xs[0], {0, 2, 3, 1, 4});  // [B, G, R, C, H]
        const Tensor keys = transpose(xs[1], {0, 2, 1, 3}), queries = transpose(xs[2], {0, 2, 1, 3});  // [B, G, C, K]
        // The sum of the decays from the chunk's start to each position, [B, G, R, C].
        const Tensor so_far =
            dot_general(transpose(xs[3], {0, 2, 3, 1}), lower, {.lhs_contracting = {3}, .rhs_contracting = {1}});
        const Tensor at = reshape(xs[4], {b, 1, 1, chunk}), end = reshape(xs[5], {b, 1, 1, 1});
        const Tensor before = reshape(xs[6], {b, 1, 1, 1});
        const Tensor seen = equal_or_zero(expand(at, 4), expand(at, 3)) * lower;
        const Tensor between = exp((expand(so_far, 4) - expand(so_far, 3)) * lower) * seen;  // [B, G, R, C, C]
        const Tensor scores = dot_general(
            queries, keys,
            {.lhs_batching = {0, 1}, .rhs_batching = {0, 1}, .lhs_contracting = {3}, .rhs_contracting = {3}});
        const Tensor within = dot_general(
            expand(scores, 2) * between, values,
            {.lhs_batching = {0, 1, 2}, .rhs_batching = {0, 1, 2}, .lhs_contracting = {4}, .rhs_contracting = {3}});
        // Reads the state: computes q S [B, G, C, R, H], and moves R in front of C.
        const Tensor read = transpose(
            dot_general(
                queries, carried[0],
                {.lhs_batching = {0, 1}, .rhs_batching = {0, 1}, .lhs_contracting = {3}, .rhs_contracting = {3}}),
            {0, 1, 3, 2, 4});
        const Tensor from_start = exp(so_far) * equal_or_zero(at, before);
        const Tensor to_end = exp(slice(so_far, 3, chunk - 1, chunk) - so_far) * equal_or_zero(at, end);
        // Computes the change of the state, k x^T [B, G, K, R, H], and moves R in front of K.
        const Tensor written = transpose(
            dot_general(
                keys, values * expand(to_end, 4),
                {.lhs_batching = {0, 1}, .rhs_batching = {0, 1}, .lhs_contracting = {2}, .rhs_contracting = {3}}),
            {0, 1, 3, 2, 4});
        const Tensor kept = expand(slice(from_start, 3, chunk - 1, chunk), 4);
        return {{carried[0] * kept + written}, {within + read * expand(from_start, 4)}};
      },
      {.remat = Remat::kFull});
  // The scan stacks its results [X, B, G, R, C, H]. The positions X and C must come right after B.
  const Tensor y = reshape(transpose(out.ys[0], {1, 0, 4, 2, 3, 5}), {b, chunks * chunk, n, h});
  return {slice(y, 1, 0, t), reshape(out.carries[0], {b, n, dk, h})};
}

void add_mamba2(ParamList& list, const ModelConfig& c) {
  const Mamba2& m = *c.mamba2;
  const std::string module = m.module + ".";
  const SizedAxis d{c.hidden_size, "embed"};
  list.linear(module + "in_proj", {m.projected(), "heads"}, d, {.bias = m.in_bias});
  list.add(module + "conv1d.weight", {m.channels(), 1, m.width}, {"heads", "", ""}, Role::kCoefficients);
  if (m.conv_bias) list.add(module + "conv1d.bias", {m.channels()}, {"heads"}, Role::kBias, Init::kZeros);
  list.add(module + "dt_bias", {m.heads}, {"norm"}, Role::kBias, Init::kOnes);
  list.add(module + "A_log", {m.heads}, {"norm"}, Role::kCoefficients, Init::kOnes);
  list.add(module + "D", {m.heads}, {"norm"}, Role::kCoefficients, Init::kOnes);
  if (m.normed) list.norm(module + "norm", m.inner(), Init::kOnes, false);
  list.linear(module + "out_proj", d, {m.inner(), "heads"}, {.bias = m.out_bias});
}

Tensor mamba2(const Forward& f, const Layer& layer, const Tensor& x_BTD, LayerCache* cache,
              const MambaFactors& factors) {
  const Mamba2& m = *f.config.mamba2;
  const std::string module = m.module + ".";
  const int64_t b = x_BTD.dim(0), t = x_BTD.dim(1), inner = m.inner(), grouped = m.groups * m.state;
  const Tensor projected = linear(f, layer, module + "in_proj", x_BTD);
  int64_t next = 0;
  auto part = [&](int64_t size, double factor) {
    const Tensor out = slice(projected, 2, next, next + size);
    next += size;
    return factor == 1 ? out : out * constant(factor, out.dtype());  // Transformers rounds these factors
  };
  const Tensor gate = part(inner, factors.gate), x = part(inner, factors.x), k = part(grouped, factors.k),
               q = part(grouped, factors.q), dt = part(m.heads, factors.step);

  const Tensor weight = reshape(layer[module + "conv1d.weight"], {m.channels(), m.width});
  Tensor mixed = short_convolution(f, concatenate({x, k, q}, 2), weight, cache);
  if (m.conv_bias) mixed = mixed + convert(layer[module + "conv1d.bias"], mixed.dtype());
  mixed = activation("silu", mixed);
  auto heads = [&](int64_t first, int64_t count, int64_t size, const char* axis) {
    const Tensor apart = reshape(slice(mixed, 2, first, first + count * size), {b, t, count, size});
    return f.sharding.constrain(f32(apart), {"batch", "", axis, ""});
  };
  const Tensor values = heads(0, m.heads, m.head_dim, "act_heads"), keys = heads(inner, m.groups, m.state, ""),
               queries = heads(inner + grouped, m.groups, m.state, "");

  Tensor step = softplus(f32(dt) + f32(layer[module + "dt_bias"]));
  step = maximum(step, constant(m.least_step, DType::kF32));
  if (m.largest_step > 0) step = minimum(step, constant(m.largest_step, DType::kF32));
  if (cache != nullptr) step = step * real_positions(f, x_BTD);
  step = f.sharding.constrain(step, {"batch", "", "act_heads"});
  const Tensor decay = -(exp(f32(layer[module + "A_log"])) * step);
  const StateSpace out =
      state_space(values * expand(step, 3), keys, queries, decay, documents_of(f, x_BTD),
                  std::min({kChunk, f.attention_block, t}), cache != nullptr ? cache->at("state") : Tensor{});
  if (cache != nullptr) cache->replace("state", out.state_BNKH);
  const Tensor y = reshape(out.out_BTNH + values * expand(f32(layer[module + "D"]), 1), {b, t, inner});
  const Tensor gated = y * activation("silu", f32(gate));
  Tensor normal = gated;
  if (m.normed) {
    const Tensor by_group = rms_norm(reshape(gated, {b, t, m.groups, inner / m.groups}), {}, f.config.norm_eps);
    normal = reshape(by_group, {b, t, inner}) * f32(layer[module + "norm.weight"]);
  }
  return linear(f, layer, module + "out_proj", convert(normal, f.compute));
}

std::vector<CacheArray> mamba2_cache(const ModelConfig& c) {
  const Mamba2& m = *c.mamba2;
  const Dims state{1, m.heads, m.state, m.head_dim};
  return {convolution_cache(m.layers, m.width, m.channels()),
          {"state", m.layers, state, {"batch", "act_heads", "", ""}, DType::kF32}};
}

}  // namespace fettle
