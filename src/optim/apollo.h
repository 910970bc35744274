// Defines APOLLO (Zhu et al. 2024, arXiv:2412.05270), an optimizer with little state. A random projection turns the
// gradient of a linear layer into one with fewer elements, and AdamW computes a step from this projected gradient. The
// weight moves along its full gradient, which is multiplied by a factor: the norm of AdamW's step divided by the norm
// of the projected gradient. AdamW updates all other weights.
//
// The projection is a matrix [rank, n]. It replaces one side of the gradient [rows, columns] by `rank` elements: the
// shorter side (proj_type std), the columns (right) or the rows (left). The elements of the projection are normal with
// variance 1 / rank. They depend only on the weight's key, the element's index and the current interval of
// update_proj_gap steps, so each step computes them again. All layers of a stacked weight share a projection.
//
// In apollo-torch 1.0.3, projections come from torch's generator instead, and right and left work only if they name the
// shorter side. As in apollo-torch, weights decay after the step, and epsilon is added to sqrt(v) before the bias
// correction.
#pragma once

#include "optim/optimizer.h"

namespace fettle {

UpdateRule apollo_rule();

}  // namespace fettle
