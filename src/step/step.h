// Defines the programs of training: the training step with gradients and update, and the evaluation step.
#pragma once

#include <cstdint>
#include <vector>

#include "data/batches/layout.h"
#include "graph/program.h"
#include "run/run.h"

namespace fettle {

// Builds the program of one optimizer step over A micro-batches of B lines of T positions. When the shape is `counted`,
// the input batch/used says how many of the micro-batches the program runs.
//
// Inputs: trained/* and the optimizer state (donated); frozen/* (donated if Run::moves(param) is true);
// batch/{tokens,targets,positions,segments,rows} i32 [A, B, T] (batch_arrays() lists the arrays of other stages);
// loss_scale (donated; only with float16); the optimizer's scalars (f32); seed (u32, for dropout). Outputs: trained/*,
// the optimizer state, the donated frozen/*, loss_scale, loss and grad_norm (f32). The loss is the sum of token losses
// divided by the number of trained tokens of the whole step, plus the load-balancing loss of experts. When the loss or
// the norm is not finite, weights and optimizer state stay unchanged; if only the norm is not finite, loss_scale
// halves. With offload_dir, the program has no inputs for optimizer state and scalars, and updates nothing: its outputs
// are loss, grad_norm and what build_update reads (disk/update_program.h).
//
// In stages with preferences, a data row has two sequences: the chosen reply and then the rejected one; in stage kto,
// the rated reply and then another row's reply. There are reference/* inputs for the parameters in
// ReferenceSpec::params. The loss is the mean over the data rows, and `metrics` (stages/preferences.h) is another
// output.
Program build_train_step(const Run& run, const BatchShape& shape);
// Builds the step for gradient_accumulation_steps micro-batches. Each sequence has its own line of `length` positions.
Program build_train_step(const Run& run, int64_t length);

// Builds the program that evaluates one micro-batch of the shape. Inputs: frozen/*, trained/*, batch/* i32 [B, T].
// Outputs, f32 [S]: loss (summed over the sequence's trained tokens), tokens (number of trained tokens), correct
// (number of trained tokens whose most likely prediction is right). Outputs for stage cls: loss, tokens (1, or 0 for
// rows that are not in the micro-batch), logits [S, num_labels]. In stages with preferences, there are also inputs
// reference/* for the parameters in ReferenceSpec::params. The outputs are then loss and tokens (1, or 0 for rows that
// are not in the micro-batch), both f32 [S / 2], and metrics (stages/preferences.h).
//
// If there are `candidates` (token ids), the outputs are tokens and logits [S, candidates]. The stage must train
// tokens, and each sequence must have one trained token, whose value does not matter. The logits are those of the
// position before it.
Program build_eval_step(const Run& run, const BatchShape& shape, const std::vector<int32_t>& candidates = {});

}  // namespace fettle
