#include "models/families/hybrid/mamba_config.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "models/blocks/mamba2.h"

namespace fettle {

LayerSet mamba_layers(const ConfigReader& r, int64_t layers, const std::vector<std::string>& mamba,
                      const std::vector<std::string>& others) {
  const char* key = r.has("layer_types") ? "layer_types" : "layers_block_type";
  const std::vector<std::string> types = r.texts(key);
  if (types.empty()) return all_layers(layers);
  if (types.size() != static_cast<size_t>(layers))
    throw UserError("{}: '{}' is not a list of {} layers", r.file(), key, layers);
  LayerSet out;
  for (size_t layer = 0; layer < types.size(); ++layer) {
    const bool is_mamba = std::ranges::find(mamba, types[layer]) != mamba.end();
    if (is_mamba) out.numbers.push_back(static_cast<int64_t>(layer));
    if (!is_mamba && std::ranges::find(others, types[layer]) == others.end())
      throw UserError("{}: '{}' contains '{}'; {} and {} are implemented", r.file(), key, types[layer],
                      fmt::join(mamba, ", "), fmt::join(others, ", "));
  }
  out.all = out.count();
  return out;
}

void read_mamba2(const ConfigReader& r, Mamba2& m, int64_t inner) {
  m.heads = r.integer("mamba_n_heads", 128);
  const bool automatic = !r.has("mamba_d_head") || r.json().at("mamba_d_head") == "auto";
  m.head_dim = automatic ? inner / m.heads : r.integer("mamba_d_head");
  m.groups = r.integer("mamba_n_groups", 1);
  m.state = r.integer("mamba_d_state", 256);
  m.width = r.integer("mamba_d_conv", 4);
  m.conv_bias = r.flag("mamba_conv_bias", true);
  m.in_bias = m.out_bias = r.flag("mamba_proj_bias", false);
  read_step_bounds(r, m);
  if (m.inner() != inner)
    throw UserError("{}: mamba_n_heads ({}) times mamba_d_head ({}) is not {}", r.file(), m.heads, m.head_dim, inner);
  if (m.heads % m.groups != 0)
    throw UserError("{}: mamba_n_heads ({}) is not divisible by mamba_n_groups ({})", r.file(), m.heads, m.groups);
}

void read_step_bounds(const ConfigReader& r, Mamba2& m) {
  const nlohmann::json bounds = r.json().value("time_step_limit", nlohmann::json());
  if (bounds.is_null()) return;
  if (!bounds.is_array() || bounds.size() != 2 || !bounds[0].is_number())
    throw UserError("{}: 'time_step_limit' is {}, wanted two numbers", r.file(), bounds.dump());
  m.least_step = bounds[0].get<double>();
  // Transformers writes {"__float__": "Infinity"} when there is no upper bound.
  if (bounds[1].is_number()) m.largest_step = bounds[1].get<double>();
}

std::vector<CacheArray> hybrid_cache(const ModelConfig& c) {
  if (!c.mamba2) return keys_and_values(c, all_layers(c.num_hidden_layers));
  std::vector<CacheArray> out;
  if (c.mamba2->layers.count() < c.num_hidden_layers)
    out = keys_and_values(c, layers_without(c.mamba2->layers, c.num_hidden_layers));
  for (const CacheArray& array : mamba2_cache(c)) out.push_back(array);
  return out;
}

}  // namespace fettle
