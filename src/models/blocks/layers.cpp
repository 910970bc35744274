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

Tensor row_products(const Tensor& left_BTM, const Tensor& right_BTN) {
  auto body = [](const std::vector<Tensor>& in) -> std::vector<Tensor> {
    const DotDims rows{.lhs_contracting = {0, 1}, .rhs_contracting = {0, 1}};
    return {dot_general(in[0], in[1], rows, DType::kF32)};
  };
  return composite("linear", {{"turned", true}}, {left_BTM, right_BTN}, {}, body)[0];
}

Tensor lora_product(const ShardingRules& rules, const Tensor& x_BTI, const Tensor& weight, const LowRank& low,
                    ProductForm form) {
  auto body = [&](const std::vector<Tensor>& in) -> std::vector<Tensor> {
    const Tensor y = product(&rules, in[0], in[1], form);
    PathScope scope("lora");
    return {y + product(&rules, product(&rules, in[0], in[2]), in[3]) * low.scale};
  };
  return composite("lora", {{"transposed", form.transposed}, {"scale", low.scale}}, {x_BTI, weight, low.a, low.b},
                   {rules.fitting({"batch", "length", ""}, x_BTI.dims()), {}, {}, {}}, body)[0];
}

Tensor linear(const Forward& f, const Layer& layer, const std::string& module, const Tensor& x, LinearForm form) {
  PathScope scope(module);
  const Tensor& weight = layer[module + ".weight"];
  if (f.low_rank && !f.float8 && x.rank() == 3 && !layer.has(module + ".bias"))
    if (const std::optional<LowRank> low = f.low_rank(layer, module))
      return lora_product(f.sharding, x, weight, *low, {.transposed = form.transposed});
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

namespace {

Tensor rms_norm_body(const Tensor& x, const Tensor& weight_D, double eps, double weight_offset) {
  const Tensor x32 = convert(x, DType::kF32);
  const double n = static_cast<double>(x.dim(-1));
  const Tensor mean_square = expand(reduce_sum(x32 * x32, {-1}), -1) / n;
  const Tensor normal = x32 * rsqrt(mean_square + eps);
  if (!weight_D) return convert(normal, x.dtype());
  const Tensor weight = convert(weight_D, DType::kF32);
  return convert(normal * (weight_offset == 0 ? weight : weight + weight_offset), x.dtype());
}

}  // namespace

Tensor rms_norm(const Tensor& x, const Tensor& weight_D, double eps, double weight_offset, const ShardingRules* rules) {
  if (rules == nullptr || !weight_D || (x.rank() != 3 && x.rank() != 4))
    return rms_norm_body(x, weight_D, eps, weight_offset);
  LogicalAxes axes{"batch", "length"};
  axes.resize(x.rank());
  return composite("rms_norm", {{"eps", eps}, {"weight_offset", weight_offset}}, {x, weight_D},
                   {rules->fitting(axes, x.dims()), {}}, [&](const std::vector<Tensor>& in) -> std::vector<Tensor> {
                     return {rms_norm_body(in[0], in[1], eps, weight_offset)};
                   })[0];
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
Tensor norm_of(const ModelConfig& c, const Find& find, const std::string& name, const Tensor& x,
               const ShardingRules* rules) {
  if (c.norm == Norm::kCentred) return layer_norm(x, find(name + ".weight"), {}, c.norm_eps);
  if (c.norm == Norm::kLayer) return layer_norm(x, find(name + ".weight"), find(name + ".bias"), c.norm_eps);
  return rms_norm(x, find(name + ".weight"), c.norm_eps, c.norm == Norm::kRmsPlusOne ? 1 : 0, rules);
}

}  // namespace

Tensor norm(const ModelConfig& c, const Layer& layer, const std::string& name, const Tensor& x,
            const ShardingRules* rules) {
  return norm_of(
      c, [&](const std::string& part) { return layer[part]; }, name, x, rules);
}

Tensor norm(const ModelConfig& c, const Weights& weights, const std::string& name, const Tensor& x,
            const ShardingRules* rules) {
  return norm_of(
      c, [&](const std::string& part) { return weights.at(part); }, name, x, rules);
}

Tensor soft_cap(const Tensor& x, double cap) {
  return cap == 0 ? x : tanh(x / cap) * cap;
}

Tensor activation(const std::string& name, const Tensor& x) {
  if (name == "silu" || name == "swish") return x * logistic(x);
  if (name == "tanh") return tanh(x);
  // If both operands of maximum() are equal, the first one gets the gradient. So the gradient at 0 is 0, as in PyTorch.
  if (name == "relu") return maximum(zeros_like(x), x);
  if (name == "relu2") {
    const Tensor positive = activation("relu", x);
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
      "config.json: the activation function '{}' is not implemented; wanted silu, swish, gelu, gelu_new, gelu_fast, "
      "gelu_pytorch_tanh, relu, relu2 or tanh (the key is hidden_act, hidden_activation, activation_function, "
      "mlp_hidden_act or classifier_activation)",
      name);
}

Tensor gated(const ShardingRules& rules, const std::string& name, const Tensor& gate_BTF, const Tensor& up_BTF) {
  const Partition split = rules.fitting({"batch", "length", "act_mlp"}, gate_BTF.dims());
  return composite(
      "gated", {{"activation", name}}, {gate_BTF, up_BTF}, {split, split},
      [&](const std::vector<Tensor>& in) -> std::vector<Tensor> { return {activation(name, in[0]) * in[1]}; })[0];
}

namespace {

// Returns log(1 + u) for u from 0 to 1. For a small u, the sum 1 + u would lose the last bits of u, so the function
// adds the first five terms of the Taylor series. The sixth term is below the precision of f32.
Tensor log_of_one_plus(const Tensor& u) {
  constexpr double kSmall = 0.03;
  const Tensor series = u * (u * (u * (u * (u * 0.2 + -0.25) + 1.0 / 3) + -0.5) + 1.0);
  return select(compare(u, Direction::kLT, constant(kSmall, u.dtype())), series, log(u + 1.0));
}

}  // namespace

Tensor log_sigmoid(const Tensor& x) {
  return -softplus(-x);
}

Tensor softplus(const Tensor& x) {
  const Tensor zero = constant(0, x.dtype());
  // At x = 0, the derivative of softplus is 1/2, and the derivative of the abs below is 0. So the derivative of `first`
  // must be 1/2; maximum(x, 0) would give 1.
  const Tensor first = select(compare(x, Direction::kEQ, zero), x * 0.5, maximum(x, zero));
  return first + log_of_one_plus(exp(-abs(x)));
}

Tensor embed(const Forward& f, const Tensor& table_VD, const Tensor& ids_BT) {
  Tensor rows = convert(take(table_VD, ids_BT), f.compute);
  const double scale = f.config.embedding_scale;
  // In Transformers, a scale that is rounded belongs to the table's module, and a hook of the module gets scaled rows.
  // Other scales are applied to the result of the hook.
  const bool of_table = f.config.rounds_embedding_scale;
  if (of_table) rows = rows * constant(scale, rows.dtype());
  if (f.disturb) rows = f.disturb(rows);
  if (!of_table && scale != 1) rows = rows * scale;
  return f.sharding.constrain(rows, {"batch", "length", "act_embed"});
}

}  // namespace fettle
