#include "models/blocks/experts/expert_linears.h"

#include "graph/ops.h"

namespace fettle {
namespace {

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

}  // namespace

ExpertLinear ExpertLinears::hidden(const std::string& module, int64_t half) const {
  const int64_t inner = f_.config.expert_size;
  ExpertLinear out{inner / devices_.size(3), f_.config.expert_in(), {}, {}, {}};
  if (!set_parts(out, module + ".weight")) out.weights = rows(module + ".weight", 1);
  if (!f_.expert_lora || f_.expert_lora->gate_up.empty()) return out;
  const LoraPair lora = lora_of(f_.expert_lora->gate_up);
  add_lora(out, {lora.a_ErI, slice(lora.b_EOr, 1, half * inner, (half + 1) * inner)}, 0, 1);
  out.scale = f_.expert_lora->gate_up_scale;
  return out;
}

ExpertLinear ExpertLinears::gate_up() const {
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

ExpertLinear ExpertLinears::down(const std::string& module) const {
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

Tensor ExpertLinears::part(const std::string& name) const {
  const auto packed = layer_.packed.find(name);
  const bool stored = packed == layer_.packed.end();
  return convert(stored ? layer_[name] : packed->second.unpack(packed->second.parts), f_.compute);
}

bool ExpertLinears::set_parts(ExpertLinear& linear, const std::string& name) const {
  const auto packed = layer_.packed.find(name);
  if (packed == layer_.packed.end() || devices_.size(3) > 1) return false;
  for (const Tensor& part : packed->second.parts) {
    const Dims one(part.dims().begin() + 1, part.dims().end());
    linear.parts.emplace_back(rows_of_experts(devices_, reshape(part, {part.dim(0), product(one), 1}), 0), one);
  }
  linear.unpack = packed->second.unpack;
  return true;
}

Tensor ExpertLinears::rows(const std::string& name, int64_t split_dim) const {
  return rows_of_experts(devices_, part(name), split_dim);
}

Tensor ExpertLinears::outputs_by_device(const Tensor& x, int64_t dim) const {
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

ExpertLinears::LoraPair ExpertLinears::lora_of(const std::string& lora) const {
  const Tensor a = part(lora + ".lora_A.weight"), b = part(lora + ".lora_B.weight");
  if (f_.config.experts.swapped_lora) return {transpose(b, {2, 1, 0}), transpose(a, {0, 2, 1})};
  return {a, transpose(b, {2, 0, 1})};
}

void ExpertLinears::add_lora(ExpertLinear& linear, const LoraPair& lora, int64_t split_a, int64_t split_b) const {
  linear.a = rows_of_experts(devices_, lora.a_ErI, split_a);
  linear.b = rows_of_experts(devices_, lora.b_EOr, split_b);
  linear.rank = lora.b_EOr.dim(2);
}

Tensor multiply(const DeviceDims& devices, const ExpertLinear& linear, const Tensor& x, const Tensor& expert,
                DType compute, DType dtype) {
  auto product = [&](const Tensor& x, const Tensor& matrices, const Dims& dims, DType dtype, bool in_first = false) {
    const Tensor weight = reshape(matrices, devices.with(kAll, dims));
    const DotDims contract{{0, 1, 2, 3}, {0, 1, 2, 3}, {5}, {in_first ? 4 : 5}};
    return devices.constrain(dot_general(x, weight, contract, dtype), kAll);
  };
  const Dims dims = linear.in_first ? Dims{linear.in, linear.out} : Dims{linear.out, linear.in};
  const Tensor weights = linear.unpack ? unpacked(linear, expert, compute) : take(linear.weights, expert);
  Tensor y = product(x, weights, dims, dtype, linear.in_first);
  if (linear.bias) y = y + convert(reshape(take(linear.bias, expert), devices.with(kAll, {1, linear.out})), dtype);
  if (!linear.a) return y;
  const Tensor low = product(x, take(linear.a, expert), {linear.rank, linear.in}, compute);
  return y + product(low, take(linear.b, expert), {linear.out, linear.rank}, dtype) * linear.scale;
}

}  // namespace fettle
