#include "models/blocks/layers.h"

#include <cmath>
#include <numbers>

#include "base/error.h"
#include "graph/composite.h"
#include "graph/float8.h"
#include "graph/ops.h"

namespace fettle {

namespace {

DotDims linear_dims(const Tensor& x, const Tensor& weight, bool transposed) {
  return {.lhs_contracting = {x.rank() - 1}, .rhs_contracting = {transposed ? 0 : weight.rank() - 1}};
}

Tensor float8_product(const Forward& f, const Tensor& x, const Tensor& weight, bool transposed) {
  return float8_dot(x, convert(weight, f.compute), linear_dims(x, weight, transposed), *f.float8);
}

}  // namespace

Tensor product(const ShardingRules* rules, const Tensor& x, const Tensor& weight, ProductForm form) {
  auto body = [form](const std::vector<Tensor>& in) -> std::vector<Tensor> {
    const Tensor same = convert(in[1], in[0].dtype());
    const DType result = form.in_f32 ? DType::kF32 : in[0].dtype();
    return {dot_general(in[0], same, linear_dims(in[0], same, form.transposed), result)};
  };
  if (x.rank() != 3) return body({x, weight})[0];
  const Partition rows = rules == nullptr ? Partition{} : rules->fitting({"batch", "length", ""}, x.dims());
  return composite("linear", {{"transposed", form.transposed}, {"in_f32", form.in_f32}}, {x, weight}, {rows, {}},
                   body)[0];
}

Tensor linear(const Forward& f, const Layer& layer, const std::string& module, const Tensor& x, LinearForm form) {
  PathScope scope(module);
  const Tensor& weight = layer[module + ".weight"];
  Tensor y = f.float8 ? float8_product(f, x, weight, form.transposed)
                      : product(&f.sharding, x, weight, {.transposed = form.transposed});
  if (layer.has(module + ".bias")) y = y + convert(layer[module + ".bias"], f.compute);
  return f.adapt ? f.adapt(layer, module, x, y) : y;
}

Tensor linear_outside(const Forward& f, const std::string& module, const Tensor& x) {
  Layer own{.index = constant(0, DType::kI32)};
  for (const auto& [name, entry] : f.weights)
    if (name.starts_with(module + ".")) own.weights[name] = entry.value;
  return linear(f, own, module, x);
}

Tensor rms_norm(const Tensor& x, const Tensor& weight_D, double eps, double weight_offset) {
  const Tensor x32 = convert(x, DType::kF32);
  const double n = static_cast<double>(x.dim(-1));
  const Tensor mean_square = expand(reduce_sum(x32 * x32, {-1}), -1) / n;
  const Tensor normal = x32 * rsqrt(mean_square + eps);
  if (!weight_D) return convert(normal, x.dtype());
  const Tensor weight = convert(weight_D, DType::kF32);
  return convert(normal * (weight_offset == 0 ? weight : weight + weight_offset), x.dtype());
}

Tensor layer_norm(const Tensor& x, const Tensor& weight_D, const Tensor& bias_D, double eps) {
  const Tensor x32 = convert(x, DType::kF32);
  const double n = static_cast<double>(x.dim(-1));
  const Tensor centred = x32 - expand(reduce_sum(x32, {-1}), -1) / n;
  const Tensor variance = expand(reduce_sum(centred * centred, {-1}), -1) / n;
  const Tensor normal = centred * rsqrt(variance + eps);
  const Tensor scaled = normal * convert(weight_D, DType::kF32);
  return convert(bias_D ? scaled + convert(bias_D, DType::kF32) : scaled, x.dtype());
}

namespace {

template <typename Find>
Tensor norm_of(const ModelConfig& c, const Find& find, const std::string& name, const Tensor& x) {
  if (c.norm == Norm::kCentred) return layer_norm(x, find(name + ".weight"), {}, c.norm_eps);
  if (c.norm == Norm::kLayer) return layer_norm(x, find(name + ".weight"), find(name + ".bias"), c.norm_eps);
  return rms_norm(x, find(name + ".weight"), c.norm_eps, c.norm == Norm::kRmsPlusOne ? 1 : 0);
}

}  // namespace

Tensor norm(const ModelConfig& c, const Layer& layer, const std::string& name, const Tensor& x) {
  return norm_of(
      c, [&](const std::string& part) { return layer[part]; }, name, x);
}

Tensor norm(const ModelConfig& c, const Weights& weights, const std::string& name, const Tensor& x) {
  return norm_of(
      c, [&](const std::string& part) { return weights.at(part); }, name, x);
}

Tensor soft_cap(const Tensor& x, double cap) {
  return cap == 0 ? x : tanh(x / cap) * cap;
}

Tensor activation(const std::string& name, const Tensor& x) {
  if (name == "silu" || name == "swish") return x * logistic(x);
  if (name == "tanh") return tanh(x);
  if (name == "relu") return maximum(x, constant(0, x.dtype()));
  if (name == "relu2") {
    const Tensor positive = maximum(x, constant(0, x.dtype()));
    return positive * positive;
  }
  if (name == "gelu_new" || name == "gelu_pytorch_tanh" || name == "gelu_fast") {
    const Tensor x32 = convert(x, DType::kF32);
    const Tensor inner = (x32 + x32 * x32 * x32 * 0.044715) * std::sqrt(2 / std::numbers::pi);
    return convert(x32 * (tanh(inner) + 1.0) * 0.5, x.dtype());
  }
  if (name == "gelu") {
    const Tensor x32 = convert(x, DType::kF32);
    return convert(x32 * (erf(x32 * std::sqrt(0.5)) + 1.0) * 0.5, x.dtype());
  }
  throw UserError(
      "activation function '{}' is not implemented; wanted silu, gelu, gelu_new, gelu_pytorch_tanh, relu, relu2 "
      "or tanh",
      name);
}

namespace {

// Returns log(1 + u) for u from 0 to 1. 1 + u drops the last bits of a small u, so small numbers use the first terms of
// the series; the next term is below the precision of f32.
Tensor log_of_one_plus(const Tensor& u) {
  constexpr double kSmall = 0.03;
  const Tensor series = u * (u * (u * (u * (u * 0.2 + -0.25) + 1.0 / 3) + -0.5) + 1.0);
  return select(compare(u, "LT", constant(kSmall, u.dtype())), series, log(u + 1.0));
}

}  // namespace

Tensor log_sigmoid(const Tensor& x) {
  return -softplus(-x);
}

Tensor softplus(const Tensor& x) {
  const Tensor zero = constant(0, x.dtype());
  // At x = 0, the derivative of softplus is 1/2, and that of the abs below is 0. So the derivative of `first` must be
  // 1/2; maximum(x, 0) would give 1.
  const Tensor first = select(compare(x, "EQ", zero), x * 0.5, maximum(x, zero));
  return first + log_of_one_plus(exp(-abs(x)));
}

Tensor embed(const Forward& f, const Tensor& table_VD, const Tensor& ids_BT) {
  Tensor rows = convert(take(table_VD, ids_BT), f.compute);
  if (f.config.embedding_scale != 1) rows = rows * f.config.embedding_scale;
  if (f.disturb) rows = f.disturb(rows);
  return f.sharding.constrain(rows, {"batch", "length", "act_embed"});
}

}  // namespace fettle
