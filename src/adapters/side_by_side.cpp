#include "adapters/side_by_side.h"

#include <algorithm>

#include "base/error.h"

namespace fettle {

std::string side_obstacle(const LoraOptions& options) {
  if (options.dora) return "it uses DoRA (use_dora)";
  if (!options.saved.empty()) return "it has whole modules (modules_to_save, or tables that PEFT stored)";
  if (!options.parameters.empty()) return "it has LoRA weights of experts or routers (target_parameters)";
  return "";
}

LoraOptions joined_options(const Model& model, const std::vector<SideAdapter>& adapters) {
  const int64_t rank = first_rank(adapters, adapters.size());
  LoraOptions joined{.rank = rank, .alpha = static_cast<double>(rank)};
  joined.fan_in_fan_out = model.family->fan_in_fan_out;
  for (const std::string& linear : model.linears())
    if (std::ranges::any_of(adapters, [&](const SideAdapter& adapter) {
          return std::ranges::find(adapter.options.modules, linear) != adapter.options.modules.end();
        }))
      joined.modules.push_back(linear);
  return joined;
}

int64_t first_rank(const std::vector<SideAdapter>& adapters, size_t adapter) {
  int64_t first = 0;
  for (size_t i = 0; i < adapter; ++i) first += adapters[i].options.rank;
  return first;
}

HostArray rank_scales(const std::vector<SideAdapter>& adapters, const std::vector<int64_t>& chosen) {
  const int64_t rank = first_rank(adapters, adapters.size());
  HostArray out = HostArray::zeros({DType::kF32, {std::ssize(chosen), rank}});
  for (size_t row = 0; row < chosen.size(); ++row) {
    if (chosen[row] == kNoAdapter) continue;
    const auto number = static_cast<size_t>(chosen[row]);
    internal_check(number < adapters.size(), "rank_scales: there is no adapter {}", chosen[row]);
    const LoraOptions& options = adapters[number].options;
    const auto begin = static_cast<std::ptrdiff_t>(static_cast<int64_t>(row) * rank + first_rank(adapters, number));
    std::fill_n(out.as<float>().begin() + begin, options.rank, static_cast<float>(options.scale()));
  }
  return out;
}

}  // namespace fettle
