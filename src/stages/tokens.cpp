#include "stages/tokens.h"

#include "graph/ops.h"
#include "models/classifier.h"

namespace fettle {

TokenLoss ModelPass::token_loss(const Tensor& targets_BT, const LossOptions& options) const {
  return fettle::token_loss(forward, hidden_BTD, head_VD, targets_BT, options);
}

Tensor ModelPass::class_logits() const {
  return fettle::class_logits(forward, model, hidden_BTD);
}

Tensor trained_tokens(const BatchInputs& batch) {
  const Tensor trained = compare(batch.at(BatchPart::kTargets), "GE", constant(0, DType::kI32));
  return convert(reduce_sum(convert(trained, DType::kI32), {-1}), DType::kF32);
}

BatchLoss token_stage_loss(const LossInputs& in) {
  const TokenLoss loss = in.trained.token_loss(in.batch.at(BatchPart::kTargets),
                                               {.differentiable = in.differentiable, .head_trained = in.head_trained});
  if (in.differentiable) return {.sum = loss.sum};
  return {.losses_R = reduce_sum(loss.losses_BT, {1}), .correct_R = reduce_sum(loss.correct_BT, {1})};
}

std::vector<BatchPart> token_batch() {
  return {BatchPart::kTokens, BatchPart::kTargets, BatchPart::kPositions, BatchPart::kSegments};
}

}  // namespace fettle
