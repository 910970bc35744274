// Defines make_adapter(), which writes an adapter of random values for a tests/reference model in PEFT's format.
#pragma once

#include "adapters/lora.h"
#include "checkpoint/load.h"
#include "checkpoint/peft/adapter_files.h"
#include "graph_run.h"

namespace fettle {

inline const ExpertParameter kGateUpOfExperts{ExpertPart::kGateUp, "mlp.experts.gate_up_proj"},
    kDownOfExperts{ExpertPart::kDown, "mlp.experts.down_proj"};

// Writes the LoRA weights and saved modules that `options` describes. Another `seed` gives other values. `edit` may
// change each tensor before it is written.
inline void make_adapter(const std::filesystem::path& to, const Model& model, const LoraOptions& options, uint32_t seed,
                         const std::function<void(const std::string&, HostArray&)>& edit = {}) {
  std::filesystem::create_directories(to);
  AdapterConfig config;
  config.r = options.rank;
  config.lora_alpha = options.alpha;
  config.target_modules = options.modules;
  for (const ExpertParameter& parameter : options.parameters) config.target_parameters.push_back(parameter.name);
  config.modules_to_save = options.saved;
  config.use_dora = options.dora;
  config.use_rslora = options.rslora;
  if (const int64_t factor = options.gate_up_factor; factor != 1) {
    config.rank_pattern = {{".*\\.gate_up_proj", factor * options.rank}};
    config.alpha_pattern = {{".*\\.gate_up_proj", static_cast<double>(factor) * options.alpha}};
  }
  std::vector<Param> params = lora_params(model, options);
  for (const Param& param : saved_params(model, options)) params.push_back(param);
  NamedShapes shapes;
  std::map<std::string, HostArray> values;
  for (const Param& param : params)
    for (int64_t i = 0; i < param.stored_count(); ++i) {
      const std::string name = adapter_key(param.stored_name(i));
      shapes.emplace_back(name, Shape{DType::kF32, param.stored_dims()});
      HostArray array = to_array(random_value(shapes.back().second, ++seed * 7919, -0.1, 0.1));
      if (param.role == Role::kLoraMagnitude)
        for (float& value : array.as<float>()) value = 1 + value;
      if (edit) edit(param.stored_name(i), array);
      values.emplace(name, std::move(array));
    }
  SafetensorsWriter writer = begin_adapter(to, config, shapes);
  for (const auto& [name, array] : values) writer.write(name, {array.data(), static_cast<size_t>(array.bytes())});
  writer.finish();
}

}  // namespace fettle
