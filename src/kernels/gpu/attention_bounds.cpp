#include "kernels/gpu/attention_bounds.h"

#include <utility>

#include "graph/ops.h"

namespace fettle::gpu {
namespace {

// The blocks of one side (queries or keys). Dims: [B, N, 1] or [B, 1, N]; B may be 1.
struct Side {
  Tensor first, last;  // i32: the first and last position that exist in a block
  Tensor filled;       // whether every position of the block exists
  Tensor low, high;    // f32: lowest and highest segment in the block; segment 0 (padding) counts as the highest
  Tensor segment;      // i32: the first position's segment
  Tensor uniform;      // whether all positions have the segment `segment`
  Tensor number;       // f32: the block's number
};

// Divides each row into blocks of `block` positions and describes the blocks. In the result, the blocks lie along dim
// `dim` (1 or 2).
Side side(const Tensor& segments_BT, int64_t block, int64_t dim) {
  const int64_t b = segments_BT.dim(0), t = segments_BT.dim(1), n = (t + block - 1) / block, rest = n * block - t;
  constexpr double kPadding = 1 << 30;
  auto blocks = [&](Tensor x, double value) {
    if (rest > 0) x = pad(x, {0, 0}, {0, rest}, value);
    return reshape(x, {b, n, block});
  };
  auto place = [&](const Tensor& x) { return expand(x, dim == 1 ? 2 : 1); };  // from [B, N] to the dims of Side
  const Tensor order = select(compare(segments_BT, Direction::kEQ, constant(0, DType::kI32)),
                              constant(kPadding, DType::kF32), convert(segments_BT, DType::kF32));
  const Tensor numbers = blocks(segments_BT, 0), head = slice(numbers, 2, 0, 1);
  const Tensor index = reshape(iota({DType::kI32, {n}}, 0), dim == 1 ? Dims{1, n, 1} : Dims{1, 1, n});
  const Tensor first = index * static_cast<double>(block);
  return {.first = first,
          .last = minimum(first + static_cast<double>(block - 1), full(static_cast<double>(t - 1), first.shape())),
          .filled = compare(first, Direction::kLE, constant(static_cast<double>(t - block), DType::kI32)),
          .low = place(-reduce_max(-blocks(order, 2 * kPadding), {2})),
          .high = place(reduce_max(blocks(order, -1), {2})),
          .segment = place(reshape(head, {b, n})),
          .uniform = place(reduce_and(compare(numbers, Direction::kEQ, head), {2})),
          .number = convert(index, DType::kF32)};
}

// Returns two f32 arrays [B, N]: the first block number for which `chosen` is true, and the last such number plus 1. If
// `chosen` is true for no block, the first result is larger than the second.
std::pair<Tensor, Tensor> ends(const Tensor& chosen, const Tensor& number) {
  constexpr double kNone = 1 << 24;
  const Tensor first = -reduce_max(select(chosen, -number, constant(-kNone, DType::kF32)), {2});
  const Tensor end = reduce_max(select(chosen, number + 1.0, constant(0, DType::kF32)), {2});
  return {first, end};
}

}  // namespace

Tensor block_bounds(const Tensor& segments_BT, const Tensor& window, const BlockPairs& pairs) {
  const Side q = side(segments_BT, pairs.queries, pairs.of_queries ? 1 : 2);
  const Side k = side(segments_BT, pairs.keys, pairs.of_queries ? 2 : 1);
  Tensor any = logical_and(compare(q.low, Direction::kLE, k.high), compare(k.low, Direction::kLE, q.high));
  Tensor whole = logical_and(logical_and(q.uniform, k.uniform), compare(q.segment, Direction::kEQ, k.segment));
  whole = logical_and(whole, logical_and(q.filled, k.filled));
  if (pairs.causal) {
    any = logical_and(any, compare(k.first, Direction::kLE, q.last));
    whole = logical_and(whole, compare(k.last, Direction::kLE, q.first));
  }
  if (window) {
    any = logical_and(any, compare(q.first - k.last, Direction::kLT, window));
    whole = logical_and(whole, compare(q.last - k.first, Direction::kLT, window));
  }
  const Tensor& number = pairs.of_queries ? k.number : q.number;
  const auto [first, end] = ends(any, number);
  const auto [whole_first, whole_end] = ends(whole, number);
  // A segment's number may occur again later in the row, so other blocks may lie between the whole blocks. If other
  // blocks lie between them, no block counts as whole.
  const Tensor count = reduce_sum(convert(whole, DType::kF32), {2});
  const Tensor usable = logical_and(compare(count, Direction::kGT, constant(0, DType::kF32)),
                                    compare(count, Direction::kEQ, whole_end - whole_first));
  std::vector<Tensor> bounds{first, select(usable, whole_first, first), select(usable, whole_end, first), end};
  for (Tensor& bound : bounds) bound = expand(convert(bound, DType::kI32), 2);
  return concatenate(bounds, 2);
}

}  // namespace fettle::gpu
