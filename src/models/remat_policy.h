// Defines RematPolicy: the values that the layers save for the backward pass. The recipe's gradient_checkpointing names
// a policy.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "graph/attributes.h"

namespace fettle {

struct RematPolicy {
  std::string_view name = "full";
  Remat saves = Remat::kFull;
  // If true, attention's scores are computed again from queries and keys, although `saves` includes them. This has no
  // effect when a kernel computes attention or when the body of attention works in blocks, because both always compute
  // the scores again.
  bool scores_again = false;
  int64_t full_percent = 0;  // percentage of the layers, from the first layer on, that save only their inputs

  // Returns the number of layers that save only their inputs. The other layers save what `saves` says.
  int64_t full_layers(int64_t layers) const { return (layers * full_percent + 50) / 100; }
};

// Returns all policies. The policy that recomputes the least comes first, the policy that recomputes the most last.
std::span<const RematPolicy> remat_policies();
// Returns the policy with this name. Throws InternalError when there is none.
const RematPolicy& remat_policy(std::string_view name);

}  // namespace fettle
