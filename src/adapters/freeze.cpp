#include "adapters/freeze.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "base/error.h"

namespace fettle {
namespace {

// Returns the name by which freeze-tuning selects a parameter. In a layer, this is the first word of the parameter's
// name within the layer ("mlp" of "mlp.up_proj.weight"); outside of the layers, the last word but one ("norm" of
// "model.norm.weight").
std::string module_name(const Model& model, const Param& param) {
  const std::string& prefix = model.family->layer_prefix;
  if (param.stacked())
    return param.hf_name.substr(prefix.size(), param.hf_name.find('.', prefix.size()) - prefix.size());
  return last_part(module_of(param.hf_name));
}

void check_names(const char* key, const std::vector<std::string>& names, const std::set<std::string>& known,
                 const Model& model) {
  for (const std::string& name : names)
    if (!known.contains(name))
      throw UserError("{}: '{}' is not a module of {}; use some of {}", key, name, model.family->model_type,
                      fmt::join(known, ", "));
}

}  // namespace

namespace {

constexpr int64_t kLargestBlock = 16;  // larger blocks would not form one loop (models/layer_groups.cpp)

// Returns which layers are trained.
std::vector<bool> trained_layers(const Model& model, const FreezeOptions& options) {
  const int64_t all = model.config.num_hidden_layers, count = options.layers;
  std::vector<bool> out(static_cast<size_t>(all));
  if (!options.spread) {
    const int64_t begin = count > 0 ? std::max<int64_t>(0, all - count) : 0;
    const int64_t end = count > 0 ? all : std::min(all, -count);
    std::fill(out.begin() + begin, out.begin() + end, true);
    return out;
  }
  auto fits = [&](int64_t number) { return number > 0 && all % number == 0 && all / number <= kLargestBlock; };
  if (!fits(count)) {
    std::vector<int64_t> fitting;
    for (int64_t number = 1; number <= all; ++number)
      if (fits(number)) fitting.push_back(number);
    throw UserError(
        "freeze_trainable_layers: found {}; with use_llama_pro, the number must divide the model's {} layers into "
        "blocks of at most {} layers; use one of {}",
        count, all, kLargestBlock, fmt::join(fitting, ", "));
  }
  for (int64_t layer = all / count - 1; layer < all; layer += all / count) out[static_cast<size_t>(layer)] = true;
  return out;
}

// Returns the trained layers of `of` if `wanted` is true, and the other layers of `of` if `wanted` is false.
LayerSet part_of(const LayerSet& of, const std::vector<bool>& trained, bool wanted) {
  LayerSet out = of;
  std::erase_if(out.numbers, [&](int64_t layer) { return trained[static_cast<size_t>(layer)] != wanted; });
  return out;
}

}  // namespace

FrozenAndTrained freeze_params(const Model& model, const FreezeOptions& options) {
  if (options.layers == 0)
    throw UserError("freeze_trainable_layers: with 0 layers nothing is trained; set another number");
  const std::vector<bool> trained = trained_layers(model, options);

  std::set<std::string> in_layers{"all"}, outside;
  for (const Param& param : model.params) (param.stacked() ? in_layers : outside).insert(module_name(model, param));
  check_names("freeze_trainable_modules", options.modules, in_layers, model);
  check_names("freeze_extra_modules", options.extra, outside, model);
  auto named = [](const std::vector<std::string>& names, const std::string& name) {
    return std::ranges::find(names, name) != names.end();
  };

  FrozenAndTrained out;
  for (const Param& param : model.params) {
    const std::string module = module_name(model, param);
    if (!param.stacked()) {
      (named(options.extra, module) ? out.trained : out.frozen).push_back(param);
      continue;
    }
    const bool wanted = named(options.modules, "all") || named(options.modules, module);
    for (const bool of_trained : {false, true}) {
      Param part = param;
      part.layers = part_of(param.layers, trained, of_trained);
      if (part.stacked()) (wanted && of_trained ? out.trained : out.frozen).push_back(part);
    }
  }
  return out;
}

}  // namespace fettle
