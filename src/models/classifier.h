// Defines the head of sequence classification, the hidden state of a row's first or last token through the family's
// linear layers, and its losses (those of Transformers' XForSequenceClassification).
#pragma once

#include "data/classes/label_set.h"
#include "models/model.h"

namespace fettle {

// f32 [B, num_labels] of what the model's forward gave; f.segments tell where a row ends. One document a row; a row of
// padding alone gives what the biases do.
Tensor class_logits(const Forward& f, const Model& model, const Tensor& hidden_BTD);

// Each row's loss, f32 [B], of logits [B, num_labels] and classes f32: by `problem` the cross-entropy of one
// label's number [B, 1], the mean binary cross-entropy of num_labels of 0 and 1, or the mean square error of num_labels
// values.
Tensor class_losses(Problem problem, const Tensor& logits_BK, const Tensor& classes);

}  // namespace fettle
