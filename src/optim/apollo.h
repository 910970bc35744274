// Defines APOLLO (Zhu et al. 2024, arXiv:2412.05270): the gradients of linear layers are scaled by what AdamW does to
// their random projections to a few dims, so that the state is small. Other weights have AdamW.
//
// A matrix [rows, columns] keeps its longer side (or with proj_type: right its rows, with left its columns). The other
// side, with n elements, is multiplied by a projection [rank, n]. Elements of projections are normal with the variance
// 1 / rank, and depend only on the weight's key, the element's index and the interval of update_proj_gap steps, so they
// are computed again in each step. Layers of one name share a projection. apollo-torch 1.0.3 differs in two points: its
// projections come from torch's generator, and proj_type right (or left) works only for matrices whose rows (or
// columns) are the longer side. As in apollo-torch, weights are decayed after the step, and epsilon is not divided by
// the correction of the second moment.
#pragma once

#include "optim/optimizer.h"

namespace fettle {

UpdateRule apollo_rule();

}  // namespace fettle
