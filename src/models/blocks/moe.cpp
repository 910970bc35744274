// Tokens are sorted by expert and cut into blocks, each with tokens of one expert. A loop over the blocks gathers a
// block's tokens and its expert's weights, and adds the results to a sum for each token. The number of blocks is known
// only after routing: arrays have room for the largest possible number, and the loop ends after the used blocks.
//
// Every array in this loop has four leading dims, the device dims. Their indices are a device's positions along the
// batch axes, sp, ep and tp. Each device computes only the parts with its own indices, so the loop runs without
// communication: tokens are gathered along ep before the loop, and results are summed over ep and tp after the loop.
// Letters: n tokens of one device, k experts of a token, S = n k, E experts, R experts of one device, Z tokens of a
// block.
#include "models/blocks/moe.h"

#include <algorithm>
#include <bit>

#include "base/error.h"
#include "graph/ops.h"
#include "models/blocks/balance.h"

namespace fettle {
namespace {

constexpr int64_t kSmallestBlock = 8, kLargestBlock = 256;

// The device dims for x_BTD, and functions that add them in front of the dims of an array.
class DeviceDims {
 public:
  DeviceDims(const Forward& f, const Tensor& x_BTD) : sharding_(f.sharding) {
    const MeshAxes& mesh = f.sharding.mesh();
    add("act_groups", mesh.size_of("dp") * mesh.size_of("fsdp"), x_BTD.dim(0));
    add("length", mesh.size_of("sp"), x_BTD.dim(1));
    add("act_experts", mesh.size_of("ep"), f.config.num_experts);
    add("act_mlp", mesh.size_of("tp"), f.config.expert_size);
    rows_ = x_BTD.dim(0) / sizes_[0], length_ = x_BTD.dim(1) / sizes_[1], width_ = x_BTD.dim(2);
  }

  int64_t size(size_t dim) const { return sizes_[dim]; }
  int64_t tokens() const { return rows_ * length_; }  // tokens of one device
  // Returns the first `count` device dims, followed by `dims`.
  Dims with(size_t count, const Dims& dims) const {
    Dims out(sizes_.begin(), sizes_.begin() + static_cast<std::ptrdiff_t>(count));
    out.insert(out.end(), dims.begin(), dims.end());
    return out;
  }
  // Constrains the sharding of x so that each of the first `count` dims is split over its devices.
  Tensor constrain(const Tensor& x, size_t count) const {
    LogicalAxes axes(axes_.begin(), axes_.begin() + static_cast<std::ptrdiff_t>(count));
    axes.resize(static_cast<size_t>(x.rank()));
    return sharding_.constrain(x, axes);
  }
  // Broadcasts x [first `have` device dims.., ...] to the first `count` device dims.
  Tensor broadcast_to_devices(const Tensor& x, size_t have, size_t count) const {
    Dims dims(x.dims().begin() + static_cast<std::ptrdiff_t>(have), x.dims().end()), from;
    for (int64_t d = 0; d < x.rank(); ++d) from.push_back(d < static_cast<int64_t>(have) ? d : d + (count - have));
    return constrain(broadcast_in_dim(x, with(count, dims), from), count);
  }

  Tensor split(const Tensor& x_BTX) const {  // returns [2 device dims, n, X]
    const Tensor apart = reshape(x_BTX, {sizes_[0], rows_, sizes_[1], length_, x_BTX.dim(2)});
    return constrain(reshape(transpose(apart, {0, 2, 1, 3, 4}), with(2, {tokens(), x_BTX.dim(2)})), 2);
  }
  Tensor join(const Tensor& x) const {
    const Tensor apart = transpose(reshape(x, {sizes_[0], sizes_[1], rows_, length_, width_}), {0, 2, 1, 3, 4});
    return reshape(apart, {sizes_[0] * rows_, sizes_[1] * length_, width_});
  }

 private:
  // Adds a device dim with the logical axis `axis`. `dim` is the size of the array dim to split. If `devices` divides
  // `dim`, the device dim has size `devices`. If not, the device dim has size 1, and nothing is split: for example,
  // generation has a batch of one row.
  void add(const char* axis, int64_t devices, int64_t dim) {
    const bool divides = dim % devices == 0;
    sizes_.push_back(divides ? devices : 1);
    axes_.push_back(divides ? axis : "");
  }

  const ShardingRules& sharding_;
  Dims sizes_;
  LogicalAxes axes_;
  int64_t rows_, length_, width_;
};

// Numbers of leading device dims. kData: batch and sp; kOfExperts: also ep; kAll: also tp.
constexpr size_t kData = 2, kOfExperts = 3, kAll = 4;

Tensor number(int64_t value) {
  return constant(static_cast<double>(value), DType::kF32);
}

Tensor counting(const Dims& dims, int64_t dim) {
  return iota({DType::kF32, dims}, dim);
}

Tensor where(const Tensor& pred) {
  return convert(pred, DType::kF32);
}

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

struct Routes {
  Tensor experts, weights;  // f32 [2 device dims, n, k]
};

// The j-th largest value of each vector along the last dim. j is the same for all vectors.
struct Largest {
  Tensor place;  // the value's index, f32 [..]
  Tensor there;  // f32 [.., values]: 1 at that index, 0 elsewhere
};

constexpr double kNever = -1e30;

// Returns the `count` largest values, the largest first; among equal values, the one with the lowest index comes first.
// Values of kNever are chosen last.
std::vector<Largest> largest_of(Tensor values, int64_t count) {
  values = stop_gradient(values);
  const Tensor place = counting(values.dims(), values.rank() - 1), end = number(values.dim(-1));
  std::vector<Largest> out;
  for (int64_t j = 0; j < count; ++j) {
    const Tensor best = compare(values, Direction::kEQ, expand(reduce_max(values, {-1}), -1));
    const Tensor first = end - reduce_max(where(best) * (end - place), {-1});
    const Tensor there = compare(place, Direction::kEQ, expand(first, -1));
    out.push_back({first, where(there)});
    values = select(there, number(0) + kNever, values);
  }
  return out;
}

// Sets the scores of experts outside of the best groups to kNever.
Tensor within_best_groups(const Routing& routing, const Tensor& scores) {
  if (routing.groups == 1) return scores;
  Dims apart = scores.dims();
  apart.back() = routing.groups;
  apart.push_back(scores.dim(-1) / routing.groups);
  const Tensor by_group = reshape(scores, apart);
  Tensor of_group;
  for (const Largest& each : largest_of(by_group, routing.best_two ? 2 : 1)) {
    const Tensor value = reduce_sum(by_group * each.there, {-1});
    of_group = of_group ? of_group + value : value;
  }
  Tensor chosen;
  for (const Largest& each : largest_of(of_group, routing.top_groups))
    chosen = chosen ? chosen + each.there : each.there;
  const Tensor open = broadcast_to(expand(compare(chosen, Direction::kGT, number(0)), -1), apart);
  return reshape(select(open, by_group, full(kNever, by_group.shape())), scores.dims());
}

Tensor softmax(const Tensor& logits) {
  const Tensor powers = exp(logits - expand(stop_gradient(reduce_max(logits, {-1})), -1));
  return powers / expand(reduce_sum(powers, {-1}), -1);
}

// Returns the router's logits as f32.
Tensor router_logits(const Forward& f, const Layer& layer, const Tensor& x_nD) {
  const std::string& router = f.config.experts.router;
  PathScope scope(router);
  const Tensor in = f.config.routing.in_f32 ? convert(x_nD, DType::kF32) : x_nD;
  auto times = [&](const Tensor& x, const std::string& name) {
    return dot_general(x, convert(layer[name], x.dtype()), {.lhs_contracting = {x.rank() - 1}, .rhs_contracting = {1}});
  };
  Tensor y = times(in, router + ".weight");
  if (layer.has(router + ".bias")) y = y + convert(layer[router + ".bias"], y.dtype());
  if (f.expert_lora && !f.expert_lora->router.empty()) {
    const std::string& lora = f.expert_lora->router;
    y = y + times(times(in, lora + ".lora_A.weight"), lora + ".lora_B.weight") * f.expert_lora->scale;
  }
  return convert(y, DType::kF32);
}

// Returns the experts with the best scores for each token, and their routing weights. Adds the statistics to f.router
// and f.loads unless they are null. Among experts with equal scores, the one with the lower number comes first.
Routes route(Forward& f, const Layer& layer, const Tensor& x_nD, const Tensor& mask_n1) {
  const ModelConfig& c = f.config;
  const Tensor logits = router_logits(f, layer, x_nD);
  const Tensor scores = c.routing.sigmoid ? logistic(logits) : softmax(logits);
  // Llama 4 (on_inputs) compares logits, because the sigmoids of two large logits may round to the same number.
  Tensor choice = c.routing.on_inputs ? logits : scores;
  if (!c.routing.correction.empty())
    choice = choice + reshape(convert(layer[c.routing.correction], DType::kF32), {c.num_experts});
  std::vector<Tensor> experts, weights, factors;
  Tensor taken = full(0, scores.shape());
  for (const Largest& each : largest_of(within_best_groups(c.routing, choice), c.experts_per_token)) {
    experts.push_back(expand(each.place, -1));
    weights.push_back(expand(reduce_sum(scores * each.there, {-1}), -1));
    if (!c.routing.factors.empty())
      factors.push_back(expand(reduce_sum(convert(layer[c.routing.factors], DType::kF32) * each.there, {-1}), -1));
    taken = taken + each.there;
  }
  add_routes(f, layer, {taken, scores, mask_n1});
  Tensor of_all = concatenate(weights, -1);
  if (c.routing.normalised) {
    const Tensor total = expand(reduce_sum(of_all, {-1}), -1);
    of_all = of_all / (c.routing.sigmoid ? total + c.routing.epsilon : total);
  }
  if (c.routing.scale != 1) of_all = of_all * c.routing.scale;
  if (!factors.empty()) of_all = of_all * concatenate(factors, -1);
  return {concatenate(experts, -1), of_all};
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

// Arranges the weights of all experts [E, O, I] as [4 device dims, R, O * I / tp]. tp splits dim `split_dim` (1 or 2)
// of the weights; 0 means that tp splits no dim.
Tensor rows_of_experts(const DeviceDims& devices, const Tensor& weight, int64_t split_dim) {
  const int64_t p = devices.size(2), t = devices.size(3), r = weight.dim(0) / p;
  if (split_dim == 0) {
    const Dims flat{r, weight.dim(1) * weight.dim(2)};
    const Tensor rows = reshape(weight, {p, flat[0], flat[1]});
    return devices.constrain(broadcast_in_dim(rows, devices.with(kAll, flat), {2, 4, 5}), kAll);
  }
  Tensor parts;
  if (split_dim == 1)
    parts = transpose(reshape(weight, {p, r, t, weight.dim(1) / t, weight.dim(2)}), {0, 2, 1, 3, 4});
  else
    parts = transpose(reshape(weight, {p, r, weight.dim(1), t, weight.dim(2) / t}), {0, 3, 1, 2, 4});
  const Dims flat{r, weight.dim(1) * weight.dim(2) / t};
  const Tensor rows = reshape(parts, {p, t, flat[0], flat[1]});
  return devices.constrain(broadcast_in_dim(rows, devices.with(kAll, flat), {2, 3, 4, 5}), kAll);
}

// A linear layer of each expert: its weights and, with LoRA, lora_A and lora_B. `out` and `in` are sizes on one device.
// Each expert's weight is one row with the elements of [out, in], or [in, out] (in_first).
struct ExpertLinear {
  int64_t out, in;
  Tensor weights, a, b;
  int64_t rank = 0;
  double scale = 1;  // scale of LoRA
  bool in_first = false;
  Tensor bias;  // one row of `out` elements per expert; null: no bias
  // Used instead of `weights` if the weight is quantised. Each pair is one part of the weight: an array with one row
  // per expert, and the dims of such a row.
  std::vector<std::pair<Tensor, Dims>> parts;
  std::function<Tensor(const std::vector<Tensor>& parts)> unpack;
};

class ExpertLinears {
 public:
  ExpertLinears(const Forward& f, const Layer& layer, const DeviceDims& devices)
      : f_(f), layer_(layer), devices_(devices) {}

  // Returns the linear layer `module`, which is gate or up. tp splits its outputs. Gate and up have one lora_A and one
  // lora_B in common. `half` selects the rows of lora_B: 0 for the gate, 1 for up (0 if there is no gate).
  ExpertLinear hidden(const std::string& module, int64_t half) const {
    const int64_t inner = f_.config.expert_size;
    ExpertLinear out{inner / devices_.size(3), f_.config.expert_in(), {}, {}, {}};
    if (!set_parts(out, module + ".weight")) out.weights = rows(module + ".weight", 1);
    if (!f_.expert_lora || f_.expert_lora->gate_up.empty()) return out;
    const LoraPair lora = lora_of(f_.expert_lora->gate_up);
    add_lora(out, {lora.a_ErI, slice(lora.b_EOr, 1, half * inner, (half + 1) * inner)}, 0, 1);
    out.scale = f_.expert_lora->gate_up_scale;
    return out;
  }
  // Returns the fused linear layer gate_up. Each device of tp has its share of the gate's outputs and of up's outputs,
  // in the order of the fused weight.
  ExpertLinear gate_up() const {
    const ExpertNames& names = f_.config.experts;
    const int64_t d = f_.config.expert_in(), e = f_.config.num_experts, inner = f_.config.expert_size;
    const int64_t dim = names.in_first ? 2 : 1;
    ExpertLinear out{2 * inner / devices_.size(3), d, {}, {}, {}};
    out.in_first = names.in_first;
    if (!set_parts(out, names.gate_up))
      out.weights = rows_of_experts(devices_, outputs_by_device(part(names.gate_up), dim), dim);
    if (layer_.has(names.gate_up + "_bias"))
      out.bias = rows_of_experts(devices_, expand(outputs_by_device(part(names.gate_up + "_bias"), 1), 2), 1);
    if (!f_.expert_lora || f_.expert_lora->gate_up.empty()) return out;
    const LoraPair lora = lora_of(f_.expert_lora->gate_up);
    const int64_t rank = lora.b_EOr.dim(2);
    const Dims apart = names.in_turns ? Dims{e, inner, 2, rank} : Dims{e, 2, inner, rank};
    add_lora(out, {lora.a_ErI, outputs_by_device(reshape(lora.b_EOr, apart), 1)}, 0, 1);
    out.scale = f_.expert_lora->gate_up_scale;
    return out;
  }
  // Returns the linear layer `down`. Tensor parallelism (tp) splits its input dim.
  ExpertLinear down(const std::string& module) const {
    const bool fused = f_.config.experts.fused(), in_first = f_.config.experts.in_first;
    const int64_t d = f_.config.expert_in(), t = devices_.size(3);
    const std::string name = fused ? module : module + ".weight";
    ExpertLinear out{d, f_.config.expert_size / t, {}, {}, {}};
    out.in_first = in_first;
    if (!set_parts(out, name)) out.weights = rows(name, in_first ? 1 : 2);
    // Each of the t devices of tp adds 1 / t of the bias. The sum over these devices then has the bias once.
    if (layer_.has(module + "_bias"))
      out.bias = rows_of_experts(devices_,
                                 expand(convert(layer_[module + "_bias"], DType::kF32) / static_cast<double>(t), 2), 0);
    if (!f_.expert_lora || f_.expert_lora->down.empty()) return out;
    add_lora(out, lora_of(f_.expert_lora->down), 2, 0);
    out.scale = f_.expert_lora->scale;
    return out;
  }

 private:
  Tensor part(const std::string& name) const {
    const auto packed = layer_.packed.find(name);
    const bool stored = packed == layer_.packed.end();
    return convert(stored ? layer_[name] : packed->second.unpack(packed->second.parts), f_.compute);
  }
  // Sets the parts of a quantised weight. Returns false if the weight is not quantised, or if tp splits it, because the
  // parts of an expert cannot be split like its weight.
  bool set_parts(ExpertLinear& linear, const std::string& name) const {
    const auto packed = layer_.packed.find(name);
    if (packed == layer_.packed.end() || devices_.size(3) > 1) return false;
    for (const Tensor& part : packed->second.parts) {
      const Dims one(part.dims().begin() + 1, part.dims().end());
      linear.parts.emplace_back(rows_of_experts(devices_, reshape(part, {part.dim(0), product(one), 1}), 0), one);
    }
    linear.unpack = packed->second.unpack;
    return true;
  }
  Tensor rows(const std::string& name, int64_t split_dim) const {
    return rows_of_experts(devices_, part(name), split_dim);
  }
  // gate_up has two output dims in `x`, [F, 2] or [2, F]; `dim` is the index of the first. Joins the two dims, in an
  // order in which each tp device's share is contiguous.
  Tensor outputs_by_device(const Tensor& x, int64_t dim) const {
    const int64_t t = devices_.size(3), inner = f_.config.expert_size;
    Dims joint = x.dims();
    joint.erase(joint.begin() + dim);
    joint[dim] = 2 * inner;
    if (f_.config.experts.in_turns || t == 1) return reshape(x, joint);
    Dims apart = x.dims(), order;
    apart[dim + 1] = t;
    apart.insert(apart.begin() + dim + 2, inner / t);
    for (size_t d = 0; d < apart.size(); ++d) order.push_back(static_cast<int64_t>(d));
    std::swap(order[dim], order[dim + 1]);
    return reshape(transpose(reshape(x, apart), order), joint);
  }
  struct LoraPair {
    Tensor a_ErI, b_EOr;
  };
  // Returns the LoRA weights of the module `lora`. The stored lora_A is [E, r, I], and lora_B is [O, r, E]. With
  // swapped_lora, lora_A is [E, r, O], and lora_B is [I, r, E].
  LoraPair lora_of(const std::string& lora) const {
    const Tensor a = part(lora + ".lora_A.weight"), b = part(lora + ".lora_B.weight");
    if (f_.config.experts.swapped_lora) return {transpose(b, {2, 1, 0}), transpose(a, {0, 2, 1})};
    return {a, transpose(b, {2, 0, 1})};
  }
  void add_lora(ExpertLinear& linear, const LoraPair& lora, int64_t split_a, int64_t split_b) const {
    linear.a = rows_of_experts(devices_, lora.a_ErI, split_a);
    linear.b = rows_of_experts(devices_, lora.b_EOr, split_b);
    linear.rank = lora.b_EOr.dim(2);
  }

  const Forward& f_;
  const Layer& layer_;
  const DeviceDims& devices_;
};

// For each device, computes the weight of one expert from the expert's quantised parts. `expert` [4 device dims, 1] has
// the experts' numbers.
Tensor unpacked(const ExpertLinear& linear, const Tensor& expert, DType dtype) {
  std::vector<Tensor> parts;
  for (const auto& [rows, dims] : linear.parts) {
    Dims of_devices{product(expert.dims())};
    of_devices.insert(of_devices.end(), dims.begin(), dims.end());
    parts.push_back(reshape(take(rows, expert), of_devices));
  }
  return convert(linear.unpack(parts), dtype);
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
    mask = devices.split(expand(where(compare(f.segments, Direction::kNE, constant(0, DType::kI32))), 2));
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
  const ScanStep sums = scan(
      blocks.count, {zeros}, {blocks.tokens_Z, blocks.weights_Z, blocks.expert_1},
      [&](const Tensor&, const std::vector<Tensor>& carried, const std::vector<Tensor>& block) -> ScanStep {
        const Tensor ids = devices.broadcast_to_devices(block[0], kOfExperts, kAll);
        const Tensor routed = devices.broadcast_to_devices(block[1], kOfExperts, kAll);
        const Tensor expert = devices.broadcast_to_devices(block[2], kOfExperts, kAll);
        auto product = [&](const Tensor& x, const Tensor& matrices, const Dims& dims, DType dtype,
                           bool in_first = false) {
          const Tensor weight = reshape(matrices, devices.with(kAll, dims));
          const DotDims contract{{0, 1, 2, 3}, {0, 1, 2, 3}, {5}, {in_first ? 4 : 5}};
          return devices.constrain(dot_general(x, weight, contract, dtype), kAll);
        };
        auto times = [&](const Tensor& x, const ExpertLinear& linear, DType dtype) {
          const Dims dims = linear.in_first ? Dims{linear.in, linear.out} : Dims{linear.out, linear.in};
          const Tensor weights = linear.unpack ? unpacked(linear, expert, f.compute) : take(linear.weights, expert);
          Tensor y = product(x, weights, dims, dtype, linear.in_first);
          if (linear.bias)
            y = y + convert(reshape(take(linear.bias, expert), devices.with(kAll, {1, linear.out})), dtype);
          if (!linear.a) return y;
          const Tensor low = product(x, take(linear.a, expert), {linear.rank, linear.in}, f.compute);
          return y + product(low, take(linear.b, expert), {linear.out, linear.rank}, dtype) * linear.scale;
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
