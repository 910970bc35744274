// Defines the head of sequence classification and its losses, like Transformers' ...ForSequenceClassification classes.
// The head consists of linear layers, which the family names. It reads the hidden state of a sequence's first or last
// token, or the mean over the sequence's tokens.
#pragma once

#include "data/classes/label_set.h"
#include "models/model.h"

namespace fettle {

// Returns the logits of the step's S = `rows` sequences, f32 [S, num_labels]. `hidden_BTD` is the result of the model's
// forward function. `numbers_BT` has the number of each position's sequence (blocks/sequences.h). If a sequence is not
// in the micro-batch, its hidden state counts as zeros.
Tensor class_logits(const Forward& f, const Model& model, const Tensor& hidden_BTD, const Tensor& numbers_BT,
                    int64_t rows);

// Returns each sequence's loss, f32 [S], from logits [S, num_labels]. `problem` selects the loss and the meaning of
// `classes` (f32). Single label: `classes` is [S, 1] with label numbers, and the loss is cross-entropy. Several labels:
// `classes` is [S, num_labels] with zeros and ones, and the loss is the mean binary cross-entropy over the labels.
// Regression: `classes` is [S, num_labels] with target values, and the loss is the mean squared error.
Tensor class_losses(Problem problem, const Tensor& logits_SK, const Tensor& classes);

}  // namespace fettle
