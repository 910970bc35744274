// Defines the programs of training: the step with its gradients and update, and the evaluation of rows.
#pragma once

#include <cstdint>

#include "graph/program.h"
#include "run/run.h"

namespace fettle {

// Runs one optimizer step over A = gradient_accumulation_steps micro-batches of B rows of `length` positions.
//
// Inputs: trained/* and the optimizer state (donated), frozen/*, batch/{tokens,targets,positions,segments} i32 [A, B,
// T] (batch_arrays() lists those of other stages), in float16 loss_scale (donated), the optimizer's scalars (f32) and
// seed (u32, for dropout). Outputs: trained/*, the optimizer state, loss_scale, then loss and grad_norm (f32). The loss
// is the sum of token losses divided by the number of trained tokens of the whole step. When the loss or the norm is
// not finite, the program returns the state unchanged.
//
// With preferences, there are also reference/* inputs, and B counts two sequences per row: the chosen reply and then
// the rejected one; in stage kto the judged reply and then another row's reply. The loss is then the mean over the
// rows, and `metrics` (preference.h) is another output.
Program build_train_step(const Run& run, int64_t length);

// Evaluates `rows` rows. Inputs: frozen/*, trained/*, batch/* i32 [B, T]. Outputs, f32 [B]: loss (summed over the row's
// trained tokens), tokens (number of trained tokens), correct. Outputs for stage cls: loss, tokens (1, or 0 for
// filler), logits [B, num_labels]. With preferences, there are also reference/* inputs; the outputs are loss and tokens
// (1, or 0 for filler), f32 [B / 2], and metrics (preference.h).
Program build_eval_step(const Run& run, int64_t rows, int64_t length);

}  // namespace fettle
