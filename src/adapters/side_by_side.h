// Defines SideAdapter: one of several LoRA adapters of one base. Each row of a batch uses one of the adapters, or none.
//
// All adapters together form one joined LoRA. Its rank is the sum of their ranks: its A has the rows of every adapter's
// A, and its B has the columns of every adapter's B. The joined A gives a vector with one element for each row of A.
// Each element is then multiplied by a scale. If the element belongs to the adapter that the batch's row uses, the
// scale is this adapter's scale. Otherwise the scale is 0. So rows of the batch with different adapters share one
// program, and the base's weights are read once for all of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "adapters/lora.h"
#include "base/arrays/host_array.h"

namespace fettle {

// Stands for the base alone, in lists that have the index of each row's adapter.
constexpr int64_t kNoAdapter = -1;

struct SideAdapter {
  std::string folder;
  LoraOptions options;
};

// Returns what prevents the adapter from being applied beside others ("it uses DoRA (use_dora)", ...), or "".
std::string side_obstacle(const LoraOptions& options);

// Returns the options of the joined LoRA. A module has LoRA weights if at least one of the adapters has LoRA weights in
// this module.
LoraOptions joined_options(const Model& model, const std::vector<SideAdapter>& adapters);

// Returns the index of the adapter's first row in the joined A. If `adapter` is adapters.size(), returns the rank of
// the joined LoRA.
int64_t first_rank(const std::vector<SideAdapter>& adapters, size_t adapter);

// Returns the scales f32 [rows, joined rank]. `chosen` has the index of each row's adapter, or kNoAdapter.
HostArray rank_scales(const std::vector<SideAdapter>& adapters, const std::vector<int64_t>& chosen);

}  // namespace fettle
