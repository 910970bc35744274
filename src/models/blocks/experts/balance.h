// Defines what balances the experts of a mixture: the statistics of routing, the load-balancing loss that is computed
// from them, and the rule that moves the routers' corrections.
#pragma once

#include <cstdint>
#include <vector>

#include "models/model.h"

namespace fettle {

// Returns zeros, the initial value of Forward::router.
Tensor no_routes(const ModelConfig& config);
// Returns zeros, the initial value of Forward::loads.
Tensor no_loads(const ModelConfig& config);

// How a layer routes tokens. All arrays are f32.
struct RoutedTokens {
  Tensor taken_E;  // [.., experts]: 1 for the experts to which a token is sent, else 0
  Tensor scores_E;
  Tensor mask_1;  // [.., 1]: 1 for tokens that count, 0 for others; null if nothing is counted
};
// Adds the layer's statistics to f.router and f.loads, unless they are null.
void add_routes(Forward& f, const Layer& layer, const RoutedTokens& routed);

// Returns the load-balancing loss, an f32 scalar (eq. 4 to 6 of Switch Transformer, computed like Transformers). It is
// experts_per_token when all experts are used equally. Reads f.router, which counts the tokens over all layers.
Tensor balance_loss(const Forward& f);

// Returns the corrections of routers after a step (Wang et al. 2024, "Auxiliary-loss-free load balancing"; DeepSeek
// V3). The correction of an expert grows by `rate` if the expert got fewer tokens than the mean of its layer's experts,
// and falls by `rate` if it got more. `corrections` is [l, E] or [l, 1, E] for the l layers in `layers`, in ascending
// order; `loads_LE` has all layers (Forward::loads).
Tensor moved_corrections(const Tensor& corrections, const std::vector<int64_t>& layers, const Tensor& loads_LE,
                         double rate);

}  // namespace fettle
