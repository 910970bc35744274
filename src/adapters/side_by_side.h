// Defines SideAdapter: one of several LoRA adapters of one base. Each row of a batch uses one of the adapters, or none.
//
// All adapters together form one LoRA whose rank is the sum of their ranks: A has the rows of all adapters, B their
// columns. For each row of the batch, the result of A is multiplied by a scale for each rank. It is the scale of the
// row's own adapter for that adapter's ranks, and 0 for all other ranks. So rows of different adapters share one
// program, and the base's weights are read once for all of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "adapters/lora.h"
#include "base/arrays/host_array.h"

namespace fettle {

// Stands for the base alone, in lists that have an adapter's number for each row.
constexpr int64_t kNoAdapter = -1;

struct SideAdapter {
  std::string folder;
  LoraOptions options;
};

// Returns what prevents the adapter from being applied beside others ("it uses DoRA (use_dora)", ...), or "".
std::string side_obstacle(const LoraOptions& options);

// Returns the options of the LoRA that all adapters together form. A module has LoRA weights if one of the adapters has
// them.
LoraOptions joined_options(const Model& model, const std::vector<SideAdapter>& adapters);

// Returns the index of the adapter's first rank in the joined LoRA. For adapters.size(), returns the joined rank.
int64_t first_rank(const std::vector<SideAdapter>& adapters, size_t adapter);

// Returns the scales f32 [rows, joined rank]. `chosen` has the number of each row's adapter, or kNoAdapter.
HostArray rank_scales(const std::vector<SideAdapter>& adapters, const std::vector<int64_t>& chosen);

}  // namespace fettle
