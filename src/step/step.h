// Defines the programs of training: the step with its gradients and update, and the evaluation of rows.
#pragma once

#include <cstdint>

#include "graph/program.h"
#include "run/run.h"

namespace fettle {

// One optimizer step over A = gradient_accumulation_steps micro-batches of B rows of `length` positions.
//
// Inputs: trained/* and the optimizer's state (donated), frozen/*, batch/{tokens,targets,positions,segments} i32
// [A, B, T] (batch_arrays tells those of other stages), in float16 loss_scale (donated), the optimizer's scalars (f32)
// and seed (u32, dropout's). Outputs: trained/*, the state, loss_scale, then loss and grad_norm (f32). Loss is the sum
// of token losses over the number of trained tokens of the whole step. With preferences there are reference/* inputs, B
// is two sequences a row (the chosen reply before the rejected one; in stage kto the reply, then another's), the loss
// is the mean over the rows, and `metrics` (preference.h) is one more output. When the loss or the norm is not finite,
// the state comes back as it was.
Program build_train_step(const Run& run, int64_t length);

// Inputs: frozen/*, trained/*, batch/* i32 [B, T]. Outputs, f32 [B]: loss (summed over the row's trained tokens),
// tokens (how many), correct. Of stage cls: loss, tokens (1, or 0 for filler), logits [B, num_labels]. With preferences
// also reference/*, and outputs f32 [B / 2]: loss, tokens (1, or 0 for filler); and metrics (preference.h).
Program build_eval_step(const Run& run, int64_t rows, int64_t length);

}  // namespace fettle
