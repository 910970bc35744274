// Defines route, which chooses the experts of each token.
#pragma once

#include "models/model.h"

namespace fettle {

struct Routes {
  Tensor experts, weights;  // f32 [2 device dims, n, k]
};

// Returns the experts with the best scores for each token, and their routing weights. Adds the statistics to f.router
// and f.loads unless they are null. Among experts with equal scores, the one with the lower number comes first.
Routes route(Forward& f, const Layer& layer, const Tensor& x_nD, const Tensor& mask_n1);

}  // namespace fettle
