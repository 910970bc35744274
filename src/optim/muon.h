// Defines Muon, like torch.optim.Muon. Sources: Jordan et al. 2024; Liu et al. 2025 for scaling the rate to match
// AdamW.
#pragma once

#include "optim/optimizer.h"

namespace fettle {

// Each matrix of a layer moves along its orthogonalised momentum (Newton-Schulz, in bf16). AdamW updates every other
// weight. State: "momentum" for the matrices, m and v for the others. optim_args: momentum, nesterov, ns_steps, eps,
// adjust_lr_fn (match_rms_adamw: one learning_rate suits the matrices and the other weights; original: torch's
// default).
UpdateRule muon_rule();

}  // namespace fettle
