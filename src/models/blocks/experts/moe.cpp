// Tokens are sorted by expert and cut into blocks, each with tokens of one expert. A loop over the blocks gathers a
// block's tokens and its expert's weights, and adds the results to a sum for each token. The number of blocks is known
// only after routing: arrays have room for the largest possible number, and the loop ends after the used blocks.
//
// Every array in this loop has four leading dims, the device dims. Their indices are a device's positions along the
// batch axes, sp, ep and tp. Each device computes only the parts with its own indices, so the loop runs without
// communication: tokens are gathered along ep before the loop, and results are summed over ep and tp after the loop.
// Letters: n tokens of one device, k experts of a token, S = n k, E experts, R experts of one device, Z tokens of a
// block.
#include "models/blocks/experts/moe.h"

#include <algorithm>
#include <bit>

#include "base/error.h"
#include "graph/ops.h"
#include "models/blocks/experts/device_dims.h"
#include "models/blocks/experts/expert_linears.h"
#include "models/blocks/experts/moe_routing.h"
#include "models/blocks/experts/numbers.h"

namespace fettle {
namespace {

constexpr int64_t kSmallestBlock = 8, kLargestBlock = 256;

// Returns the inclusive running sum along `dim`. The number of ops grows with the logarithm of the dim.
Tensor running_sum(Tensor x, int64_t dim) {
  for (int64_t step = 1; step < x.dim(dim); step *= 2) {
    Dims low(static_cast<size_t>(x.rank()), 0), none = low;
    low[dim] = step;
    x = x + pad(slice(x, dim, 0, x.dim(dim) - step), low, none);
  }
  return x;
}

// Converts to i32, because f32 has exact integers only up to 2^24.
Tensor to_i32(const Tensor& x) {
  return convert(x, DType::kI32);
}

Tensor places_of(const Dims& dims, int64_t dim) {
  return iota({DType::kI32, dims}, dim);
}

// Returns the inclusive running sum of zeros and ones, in i32, along the second-last dim, which may be long. Within a
// chunk, the sums are a product with a triangular matrix.
Tensor running_count(const Tensor& x) {
  constexpr int64_t kChunk = 64;
  const int64_t dim = x.rank() - 2, length = x.dim(dim), last = x.dim(-1);
  if (length <= kChunk) return running_sum(to_i32(x), dim);
  const int64_t chunks = (length + kChunk - 1) / kChunk;
  Dims none(static_cast<size_t>(x.rank()), 0), high = none;
  high[dim] = chunks * kChunk - length;
  Dims apart(x.dims().begin(), x.dims().begin() + dim);
  apart.insert(apart.end(), {chunks, kChunk, last});
  const Tensor parts = reshape(pad(x, none, high), apart);
  const Dims square{kChunk, kChunk};
  const Tensor triangle = where(compare(counting(square, 1), Direction::kLE, counting(square, 0)));
  const Tensor turned = dot_general(parts, triangle, {.lhs_contracting = {dim + 1}, .rhs_contracting = {1}});
  Dims order;
  for (int64_t d = 0; d <= dim; ++d) order.push_back(d);
  order.insert(order.end(), {dim + 2, dim + 1});
  const Tensor totals = to_i32(reduce_sum(parts, {dim + 1}));
  const Tensor before = running_sum(totals, dim) - totals;
  const Tensor sums = to_i32(transpose(turned, order)) + broadcast_to(expand(before, dim + 1), apart);
  Dims together(x.dims());
  together[dim] = chunks * kChunk;
  return slice(reshape(sums, together), dim, 0, length);
}

// Blocks of tokens. All tokens of a block go to one expert. Dim 0 of these arrays counts the blocks, and the loop over
// the blocks takes one slice of dim 0 at a time. The next 3 dims are device dims.
struct Blocks {
  Tensor tokens_Z;   // i32: token numbers of the block; n (the number of tokens) marks an unused place
  Tensor weights_Z;  // f32: routing weights of these tokens
  Tensor expert_1;   // i32: number of the block's expert among the experts of the device
  Tensor used;       // i32 scalar: the largest number of blocks that a device uses
  int64_t count;     // upper bound of `used`
};

// Returns the number of tokens per block when `s` tokens are sent to experts.
int64_t block_size(const ModelConfig& c, int64_t s) {
  const auto fair = static_cast<uint64_t>(std::max<int64_t>(1, s / c.num_experts));
  return std::clamp(static_cast<int64_t>(std::bit_floor(fair)), kSmallestBlock, kLargestBlock);
}

Blocks make_blocks(const ModelConfig& c, const DeviceDims& devices, const Routes& routes) {
  const int64_t n = devices.tokens(), k = c.experts_per_token, s = n * k, r = c.num_experts / devices.size(2);
  const int64_t z = block_size(c, s);
  // `count` is an upper bound of the number of blocks on one device. A token fills at most min(k, r) slots of a device,
  // because it is sent to an expert at most once. Each of the r experts may have one block that is not full.
  const int64_t count = (n * std::min(k, r) + r * (z - 1)) / z, places = count * z;
  internal_check(std::max(s, places) < int64_t{1} << 31,
                 "one device sends {} tokens to experts; int32 cannot count them", s);
  auto dims = [&](const Dims& own) { return devices.with(kOfExperts, own); };

  const Tensor all =
      devices.broadcast_to_devices(reshape(stop_gradient(routes.experts), devices.with(kData, {s})), kData, kOfExperts);
  const Tensor own = all - counting(dims({s}), 2) * number(r);  // an expert outside of [0, r) belongs to another device
  const Tensor sent =
      where(compare(broadcast_to(expand(own, -1), dims({s, r})), Direction::kEQ, counting(dims({s, r}), 4)));
  const Tensor so_far = running_count(sent);
  const auto blocks_for = [&](const Tensor& tokens) {
    return (tokens + static_cast<double>(z - 1)) / static_cast<double>(z);
  };
  const Tensor filled = blocks_for(reshape(slice(so_far, 3, s - 1, s), dims({r})));  // number of blocks of each expert
  const Tensor ends = running_sum(filled, 3);
  const Tensor starts = (ends - filled) * static_cast<double>(z);
  // The place of each slot (token_of_slot) in the blocks of tokens; -1 if the slot's expert is on another device.
  const Tensor place = reduce_sum(to_i32(sent) * (so_far + expand(starts, 3)), {-1}) - 1.0;

  const Tensor zero = constant(0, DType::kI32);
  const Tensor slot = expand(places_of(dims({s}), 3), -1) + 1.0;
  const Tensor at =
      select(compare(place, Direction::kLT, zero), constant(static_cast<double>(places), DType::kI32), place);
  const Tensor found = reshape(add_rows(full(0, {DType::kI32, dims({places, 1})}), at, slot), dims({places}));
  const Tensor none = constant(static_cast<double>(s), DType::kI32);
  const Tensor slots = select(compare(found, Direction::kGT, zero), found - 1.0, none);

  const Tensor weights =
      devices.broadcast_to_devices(reshape(routes.weights, devices.with(kData, {s, 1})), kData, kOfExperts);
  const Tensor by_place = take(weights, slots);
  const Tensor index = places_of(dims({count, r}), 3);
  const Tensor passed = where(compare(index, Direction::kGE, broadcast_to(expand(ends, 3), dims({count, r}))));
  const Tensor expert = minimum(reduce_sum(passed, {-1}), number(r - 1));

  auto by_block = [&](const Tensor& x, int64_t width) {
    return transpose(reshape(x, dims({count, width})), {3, 0, 1, 2, 4});
  };
  // The maximum is taken in f32. If the numbers are too large to be exact in f32, the loop runs all blocks.
  const Tensor last = convert(slice(ends, 3, r - 1, r), DType::kF32);
  const Tensor used = count < int64_t{1} << 24 ? to_i32(reduce_max(last, {0, 1, 2, 3}))
                                               : constant(static_cast<double>(count), DType::kI32);
  return {.tokens_Z = by_block(token_of_slot(slots, k), z),
          .weights_Z = by_block(by_place, z),
          .expert_1 = by_block(to_i32(expert), 1),
          .used = used,
          .count = count};
}

// Returns act(gate) * up of one block of tokens.
Tensor gated(const ModelConfig& c, const Tensor& gate, const Tensor& up) {
  if (!c.clamped_swiglu) return activation(c.hidden_act, gate) * up;
  const auto [alpha, limit] = *c.clamped_swiglu;
  const Tensor most = constant(limit, gate.dtype()), low = minimum(gate, most);
  const Tensor linear = maximum(minimum(up, most), constant(-limit, gate.dtype()));
  return low * logistic(low * alpha) * (linear + 1.0);
}

}  // namespace

Tensor token_of_slot(const Tensor& slots, int64_t experts_per_token) {
  return slots / static_cast<double>(experts_per_token);
}

void add_expert_params(ParamList& list, const ModelConfig& c) {
  const int64_t e = c.num_experts, d = c.expert_in(), inner = c.expert_size;
  list.add(c.experts.router + ".weight", {e, c.hidden_size}, {"", "embed"}, Role::kRouter);
  if (!c.routing.correction.empty())
    list.add(c.routing.correction, {e}, {""}, Role::kBuffer, Init::kZeros, DType::kF32);
  if (!c.routing.factors.empty()) list.add(c.routing.factors, {e}, {""}, Role::kCoefficients, Init::kOnes);
  if (c.expert_bias) list.add(c.experts.router + ".bias", {e}, {""}, Role::kBias, Init::kZeros);
  if (c.experts.fused()) {
    // Adds the parameter gate_up or its bias. `before` and `after` are the dims before and after the outputs.
    auto add = [&](const std::string& name, const Dims& before, const Dims& after, Role role) {
      Dims dims{e};
      LogicalAxes axes{"experts"};
      auto append = [&](const Dims& more, const LogicalAxes& of_them) {
        dims.insert(dims.end(), more.begin(), more.end());
        axes.insert(axes.end(), of_them.begin(), of_them.end());
      };
      append(before, LogicalAxes(before.size(), "embed"));
      const int fused = static_cast<int>(dims.size());
      append(c.experts.in_turns ? Dims{inner, 2} : Dims{2, inner},
             c.experts.in_turns ? LogicalAxes{"mlp", ""} : LogicalAxes{"", "mlp"});
      append(after, LogicalAxes(after.size(), "embed"));
      list.add_fused(name, dims, axes, fused, role);
    };
    const bool in_first = c.experts.in_first;
    add(c.experts.gate_up, in_first ? Dims{d} : Dims{}, in_first ? Dims{} : Dims{d}, Role::kExpertsFused);
    if (in_first)
      list.add(c.experts.down, {e, inner, d}, {"experts", "mlp", "embed"}, Role::kExpertsFused);
    else
      list.add(c.experts.down, {e, d, inner}, {"experts", "embed", "mlp"}, Role::kExpertsFused);
    if (!c.expert_bias) return;
    add(c.experts.gate_up + "_bias", {}, {}, Role::kExpertBias);
    list.add(c.experts.down + "_bias", {e, d}, {"experts", "embed"}, Role::kExpertBias, Init::kZeros);
    return;
  }
  if (c.experts.gated())
    list.add(c.experts.gate + ".weight", {e, inner, d}, {"experts", "mlp", "embed"}, Role::kExpertGate);
  list.add(c.experts.up + ".weight", {e, inner, d}, {"experts", "mlp", "embed"}, Role::kExpertUp);
  list.add(c.experts.down + ".weight", {e, d, inner}, {"experts", "embed", "mlp"}, Role::kExpertDown);
}

Tensor experts_mlp(Forward& f, const Layer& layer, const Tensor& x_BTD, const Tensor& routed_BTD) {
  PathScope scope("experts");
  const ModelConfig& c = f.config;
  const DeviceDims devices(f, x_BTD);
  const int64_t n = devices.tokens(), d = c.expert_in();
  const Tensor x_nD = devices.split(x_BTD), routed_nD = routed_BTD ? devices.split(routed_BTD) : x_nD;
  Tensor mask;
  if (f.router || f.loads)
    mask = devices.split(
        expand(where(compare(f.counted ? f.counted : f.segments, Direction::kNE, constant(0, DType::kI32))), 2));
  const Blocks blocks = make_blocks(c, devices, route(f, layer, routed_nD, mask));

  const Tensor tokens = devices.broadcast_to_devices(x_nD, kData, kAll);
  const ExpertLinears linears(f, layer, devices);
  const bool fused = c.experts.fused(), plain = !c.experts.gated();
  const ExpertLinear gate = fused   ? linears.gate_up()
                            : plain ? linears.hidden(c.experts.up, 0)
                                    : linears.hidden(c.experts.gate, 0);
  const ExpertLinear up = fused || plain ? ExpertLinear{} : linears.hidden(c.experts.up, 1);
  const ExpertLinear down = linears.down(c.experts.down);
  const Tensor zeros = devices.constrain(full(0, {DType::kF32, devices.with(kAll, {n, d})}), kAll);
  const ScanStep sums =
      scan(blocks.count, {zeros}, {blocks.tokens_Z, blocks.weights_Z, blocks.expert_1},
           [&](const Tensor&, const std::vector<Tensor>& carried, const std::vector<Tensor>& block) -> ScanStep {
             const Tensor ids = devices.broadcast_to_devices(block[0], kOfExperts, kAll);
             const Tensor routed = devices.broadcast_to_devices(block[1], kOfExperts, kAll);
             const Tensor expert = devices.broadcast_to_devices(block[2], kOfExperts, kAll);
             auto times = [&](const Tensor& x, const ExpertLinear& linear, DType dtype) {
               return multiply(devices, linear, x, expert, f.compute, dtype);
             };
             Tensor x = devices.constrain(take(tokens, ids), kAll);
             if (c.routing.on_inputs) x = x * convert(expand(routed, -1), x.dtype());
             Tensor of_gate = times(x, gate, f.compute), of_up;
             if (fused) {
               Dims one = of_gate.dims(), apart = one;
               const int64_t half = one.back() /= 2, dim = c.experts.in_turns ? 6 : 5;
               apart.back() = c.experts.in_turns ? half : 2;
               apart.push_back(c.experts.in_turns ? 2 : half);
               const Tensor both = reshape(of_gate, apart);
               of_gate = reshape(slice(both, dim, 0, 1), one), of_up = reshape(slice(both, dim, 1, 2), one);
             } else if (!plain) {
               of_up = times(x, up, f.compute);
             }
             const Tensor hidden = plain ? activation(c.hidden_act, of_gate) : gated(c, of_gate, of_up);
             Tensor y = times(hidden, down, DType::kF32);
             if (!c.routing.on_inputs) y = y * expand(routed, -1);
             return {{devices.constrain(add_rows(carried[0], ids, y), kAll)}, {}};
           },
           {.limit = blocks.used});
  const Tensor out = devices.constrain(reduce_sum(sums.carries[0], {2, 3}), kData);
  return f.sharding.constrain(devices.join(convert(out, f.compute)), {"batch", "length", "act_embed"});
}

int64_t balanced_blocks(const ModelConfig& c, const MeshAxes& mesh, int64_t rows, int64_t length) {
  const int64_t devices = mesh.size_of("dp") * mesh.size_of("fsdp") * mesh.size_of("sp"), ep = mesh.size_of("ep");
  const int64_t sent = rows * length / devices * c.experts_per_token, of_device = c.num_experts / ep;
  const int64_t of_expert = (sent + c.num_experts - 1) / c.num_experts, z = block_size(c, sent);
  return of_device * ((of_expert + z - 1) / z);
}

}  // namespace fettle
