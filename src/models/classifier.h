// Defines the head of sequence classification and its losses (those of Transformers' XForSequenceClassification). The
// head sends the hidden state of a row's first or last token through the family's linear layers.
#pragma once

#include "data/classes/label_set.h"
#include "models/model.h"

namespace fettle {

// Returns the logits, f32 [B, num_labels], from the result of the model's forward. f.segments says where a row ends. A
// row holds one document. For a row of padding alone, the logits are those of a hidden state of zeros.
Tensor class_logits(const Forward& f, const Model& model, const Tensor& hidden_BTD);

// Returns each row's loss, f32 [B], from logits [B, num_labels] and classes f32. `problem` decides: the cross-entropy
// of one label's number [B, 1], the mean binary cross-entropy of num_labels zeros and ones, or the mean squared error
// of num_labels values.
Tensor class_losses(Problem problem, const Tensor& logits_BK, const Tensor& classes);

}  // namespace fettle
