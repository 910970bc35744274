// Defines APOLLO (Zhu et al. 2024, arXiv:2412.05270): the gradients of linear layers are scaled by what AdamW does to
// their random projections to a few dims, so that the state is small. Other weights have AdamW.
//
// A matrix [rows, columns] keeps the longer of its sides (proj_type: right keeps rows, left keeps columns); the other
// side, of n elements, is multiplied by a projection [rank, n]. Elements of projections are normal with the variance
// 1 / rank, and depend only on the weight's key, the element's index and the interval of update_proj_gap steps, so they
// are computed again in each step. Layers of one name share a projection. Differences from the package apollo-torch
// 1.0.3: its projections come from torch's generator; with proj_type right or left, it only accepts matrices of the
// shape that std treats so. Weights are decayed after the step, and epsilon is not divided by the correction of the
// second moment, as there.
#pragma once

#include "optim/optimizer.h"

namespace fettle {

UpdateRule apollo_rule();

}  // namespace fettle
