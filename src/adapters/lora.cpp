#include "adapters/lora.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "graph/ops.h"

namespace fettle {
namespace {

// A strong 32-bit mixer: a bijection whose every output bit depends on every input bit (constants of "lowbias32").
Tensor mix(Tensor x) {
  x = bit_xor(x, shift_right(x, 16)) * 0x7feb352d;
  x = bit_xor(x, shift_right(x, 15)) * 0x846ca68b;
  return bit_xor(x, shift_right(x, 16));
}

uint32_t hash_of(const std::string& text) {
  uint32_t hash = 2166136261u;  // FNV-1a
  for (unsigned char c : text) hash = (hash ^ c) * 16777619u;
  return hash;
}

Tensor dropout(const Tensor& x, double rate, const Tensor& key) {
  const Tensor bits = random_bits(x.dims(), key);
  const Tensor kept = compare(bits, "GE", constant(std::floor(rate * 4294967296.0), DType::kU32));
  return select(kept, x * (1 / (1 - rate)), zeros_like(x));
}

}  // namespace

double LoraOptions::scale() const {
  return alpha / (rslora ? std::sqrt(static_cast<double>(rank)) : static_cast<double>(rank));
}

Tensor random_bits(const Dims& dims, const Tensor& key_u32) {
  Tensor index = constant(0, DType::kU32);
  int64_t stride = 1;
  for (int64_t d = static_cast<int64_t>(dims.size()) - 1; d >= 0; --d) {
    index = index + iota({DType::kU32, dims}, d) * static_cast<double>(stride & 0xffffffff);
    stride *= dims[d];
  }
  return mix(mix(index + key_u32) + key_u32);
}

std::vector<std::string> lora_modules(const Model& model, const std::vector<std::string>& targets) {
  std::vector<std::string> out;
  for (const std::string& linear : model.family->linears) {
    const bool wanted = std::any_of(targets.begin(), targets.end(), [&](const std::string& target) {
      return target == "all" || target == "all-linear" || target == linear || linear.ends_with("." + target);
    });
    if (wanted) out.push_back(linear);
  }
  for (const std::string& target : targets) {
    const bool matches = target == "all" || target == "all-linear" ||
                         std::any_of(out.begin(), out.end(), [&](const std::string& linear) {
                           return target == linear || linear.ends_with("." + target);
                         });
    if (!matches)
      throw UserError("lora_target: '{}' names no linear layer of {}; there are all, {}", target,
                      model.family->model_type, fmt::join(model.family->linears, ", "));
  }
  return out;
}

std::vector<WeightRow> lora_rows(const Model& model, const LoraOptions& options) {
  std::vector<WeightRow> rows;
  for (const std::string& module : options.modules) {
    const std::string name = model.family->layer_prefix + module;
    const WeightRow& base = model.row(name + ".weight");
    const bool in_first = model.family->fan_in_fan_out;
    const auto in = in_first ? 0 : static_cast<std::ptrdiff_t>(base.dims.size()) - 1;
    rows.push_back({name + ".lora_A.weight", {options.rank, base.dims[in]}, {"rank", base.axes[in]}});
    WeightRow b{name + ".lora_B.weight", base.dims, base.axes, Init::kZeros, base.fused};
    b.dims.erase(b.dims.begin() + in);
    b.axes.erase(b.axes.begin() + in);
    b.dims.push_back(options.rank);
    b.axes.push_back("rank");
    if (in_first && b.fused > 0) --b.fused;
    rows.push_back(b);
  }
  return rows;
}

std::function<Tensor(const Layer&, const std::string&, const Tensor&, const Tensor&)> lora_adapt(
    const LoraOptions& options, DType compute, const DropoutKey* key) {
  const bool drops = key != nullptr && options.dropout > 0;
  const Tensor seed = drops ? key->seed : Tensor{};
  return [options, compute, drops, seed](const Layer& layer, const std::string& module, const Tensor& x,
                                         const Tensor& y) -> Tensor {
    if (!layer.has(module + ".lora_A.weight")) return y;
    PathScope scope("lora");
    Tensor input = x;
    if (drops) {
      const Tensor use = convert(layer.index, DType::kU32) * 0x9e3779b9 + static_cast<double>(hash_of(module));
      input = dropout(x, options.dropout, bit_xor(seed, use));
    }
    auto times = [&](const Tensor& value, const char* part) {
      const Tensor weight = convert(layer[module + part], compute);
      return dot_general(value, weight,
                         {.lhs_contracting = {value.rank() - 1}, .rhs_contracting = {weight.rank() - 1}});
    };
    return y + times(times(input, ".lora_A.weight"), ".lora_B.weight") * options.scale();
  };
}

}  // namespace fettle
