// Defines functions for the stages that train the tokens of texts and replies.
#pragma once

#include "stages/stage.h"

namespace fettle {

// trained_tokens returns the number of trained tokens of each line, f32 [.., B]. trained_by_sequence returns the number
// for each sequence, f32 [S].
Tensor trained_tokens(const BatchInputs& batch);
Tensor trained_by_sequence(const BatchInputs& batch);
// Returns the weights of the targets, f32 [.., T], or null when all are 1.
Tensor target_weights(const BatchInputs& batch);
// If in.differentiable is true, returns the sum of the trained tokens' cross-entropies, each times its weight. Else
// returns the values for evaluation (losses_R, counts_R, correct_R). The step divides the sum by the number of trained
// tokens (trained_tokens), not by the sum of the weights. Sources: transformers' ForCausalLMLoss; for weights,
// ms-swift's Seq2SeqTrainer.
BatchLoss token_stage_loss(const LossInputs& in);
// Returns the parts of the batch that a stage reads if it trains tokens.
std::vector<BatchPart> token_batch();

}  // namespace fettle
