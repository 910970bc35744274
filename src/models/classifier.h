// Defines the head of sequence classification and its losses, as Transformers' ...ForSequenceClassification classes
// compute them. The head applies the family's linear layers to the hidden state of a row's first or last token.
#pragma once

#include "data/classes/label_set.h"
#include "models/model.h"

namespace fettle {

// Returns the logits of `rows` rows S, f32 [S, num_labels], from the result of the model's forward. `numbers_BT` says
// which row a position belongs to (blocks/sequences.h). For a row that is not in the micro-batch, the hidden state
// counts as zeros.
Tensor class_logits(const Forward& f, const Model& model, const Tensor& hidden_BTD, const Tensor& numbers_BT,
                    int64_t rows);

// Returns each row's loss, f32 [S], from logits [S, num_labels] and classes f32. `problem` decides: the cross-entropy
// of one label's number [S, 1], the mean binary cross-entropy of num_labels zeros and ones, or the mean squared error
// of num_labels values.
Tensor class_losses(Problem problem, const Tensor& logits_SK, const Tensor& classes);

}  // namespace fettle
