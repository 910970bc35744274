#include "adapters/lora.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "adapters/dora.h"
#include "base/error.h"
#include "base/random.h"
#include "graph/ops.h"
#include "models/blocks/layers.h"
#include "tokenizer/text/regex.h"

namespace fettle {
namespace {

// Returns the router's weight, gate_up and down, in this order.
std::vector<ExpertParameter> parameters_of(const ModelConfig& c) {
  const ExpertNames& names = c.experts;
  auto all = [](std::string router, std::string gate_up, std::string down) -> std::vector<ExpertParameter> {
    return {{ExpertPart::kRouter, std::move(router)},
            {ExpertPart::kGateUp, std::move(gate_up)},
            {ExpertPart::kDown, std::move(down)}};
  };
  if (!names.module.empty())
    return all(names.router_module + ".weight", names.module + ".gate_up_proj", names.module + ".down_proj");
  if (names.fused()) return all(names.router + ".weight", names.gate_up, names.down);
  static const std::string kOlder = "block_sparse_moe.";  // Mixtral's files have this prefix
  auto newer = [](const std::string& name) {
    return name.starts_with(kOlder) ? "mlp." + name.substr(kOlder.size()) : name;
  };
  const std::string module = newer(names.down.substr(0, names.down.find(".{}")));
  return all(newer(names.router) + ".weight", module + (names.gated() ? ".gate_up_proj" : ".up_proj"),
             module + ".down_proj");
}

Tensor dropout(const Tensor& x, double rate, const PositionKey& key) {
  const Tensor bits = random_bits_of_positions(x.dim(-1), key);
  const Tensor kept = compare(bits, Direction::kGE, constant(std::floor(rate * 4294967296.0), DType::kU32));
  return select(kept, x * (1 / (1 - rate)), zeros_like(x));
}

}  // namespace

double LoraOptions::scale(int64_t factor) const {
  const auto times = static_cast<double>(factor), ranks = times * static_cast<double>(rank);
  return times * alpha / (rslora ? std::sqrt(ranks) : ranks);
}

namespace {

bool is_expression(const std::vector<std::string>& targets) {
  return targets.size() == 1 && targets[0].find_first_of("*[](){}|\\+?^$") != std::string::npos;
}

[[noreturn]] void refuse_table(const std::string& target, const std::string& table) {
  throw UserError(
      "lora_target: '{}' names the model's {}, and Fettle has no LoRA for it; leave it out, or set additional_target: "
      "{} to train it in full",
      target, table, last_part(table));
}

bool matches_whole(const Regex& regex, const std::string& name) {
  bool matches = false;
  regex.cover(name, [&](size_t, size_t, bool is_match) { matches = matches || is_match; });
  return matches;
}

// Returns the modules whose names match the expression in every layer. Throws the errors of lora_modules().
std::vector<std::string> modules_that_match(const Model& model, const std::string& expression) {
  const Regex regex("\\A(?:" + expression + ")\\z", "lora_target");
  // An expression such as .* matches these names by chance.
  for (const std::string& table : table_names(model))
    if (expression.find(last_part(table)) != std::string::npos && matches_whole(regex, table))
      refuse_table(expression, table);
  std::vector<std::string> out;
  for (const std::string& linear : model.linears()) {
    std::string first, other;  // the module's name in a layer where it matches, and where it does not
    for (const Param& param : model.linear(linear))
      for (int64_t i = 0; i < param.stored_count(); ++i) {
        const std::string name = module_of(param.stored_name(i));
        (matches_whole(regex, name) ? first : other) = name;
      }
    if (!first.empty() && !other.empty())
      throw UserError(
          "lora_target: '{}' matches {}, but not {}; write \\d+ for the layer's number so that it matches in every "
          "layer, and choose layers with layers_to_transform",
          expression, first, other);
    if (first.empty()) continue;
    if (std::ranges::find(model.family->without_lora, linear) != model.family->without_lora.end())
      throw UserError(
          "lora_target: '{}' matches {}, but PEFT does not load adapters of this layer; leave the layer out",
          expression, first);
    out.push_back(linear);
  }
  if (out.empty()) {
    const std::string weight = model.linear(model.linears()[0])[0].stored_name(0);
    throw UserError(
        "lora_target: '{}' matches no linear layer of {}: the expression must match a whole name, such as {}; set "
        "lora_target to all, or to some of {}",
        expression, model.family->model_type, module_of(weight), fmt::join(model.linears(), ", "));
  }
  return out;
}

}  // namespace

std::vector<std::string> lora_modules(const Model& model, const std::vector<std::string>& targets,
                                      std::vector<std::string>* warnings) {
  if (is_expression(targets)) return modules_that_match(model, targets[0]);
  const std::vector<std::string>& refused = model.family->without_lora;
  std::vector<std::string> linears = model.linears();
  for (const std::string& linear : refused) std::erase(linears, linear);
  auto means = [](const std::string& target, const std::string& linear) {
    return target == "all" || target == "all-linear" || target == linear || linear.ends_with("." + target);
  };
  std::vector<std::string> out;
  for (const std::string& linear : linears)
    if (std::ranges::any_of(targets, [&](const std::string& target) { return means(target, linear); }))
      out.push_back(linear);
  for (const std::string& target : targets) {
    if (std::ranges::any_of(out, [&](const std::string& linear) { return means(target, linear); })) continue;
    for (const std::string& linear : refused)
      if (means(target, linear))
        throw UserError(
            "lora_target: PEFT cannot load LoRA weights for the layer {} of {}; set lora_target to all, or to some of "
            "{}",
            linear, model.family->model_type, fmt::join(linears, ", "));
    for (const std::string& table : table_names(model))
      if (table == target || table.ends_with("." + target)) refuse_table(target, table);
    // A list of names may be written for several families, so PEFT ignores names that a model does not have.
    if (!out.empty()) {
      if (warnings != nullptr)
        warnings->push_back(
            fmt::format("lora_target: '{}' matches no linear layer of {} and is ignored; its layers are {}", target,
                        model.family->model_type, fmt::join(linears, ", ")));
      continue;
    }
    throw UserError("lora_target: '{}' matches no linear layer of {}; set lora_target to all, or to some of {}", target,
                    model.family->model_type, fmt::join(linears, ", "));
  }
  return out;
}

namespace {

// Returns the LoRA weights of one linear layer.
std::vector<Param> linear_lora_params(const Model& model, const LoraOptions& options, const Param& base) {
  const std::string name = module_of(base.hf_name);
  const auto in = model.family->fan_in_fan_out ? 0 : static_cast<std::ptrdiff_t>(base.dims.size()) - 1;
  const Param a{.hf_name = name + ".lora_A.weight",
                .dims = {options.rank, base.dims[in]},
                .axes = {"rank", base.axes[in]},
                .role = Role::kLoraA,
                .layers = base.layers,
                .init = Init::kUniformByFanIn};
  Param magnitude{.hf_name = name + kMagnitude,
                  .dims = base.dims,
                  .axes = base.axes,
                  .role = Role::kLoraMagnitude,
                  .layers = base.layers,
                  .init = Init::kOnes,
                  .fused = base.fused};
  magnitude.dims.erase(magnitude.dims.begin() + in);
  magnitude.axes.erase(magnitude.axes.begin() + in);
  if (in == 0 && magnitude.fused > 0) --magnitude.fused;
  Param b = magnitude;
  b.hf_name = name + ".lora_B.weight";
  b.role = Role::kLoraB;
  b.init = Init::kZeros;
  b.dims.push_back(options.rank);
  b.axes.push_back("rank");
  return options.dora ? std::vector{a, b, magnitude} : std::vector{a, b};
}

// Returns the LoRA weights of one of options.parameters.
std::vector<Param> parameter_lora_weights(const Model& model, const LoraOptions& options,
                                          const ExpertParameter& parameter) {
  const ModelConfig& c = model.config;
  const auto experts = std::ranges::find_if(model.params, [](const Param& param) { return param.has_experts(); });
  const std::string name = model.family->layer_prefix + lora_of_parameter(options, parameter);
  Param a{.hf_name = name + ".lora_A.weight",
          .dims = {options.rank, c.hidden_size},
          .axes = {"rank", "embed"},
          .role = Role::kLoraA,
          .layers = experts->layers,
          .init = Init::kUniformByFanIn};
  Param b{.hf_name = name + ".lora_B.weight",
          .dims = {c.num_experts, options.rank},
          .axes = {"", "rank"},
          .role = Role::kLoraB,
          .layers = experts->layers,
          .init = Init::kZeros};
  if (parameter.part == ExpertPart::kRouter) return {a, b};
  const bool down = parameter.part == ExpertPart::kDown;
  const int64_t rank = down ? options.rank : options.rank * options.gate_up_factor;
  a.dims = {c.num_experts, rank, down ? c.expert_size : c.expert_in()};
  a.axes = {"experts", "rank", down ? "mlp" : "embed"};
  a.fused = 0;
  // The outputs of gate_up are gate's outputs and then up's outputs. tp does not split these outputs in B, because it
  // would have to split each half separately.
  b.dims = {down ? c.expert_in() : (c.experts.gated() ? 2 : 1) * c.expert_size, rank, c.num_experts};
  b.axes = {down ? "embed" : "", "rank", "experts"};
  b.fused = 1;
  if (c.experts.swapped_lora) std::swap(a.dims[2], b.dims[0]), std::swap(a.axes[2], b.axes[0]);
  return {a, b};
}

}  // namespace

std::vector<Param> lora_params(const Model& model, const LoraOptions& options) {
  std::vector<Param> params;
  for (const std::string& module : options.modules)
    for (const Param& base : model.linear(module))
      for (Param& param : linear_lora_params(model, options, base)) params.push_back(std::move(param));
  for (Param& param : expert_lora_params(model, options)) params.push_back(std::move(param));
  return params;
}

std::vector<Param> expert_lora_params(const Model& model, const LoraOptions& options) {
  std::vector<Param> params;
  for (const ExpertParameter& parameter : options.parameters)
    for (Param& param : parameter_lora_weights(model, options, parameter)) params.push_back(std::move(param));
  return params;
}

std::vector<Param> lora_params_of(const Model& model, const LoraOptions& options, const Param& base) {
  if (base.role == Role::kLinear)
    for (const std::string& module : options.modules)
      if (model.path_of(module) + ".weight" == base.hf_name) return linear_lora_params(model, options, base);
  if (!base.has_experts() && base.role != Role::kRouter) return {};
  const bool down =
      base.role == Role::kExpertDown || base.hf_name == model.family->layer_prefix + model.config.experts.down;
  const ExpertPart part = base.role == Role::kRouter ? ExpertPart::kRouter
                          : down                     ? ExpertPart::kDown
                                                     : ExpertPart::kGateUp;
  const auto adapted = std::ranges::find(options.parameters, part, &ExpertParameter::part);
  return adapted == options.parameters.end() ? std::vector<Param>{} : parameter_lora_weights(model, options, *adapted);
}

namespace {

// Returns whether `target` is the parameter's name after the number of a layer: "7.mlp.experts.down_proj" or
// "model.layers.7.mlp.experts.down_proj".
bool names_one_layer(const std::string& target, const std::string& parameter) {
  if (!target.ends_with("." + parameter)) return false;
  const std::string layer = last_part(target.substr(0, target.size() - parameter.size() - 1));
  return !layer.empty() && std::ranges::all_of(layer, [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

std::vector<ExpertParameter> expert_parameters(const Model& model, const std::vector<std::string>& targets,
                                               const std::string& file) {
  const std::string key = file.empty() ? "target_parameters" : file + ": target_parameters";
  if (model.config.num_experts == 0)
    throw UserError("{}: {} has no experts; name linear layers in lora_target instead: {}", key,
                    model.family->model_type, fmt::join(model.linears(), ", "));
  const std::vector<ExpertParameter> all = parameters_of(model.config);
  std::vector<ExpertParameter> out;
  auto means = [](const std::string& target, const ExpertParameter& parameter) {
    return target == parameter.name || parameter.name.ends_with("." + target);
  };
  std::vector<std::string> names;
  for (const ExpertParameter& parameter : all) {
    names.push_back(parameter.name);
    if (std::ranges::any_of(targets, [&](const std::string& target) { return means(target, parameter); }))
      out.push_back(parameter);
  }
  for (const std::string& target : targets) {
    if (std::ranges::any_of(all, [&](const ExpertParameter& parameter) { return means(target, parameter); })) continue;
    for (const std::string& name : names)
      if (names_one_layer(target, name))
        throw UserError("{}: '{}' names one layer, but LoRA on the experts of some layers only is not supported; {}",
                        key, target,
                        file.empty() ? fmt::format("write '{}', which trains the experts of all layers", name)
                                     : "merge the adapter with PEFT");
    throw UserError("{}: '{}' matches no expert parameter of {}; use some of {}", key, target, model.family->model_type,
                    fmt::join(names, ", "));
  }
  return out;
}

std::string lora_of_parameter(const LoraOptions& options, const ExpertParameter& parameter) {
  const std::string holder = module_of(parameter.name);
  const auto place = std::ranges::find(options.parameters, parameter);
  internal_check(place != options.parameters.end(), "lora_of_parameter: '{}' has no LoRA", parameter.name);
  const bool outer = std::none_of(place + 1, options.parameters.end(),
                                  [&](const ExpertParameter& later) { return module_of(later.name) == holder; });
  return outer ? holder : holder + ".base_layer";
}

std::optional<ExpertLora> expert_lora(const LoraOptions& options) {
  if (options.parameters.empty()) return std::nullopt;
  ExpertLora out{.gate_up = {},
                 .down = {},
                 .router = {},
                 .scale = options.scale(),
                 .gate_up_scale = options.scale(options.gate_up_factor)};
  for (const ExpertParameter& parameter : options.parameters) {
    const bool gate_up = parameter.part == ExpertPart::kGateUp, down = parameter.part == ExpertPart::kDown;
    (gate_up ? out.gate_up : down ? out.down : out.router) = lora_of_parameter(options, parameter);
  }
  return out;
}

Tensor has_lora(const LoraOptions& options, const Tensor& layer) {
  Tensor found;
  for (int64_t number : options.layers) {
    const Tensor here = compare(layer, Direction::kEQ, constant(static_cast<double>(number), DType::kI32));
    found = found ? logical_or(found, here) : here;
  }
  return found;
}

bool saved_with(std::string_view parameter, std::string_view saved) {
  for (size_t end = parameter.rfind('.'); end != std::string_view::npos && end > 0; end = parameter.rfind('.', end - 1))
    if (parameter.substr(0, end).ends_with(saved)) return true;
  return false;
}

std::string tied_head(const Model& model) {
  const bool tied = model.config.tie_word_embeddings && !model.classifies() && !model.family->encoder;
  return tied ? model.family->head + ".weight" : "";
}

std::vector<std::string> table_names(const Model& model) {
  std::vector<std::string> names;
  if (const std::string head = tied_head(model); !head.empty()) names.push_back(module_of(head));
  for (const Param& param : model.params)
    if (param.role == Role::kTokenEmbedding || param.role == Role::kHead) names.push_back(module_of(param.hf_name));
  return names;
}

bool saves_tied_head(const Model& model, const LoraOptions& options) {
  const std::string head = tied_head(model);
  return !head.empty() && std::ranges::any_of(saved_params(model, options),
                                              [](const Param& param) { return param.role == Role::kTokenEmbedding; });
}

LoraOptions without_stored(LoraOptions options) {
  std::erase_if(options.saved, [&](const std::string& name) {
    return std::ranges::find(options.only_stored, name) != options.only_stored.end();
  });
  return options;
}

std::vector<Param> saved_params(const Model& model, const LoraOptions& options) {
  std::vector<Param> params;
  std::vector<bool> matched(options.saved.size(), false);
  std::set<std::string> modules;
  const std::string head = tied_head(model);
  for (const Param& param : model.params) {
    const std::string module = module_of(param.hf_name);
    modules.insert(last_part(module));
    bool wanted = false;
    for (size_t i = 0; i < options.saved.size(); ++i)
      if (saved_with(param.hf_name, options.saved[i]) ||
          (param.role == Role::kTokenEmbedding && !head.empty() && saved_with(head, options.saved[i])))
        matched[i] = wanted = true;
    if (!wanted) continue;
    for (const std::string& linear : options.modules)
      if (module == model.path_of(linear))
        throw UserError(
            "additional_target: {} has LoRA weights, so it cannot be trained in full; remove it from lora_target",
            linear);
    params.push_back(param);
  }
  for (size_t i = 0; i < matched.size(); ++i)
    if (!matched[i])
      throw UserError("additional_target: '{}' matches no module of {}; use some of {}", options.saved[i],
                      model.family->model_type, fmt::join(modules, ", "));
  return params;
}

std::function<Tensor(const Layer&, const std::string&, const Tensor&, const Tensor&)> lora_adapt(
    const LoraOptions& options, DType compute, const PositionKey* key, const ShardingRules* rules,
    const Tensor& row_scales) {
  internal_check(!row_scales || (!options.dora && options.layers.empty()),
                 "scales of rows are only for plain LoRA on all layers");
  const bool drops = key != nullptr && options.active_dropout() > 0;
  const PositionKey keys = drops ? *key : PositionKey{};
  return [options, compute, drops, keys, rules, row_scales](const Layer& layer, const std::string& module,
                                                            const Tensor& x, const Tensor& y) -> Tensor {
    if (!layer.has(module + ".lora_A.weight")) return y;
    PathScope scope("lora");
    Tensor input = x;
    if (drops) {
      const Tensor use = convert(layer.index, DType::kU32) * 0x9e3779b9 + static_cast<double>(fnv1a(module));
      input = dropout(x, options.active_dropout(), {bit_xor(keys.seed, use), keys.sequences, keys.positions});
    }
    auto times = [&](const Tensor& value, const char* part, bool in_first = false) {
      return product(rules, value, layer[module + part], {.transposed = in_first});
    };
    if (row_scales) {
      internal_check(x.rank() == 3, "scales of rows need inputs [B, T, in]");
      const Tensor scales_B1r = convert(expand(row_scales, 1), compute);
      return y + times(times(input, ".lora_A.weight") * scales_B1r, ".lora_B.weight");
    }
    const Tensor change = times(times(input, ".lora_A.weight"), ".lora_B.weight") * options.scale();
    Tensor out = y + change;
    if (layer.has(module + kMagnitude)) {
      const Tensor factor = magnitude_over_norm(layer, module, options);
      // The magnitude scales W x without the bias. With dropout, both W x and B A x are computed from x after dropout.
      Tensor base = drops ? times(input, ".weight", options.fan_in_fan_out) : y;
      if (!drops && layer.has(module + ".bias")) base = y - convert(layer[module + ".bias"], compute);
      auto f32 = [](const Tensor& t) { return convert(t, DType::kF32); };
      out = y + convert(f32(base) * (factor - 1.0) + f32(change) * factor, compute);
    }
    return options.layers.empty() ? out : select(has_lora(options, layer.index), out, y);
  };
}

void add_lora(Forward& forward, const LoraOptions& options, const PositionKey* key, const Tensor& row_scales) {
  forward.adapt = lora_adapt(options, forward.compute, key, &forward.sharding, row_scales);
  const bool drops = key != nullptr && options.active_dropout() > 0;
  if (!drops && !options.dora && options.layers.empty() && !row_scales)
    forward.low_rank = [scale = options.scale()](const Layer& layer, const std::string& module) {
      const std::string a = module + ".lora_A.weight";
      return layer.has(a) ? std::optional(LowRank{layer[a], layer[module + ".lora_B.weight"], scale}) : std::nullopt;
    };
  if (key != nullptr)
    forward.enter_stage = [options, key = *key](Forward& stage, const Forward::RowsOf& rows) {
      const PositionKey own{key.seed, rows(key.sequences), rows(key.positions)};
      stage.adapt = lora_adapt(options, stage.compute, &own, &stage.sharding);
    };
  forward.expert_lora = expert_lora(options);
}

}  // namespace fettle
