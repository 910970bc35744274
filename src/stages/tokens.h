// Defines functions for the stages that train the tokens of texts and replies.
#pragma once

#include "stages/stage.h"

namespace fettle {

// Returns the number of trained tokens of each line, f32 [.., B], or of each sequence, f32 [S].
Tensor trained_tokens(const BatchInputs& batch);
Tensor trained_by_sequence(const BatchInputs& batch);
// Returns the cross-entropy of the trained tokens. Source: transformers' ForCausalLMLoss.
BatchLoss token_stage_loss(const LossInputs& in);
// Returns the parts of the batch that a stage of trained tokens reads.
std::vector<BatchPart> token_batch();

}  // namespace fettle
