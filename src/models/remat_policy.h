// Defines RematPolicy: what the layers save for the backward pass, as the recipe's gradient_checkpointing names it.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "graph/attributes.h"

namespace fettle {

struct RematPolicy {
  std::string_view name = "full";
  Remat saves = Remat::kFull;
  // Attention's scores are computed again from queries and keys, although `saves` includes them. This changes nothing
  // when a kernel computes attention or when its body works in blocks: both compute the scores again under any policy.
  bool scores_again = false;
  int64_t full_percent = 0;  // this share of the layers, from the first one on, saves only their inputs

  // Returns the number of layers that save only their inputs although `saves` includes more.
  int64_t full_layers(int64_t layers) const { return (layers * full_percent + 50) / 100; }
};

// Returns all policies, sorted from the one that recomputes the least to the one that saves the least.
std::span<const RematPolicy> remat_policies();
// Throws InternalError when there is no policy of this name.
const RematPolicy& remat_policy(std::string_view name);

}  // namespace fettle
