// Letters of shapes: B rows, D devices along the ring, P parts of a device's positions (one, or two chunks), C
// positions of a part, M blocks of queries in all parts, T queries of a block, S keys of a part, K key heads, G query
// heads per key head, H dims of a head.
#include "models/blocks/ring_attention.h"

#include <algorithm>

#include "graph/composite.h"
#include "graph/ops.h"
#include "models/blocks/ring.h"

namespace fettle {
namespace {

using Tensors = std::vector<Tensor>;

// The mesh axis that splits the positions, and the positions' layout on the ring. A device has `parts` parts of `chunk`
// positions. The queries of a part form `blocks` blocks of `block` queries.
struct RingLayout {
  std::string axis;
  int64_t devices, parts, chunk, block, blocks, turns;
};

RingLayout lay_out(const Tensor& q_BTNH, const AttentionOptions& options, const RingSplit& split, int64_t block) {
  RingLayout out;
  out.axis = split.queries.dims[1][0];
  const int64_t n = out.devices = Block::current().lowering().mesh.size_of(out.axis);
  const int64_t t = q_BTNH.dim(1), local = t / n;
  // A query sees the keys of its own device and of `turns` devices before it.
  out.turns = options.causal && split.window > 0 ? std::min(n - 1, (split.window - 1 + local - 1) / local) : n - 1;
  // Uses two chunks if each device then computes fewer scores. One unit is the local^2 / 4 scores of one chunk of
  // queries with one chunk of keys. With contiguous positions, a device computes 4 (turns + 1) units; with two chunks,
  // it computes 2n + 1 units.
  const bool two = options.causal && t % (2 * n) == 0 && 2 * n + 1 < 4 * (out.turns + 1);
  out.parts = two ? 2 : 1;
  if (two) out.turns = n - 1;
  out.chunk = local / out.parts;
  out.blocks = (out.chunk + block - 1) / block;
  out.block = (out.chunk + out.blocks - 1) / out.blocks;
  return out;
}

// Device i starts with the chunks 2i and 2i + 1. Device d computes the chunks d and 2n - 1 - d: one has an even number,
// the other an odd one. For each device d, returns the device that has d's even chunk (`odd` 0) or odd chunk (`odd` 1)
// at the start.
std::vector<int64_t> chunk_sources(int64_t devices, int64_t odd) {
  std::vector<int64_t> out;
  for (int64_t d = 0; d < devices; ++d) out.push_back((d % 2 == odd ? d : 2 * devices - 1 - d) / 2);
  return out;
}

std::vector<int64_t> inverse(const std::vector<int64_t>& sources) {
  std::vector<int64_t> out(sources.size());
  for (size_t i = 0; i < out.size(); ++i) out[sources[i]] = static_cast<int64_t>(i);
  return out;
}

// Returns how an array [B, D, C, ...] is split if an array [B, T, ...] is split by `whole`.
Partition with_devices(Partition whole) {
  whole.dims.insert(whole.dims.begin() + 2, std::vector<std::string>{});
  return whole;
}

// Returns a mask of the even devices for an array of `rank` dims whose dim 1 counts the devices.
Tensor even_devices(int64_t devices, int64_t rank) {
  const Tensor number = iota({DType::kI32, {devices}}, 0);
  Dims dims(rank, 1);
  dims[1] = devices;
  return reshape(compare(remainder(number, constant(2, DType::kI32)), Direction::kEQ, constant(0, DType::kI32)), dims);
}

// Reshapes [B, T, ...] to [B, D, P, C, ...], and with two parts sends each chunk to the device that computes it.
Tensor to_parts(const Tensor& x, const RingLayout& layout, const Partition& partition) {
  Dims dims{x.dim(0), layout.devices, layout.parts, layout.chunk};
  dims.insert(dims.end(), x.dims().begin() + 2, x.dims().end());
  const Partition chunks = with_devices(partition), parts = with_devices(chunks);
  const Tensor own = sharding_constraint(reshape(x, dims), parts);
  if (layout.parts == 1) return own;
  Tensors moved;
  Dims chunk = dims;
  chunk.erase(chunk.begin() + 2);
  for (int64_t odd = 0; odd < 2; ++odd)
    moved.push_back(
        collective_permute(reshape(slice(own, 2, odd, odd + 1), chunk), 1, chunk_sources(layout.devices, odd), chunks));
  const Tensor even = even_devices(layout.devices, moved[0].rank());
  const Tensor low = select(even, moved[0], moved[1]), high = select(even, moved[1], moved[0]);
  return sharding_constraint(concatenate({expand(low, 2), expand(high, 2)}, 2), parts);
}

// The inverse of to_parts. Returns [B, T, ...].
Tensor from_parts(const Tensor& x, const RingLayout& layout, const Partition& partition) {
  Dims whole{x.dim(0), layout.devices * layout.parts * layout.chunk}, chunk = x.dims();
  whole.insert(whole.end(), x.dims().begin() + 4, x.dims().end());
  chunk.erase(chunk.begin() + 2);
  const Partition chunks = with_devices(partition), parts = with_devices(chunks);
  if (layout.parts == 1) return reshape(sharding_constraint(x, parts), whole);
  const Tensor low = reshape(slice(x, 2, 0, 1), chunk), high = reshape(slice(x, 2, 1, 2), chunk);
  const Tensor even = even_devices(layout.devices, low.rank());
  Tensors back;
  for (int64_t odd = 0; odd < 2; ++odd) {
    const Tensor sent = odd == 0 ? select(even, low, high) : select(even, high, low);
    back.push_back(expand(collective_permute(sent, 1, inverse(chunk_sources(layout.devices, odd)), chunks), 2));
  }
  return reshape(sharding_constraint(concatenate(back, 2), parts), whole);
}

// Cuts each part into blocks of queries: [B, D, P, C, ...] -> [M, B, D, T, ...]. The last block of a part is filled up
// with `filler`.
Tensor blocks_of_parts(const Tensor& x, const RingLayout& layout, double filler) {
  Dims high(x.rank(), 0), split = x.dims(), order{2, 3, 0, 1, 4};
  high[3] = layout.blocks * layout.block - layout.chunk;
  const Tensor filled = high[3] > 0 ? pad(x, Dims(x.rank(), 0), high, filler) : x;
  split[3] = layout.blocks;
  split.insert(split.begin() + 4, layout.block);
  for (int64_t i = 5; i <= x.rank(); ++i) order.push_back(i);
  Dims merged{layout.parts * layout.blocks, x.dim(0), layout.devices, layout.block};
  merged.insert(merged.end(), x.dims().begin() + 4, x.dims().end());
  return reshape(transpose(reshape(filled, split), order), merged);
}

// The inverse of blocks_of_parts.
Tensor parts_of_blocks(const Tensor& x, const RingLayout& layout) {
  Dims split{layout.parts, layout.blocks}, order{2, 3, 0, 1, 4};
  split.insert(split.end(), x.dims().begin() + 1, x.dims().end());
  for (int64_t i = 5; i <= x.rank(); ++i) order.push_back(i);
  Dims merged{x.dim(1), layout.devices, layout.parts, layout.blocks * layout.block};
  merged.insert(merged.end(), x.dims().begin() + 4, x.dims().end());
  return slice(reshape(transpose(reshape(x, split), order), merged), 3, 0, layout.chunk);
}

}  // namespace

bool is_ring(const RingSplit& split, const MeshAxes& mesh) {
  const auto& dims = split.queries.dims;
  return dims.size() == 4 && dims[1].size() == 1 && mesh.size_of(dims[1][0]) > 1 && dims[3].empty() &&
         split.keys.dims.size() == 4 && split.keys.dims[1] == dims[1] && split.keys.dims[0] == dims[0] &&
         split.keys.dims[3].empty();
}

Tensor ring_attention(const std::vector<Tensor>& inputs, const AttentionOptions& options, const RingSplit& split,
                      int64_t block) {
  const Tensor& q_BTNH = inputs[0];
  const RingLayout layout = lay_out(q_BTNH, options, split, block);
  const int64_t b = q_BTNH.dim(0), n = q_BTNH.dim(2), h = q_BTNH.dim(3), k = inputs[1].dim(2), g = n / k;
  const Partition& rows = split.queries;
  const Partition segments{{rows.dims[0], rows.dims[1]}};

  Ring ring;
  ring.devices = layout.devices;
  ring.parts = layout.parts;
  ring.turns = layout.turns;
  ring.options = options;
  ring.keys.dims = {split.keys.dims[0], split.keys.dims[1], split.keys.dims[2], {}, {}};
  ring.key_segments.dims = {rows.dims[0], rows.dims[1], {}};

  const int64_t m = layout.parts * layout.blocks;
  const Tensor q_MBDTNH = blocks_of_parts(to_parts(q_BTNH, layout, rows), layout, 0);
  const Tensor q = transpose(reshape(q_MBDTNH, {m, b, layout.devices, layout.block, k, g, h}), {0, 1, 2, 4, 3, 5, 6});
  const Tensor own_BDPC = to_parts(inputs[3], layout, segments);
  Tensors operands{q};
  for (const Tensor& x : {inputs[1], inputs[2]})  // [P, B, D, K, S, H]
    operands.push_back(transpose(to_parts(x, layout, split.keys), {2, 0, 1, 4, 3, 5}));
  operands.push_back(blocks_of_parts(own_BDPC, layout, -1));  // no key has the segment -1
  operands.push_back(transpose(own_BDPC, {2, 0, 1, 3}));
  if (inputs.size() > 4) operands.push_back(inputs[4]);
  if (options.sinks_N) operands.push_back(options.sinks_N);

  const Tensor out = ring.attend(operands);  // [M, B, D, K, T, G, H]
  const int64_t v = inputs[2].dim(3);
  const Tensor out_MBDTNH = reshape(transpose(out, {0, 1, 2, 4, 3, 5, 6}), {m, b, layout.devices, layout.block, n, v});
  return from_parts(parts_of_blocks(out_MBDTNH, layout), layout, rows);
}

}  // namespace fettle
