// Defines AdamW. Source: Loshchilov & Hutter 2017, with PyTorch's order of operations.
#pragma once

#include "optim/optimizer.h"

namespace fettle {

// State m and v, f32, of the weight's shape. Scalars: learning_rate, correction1 = 1 - beta1^step and correction2_sqrt
// = sqrt(1 - beta2^step), computed on the host because f32 would lose digits. Weight decay is decoupled.
UpdateRule adamw_rule();

// The parts of AdamW, for other rules that apply AdamW to some weights.
std::map<std::string, double> adamw_scalars(const OptimOptions& options, int64_t step, double rate);
std::vector<OptimState> adamw_state(const OptimWeight& weight, const OptimOptions& options);
Updated adamw_update(const OptimWeight& weight, const OptimOptions& options, const UpdateInputs& in);

}  // namespace fettle
