// Defines APOLLO (Zhu et al. 2024, arXiv:2412.05270), an optimizer with little state. A random projection turns the
// gradient of a linear layer into one with fewer elements, and AdamW turns this projected gradient into a step. The
// norm of the step divided by the norm of the projected gradient is the factor on the full gradient. AdamW updates all
// other weights.
//
// The projection [rank, n] replaces the shorter side of a matrix [rows, columns] by `rank` elements (with proj_type:
// right the columns, with left the rows). Its elements are normal with variance 1 / rank. They depend only on the
// weight's key, the element's index and the current interval of update_proj_gap steps, so each step computes them
// again. All layers of a stacked weight share a projection. In apollo-torch 1.0.3, projections come from torch's
// generator instead, and proj_type right (or left) works only for matrices whose rows (or columns) are the longer
// side. As in apollo-torch, weights decay after the step, and epsilon is added to sqrt(v) before the bias correction.
#pragma once

#include "optim/optimizer.h"

namespace fettle {

UpdateRule apollo_rule();

}  // namespace fettle
