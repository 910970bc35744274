// Defines run_stages, which computes the layers as a pipeline over the mesh axis pp: each device has the layers of one
// stage, and micro-batches pass from stage to stage. Sources: GSPMD (Xu et al. 2021), section 3.3; GPipe (Huang et al.
// 2019).
#pragma once

#include <functional>
#include <vector>

#include "models/model.h"

namespace fettle {

// Computes the layers of one stage. `stage` is the stage's number (i32), `f` has the lines of one micro-batch, and
// `stacks` are the stage's slices.
using StageLayers =
    std::function<Tensor(Forward& f, const Tensor& stage, const Tensor& x_BTD, const std::vector<Tensor>& stacks)>;

// Returns the result of all stages for x, [B, T, D]. The lines of x consist of f.micro_batches micro-batches. The
// result is zero for micro-batches that are not computed (f.used_micro_batches). `stacks` are [stages, ...].
//
// The pipeline is a scan. Its number of ticks is the number of used micro-batches plus stages - 1. In each tick, all
// stages compute at the same time, each its own micro-batch. Then each result moves to the next stage. A stage without
// a micro-batch gets zeros as its input, and nothing reads its result.
Tensor run_stages(const Forward& f, const Tensor& x_BTD, const std::vector<Tensor>& stacks, const StageLayers& layers);

}  // namespace fettle
