// Stage cls: labels of texts. Losses are those of Transformers' XForSequenceClassification.
#include "graph/ops.h"
#include "models/classifier.h"
#include "stages/stages.h"

namespace fettle {
namespace {

// 1 for each sequence that holds a token.
Tensor filled_sequences(const BatchInputs& batch) {
  const Tensor filled = compare(batch.at(BatchPart::kSegments), "GT", constant(0, DType::kI32));
  const Tensor tokens = convert(reduce_sum(convert(filled, DType::kI32), {-1}), DType::kF32);
  return minimum(tokens, constant(1, DType::kF32));
}

// The head is small, so its gradient is computed without chunks.
BatchLoss cls_loss(const LossInputs& in) {
  BatchLoss out{.logits_BK = in.trained.class_logits()};
  const Tensor losses_B = class_losses(in.labels->problem, out.logits_BK, in.batch.at(BatchPart::kClasses));
  out.losses_R = losses_B * filled_sequences(in.batch);
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
      .batch = {BatchPart::kTokens, BatchPart::kPositions, BatchPart::kSegments, BatchPart::kTokenTypes,
                BatchPart::kClasses},
      .keys = {"problem_type", "num_labels", "id2label"},
      .refused = {{"packing", kOneLabel}, {"train_on_prompt", kOneLabel}, {"mask_history", kOneLabel}},
      .counts = filled_sequences,
      .loss = cls_loss,
      .eval_task = "classes"};
  return stage;
}

}  // namespace fettle
