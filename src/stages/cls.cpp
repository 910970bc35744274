// Stage cls: text classification. The losses are the same as in Transformers' ...ForSequenceClassification classes.
#include "graph/ops.h"
#include "models/blocks/sequences.h"
#include "models/classifier.h"
#include "stages/stages.h"

namespace fettle {
namespace {

// Returns 1 for each sequence that has a token, else 0.
Tensor filled_sequences(const BatchInputs& batch) {
  return minimum(tokens_by_sequence(batch.at(BatchPart::kSequences), batch.sequences), constant(1, DType::kF32));
}

// Returns the loss of the labels. The head is small, so its gradient is computed without chunks.
BatchLoss cls_loss(const LossInputs& in) {
  BatchLoss out{.counts_R = filled_sequences(in.batch), .logits_SK = in.trained.class_logits(in.batch)};
  const Tensor losses_S = class_losses(in.labels->problem, out.logits_SK, in.batch.at(BatchPart::kClasses));
  out.losses_R = losses_S * out.counts_R;
  out.sum = reduce_sum(out.losses_R, {0});
  return out;
}

}  // namespace

const Stage& cls_stage() {
  static constexpr std::string_view kOneLabel = "each row trains one label, not tokens; remove the key";
  static const Stage stage{
      .name = "cls",
      .learned = "labels of texts",
      .rows = RowKind::kLabelled,
      .head = Head::kLabels,
      .batch = {BatchPart::kTokens, BatchPart::kPositions, BatchPart::kSegments, BatchPart::kSequences,
                BatchPart::kTokenTypes, BatchPart::kClasses},
      .keys = {"problem_type", "num_labels", "id2label"},
      .refused = {{"packing", kOneLabel}, {"train_on_prompt", kOneLabel}, {"mask_history", kOneLabel}},
      .counts = filled_sequences,
      .loss = cls_loss,
      .eval_task = "classes",
      .output = "labels",
      .model = "classifier"};
  return stage;
}

}  // namespace fettle
