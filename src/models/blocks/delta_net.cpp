// Letters for dims in this file: X chunks, C positions of a chunk; N heads, K and H dims of a head's keys and values.
#include "models/blocks/delta_net.h"

#include "graph/ops.h"
#include "graph/scan.h"

namespace fettle {
namespace {

// Returns a matrix [C, C] with 1 where wanted(i, j) is true, else 0.
template <typename Wanted>
Tensor pairs_where(int64_t size, Wanted wanted) {
  std::vector<double> values;
  for (int64_t i = 0; i < size; ++i)
    for (int64_t j = 0; j < size; ++j) values.push_back(wanted(i, j) ? 1 : 0);
  return literal(values, {DType::kF32, {size, size}});
}

// Returns a [.., M, P] times b [.., P, Q], or times the transpose of b [.., Q, P] (b_transposed).
Tensor product_of(const Tensor& a, const Tensor& b, bool b_transposed = false) {
  Dims batch;
  for (int64_t d = 0; d + 2 < a.rank(); ++d) batch.push_back(d);
  const int64_t rows = a.rank() - 2;
  return dot_general(a, b,
                     {.lhs_batching = batch,
                      .rhs_batching = batch,
                      .lhs_contracting = {rows + 1},
                      .rhs_contracting = {b_transposed ? rows + 1 : rows}});
}

// Returns the inverse of I + L, where L is the strictly lower triangular part of `lower`. At the start of an iteration,
// `inverse` has the inverses of the diagonal blocks of size `block`. The iteration computes the inverses of the
// diagonal blocks of size 2 * block: inverse - inverse * below * inverse. `below` has the lower left quarter of each of
// these larger blocks.
Tensor inverse_of_unit_lower(const Tensor& lower) {
  const int64_t size = lower.dim(-1);
  Tensor inverse = broadcast_to(pairs_where(size, [](int64_t i, int64_t j) { return i == j; }), lower.dims());
  for (int64_t block = 1; block < size; block *= 2) {
    const Tensor below = lower * pairs_where(size, [&](int64_t i, int64_t j) {
                           return i / (2 * block) == j / (2 * block) && i / block > j / block;
                         });
    inverse = inverse - (block == 1 ? below : product_of(product_of(inverse, below), inverse));
  }
  return inverse;
}

Tensor where_equal(const Tensor& a, const Tensor& b) {
  return convert(compare(a, Direction::kEQ, b), DType::kF32);
}

}  // namespace

DeltaRule gated_delta_rule(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& decay, const Tensor& beta,
                           const Tensor& segments_BT, int64_t chunk, const Tensor& state) {
  PathScope scope("delta_rule");
  const int64_t b = q.dim(0), t = q.dim(1), n = q.dim(2), dk = q.dim(3), dv = v.dim(3);
  const int64_t chunks = (t + chunk - 1) / chunk, missing = chunks * chunk - t;
  // Reshapes [B, T, N, ..] to [B, N, X, C, ..] with padding at the end. Padding belongs to the last document and does
  // not change the state, because beta is 0 and exp(decay) is 1 in padding.
  auto split = [&](const Tensor& x) {
    const Tensor padded = missing == 0 ? x : pad(x, Dims(static_cast<size_t>(x.rank()), 0), [&] {
      Dims high(static_cast<size_t>(x.rank()), 0);
      high[1] = missing;
      return high;
    }());
    Dims apart{b, chunks, chunk, n}, order{0, 3, 1, 2};
    if (x.rank() == 4) apart.push_back(x.dim(3)), order.push_back(4);
    return transpose(reshape(padded, apart), order);
  };
  Tensor segments = segments_BT;
  if (missing > 0) segments = concatenate({segments, broadcast_to(slice(segments, 1, t - 1, t), {b, missing})}, 1);
  const Tensor of_chunk = reshape(segments, {b, 1, chunks, chunk});
  const Tensor last = slice(of_chunk, 3, chunk - 1, chunk);  // document number at each chunk's last position
  const Tensor ahead =                                       // document number of the position before each chunk
      concatenate({slice(slice(of_chunk, 3, 0, 1), 2, 0, 1), slice(last, 2, 0, chunks - 1)}, 2);

  const Tensor queries = split(q), keys = split(k), values = split(v), rates = split(beta);
  const Tensor lower = pairs_where(chunk, [](int64_t i, int64_t j) { return i >= j; });
  // The sum of the decays from the chunk's start to each position.
  const Tensor so_far = dot_general(split(decay), lower, {.lhs_contracting = {3}, .rhs_contracting = {1}});
  const Tensor same = where_equal(expand(of_chunk, 4), expand(of_chunk, 3)) * lower;
  const Tensor between = exp((expand(so_far, 4) - expand(so_far, 3)) * lower) * same;  // [B, N, X, C, C]
  const Tensor strict = pairs_where(chunk, [](int64_t i, int64_t j) { return i > j; });
  const Tensor weighted = keys * expand(rates, 4);
  const Tensor inverse = inverse_of_unit_lower(product_of(weighted, keys, true) * between * strict);
  const Tensor from_start = exp(so_far) * where_equal(of_chunk, ahead);
  const Tensor to_end = exp(slice(so_far, 3, chunk - 1, chunk) - so_far) * where_equal(of_chunk, last);
  const Tensor new_values = product_of(inverse, values * expand(rates, 4));
  const Tensor read_keys = product_of(inverse, weighted * expand(from_start, 4));
  const Tensor within = product_of(queries, keys, true) * between;
  const Tensor reads = queries * expand(from_start, 4), writes = keys * expand(to_end, 4);
  const Tensor kept = slice(from_start, 3, chunk - 1, chunk);  // the factor on the state from before the chunk

  auto by_chunk = [](const Tensor& x) {
    Dims order{2, 0, 1};
    for (int64_t d = 3; d < x.rank(); ++d) order.push_back(d);
    return transpose(x, order);
  };
  const Tensor start = state ? state : full(0, {DType::kF32, {b, n, dk, dv}});
  const ScanStep out = scan(
      chunks, {start},
      {by_chunk(new_values), by_chunk(read_keys), by_chunk(within), by_chunk(reads), by_chunk(writes), by_chunk(kept)},
      [](const Tensor&, const std::vector<Tensor>& carried, const std::vector<Tensor>& xs) -> ScanStep {
        const Tensor& before = carried[0];
        const Tensor added = xs[0] - product_of(xs[1], before);
        const Tensor y = product_of(xs[3], before) + product_of(xs[2], added);
        const Tensor written = dot_general(
            xs[4], added,
            {.lhs_batching = {0, 1}, .rhs_batching = {0, 1}, .lhs_contracting = {2}, .rhs_contracting = {2}});
        return {{before * expand(xs[5], 3) + written}, {y}};
      },
      {.remat = Remat::kFull});
  const Tensor y_BTNH = reshape(transpose(out.ys[0], {1, 0, 3, 2, 4}), {b, chunks * chunk, n, dv});
  return {slice(y_BTNH, 1, 0, t), out.carries[0]};
}

}  // namespace fettle
