#include "stages/tokens.h"

#include "graph/ops.h"
#include "models/blocks/sequences.h"
#include "models/classifier.h"

namespace fettle {

TokenLoss ModelPass::token_loss(const Tensor& targets_BT, const LossOptions& options) const {
  return fettle::token_loss(forward, hidden_BTD, head, targets_BT, options);
}

Tensor ModelPass::class_logits(const BatchInputs& batch) const {
  return fettle::class_logits(forward, model, hidden_BTD, batch.at(BatchPart::kSequences), batch.sequences);
}

namespace {

// Returns 1 where a token is trained, else 0, in i32.
Tensor trained_places(const BatchInputs& batch) {
  return convert(compare(batch.at(BatchPart::kTargets), Direction::kGE, constant(0, DType::kI32)), DType::kI32);
}

}  // namespace

Tensor trained_tokens(const BatchInputs& batch) {
  return convert(reduce_sum(trained_places(batch), {-1}), DType::kF32);
}

Tensor trained_by_sequence(const BatchInputs& batch) {
  return convert(sum_by_sequence(trained_places(batch), batch.at(BatchPart::kSequences), batch.sequences), DType::kF32);
}

Tensor target_weights(const BatchInputs& batch) {
  const auto found = batch.find(BatchPart::kWeights);
  return found == batch.end() ? Tensor{} : found->second;
}

BatchLoss token_stage_loss(const LossInputs& in) {
  const Tensor weights = target_weights(in.batch);
  const TokenLoss loss = in.trained.token_loss(
      in.batch.at(BatchPart::kTargets),
      {.differentiable = in.differentiable, .head_trained = in.head_trained, .weights_BT = weights});
  if (in.differentiable) return {.sum = loss.sum};
  auto by_sequence = [&](const Tensor& x_BT) {
    return sum_by_sequence(x_BT, in.batch.at(BatchPart::kSequences), in.batch.sequences);
  };
  return {.losses_R = by_sequence(weights ? loss.losses_BT * weights : loss.losses_BT),
          .counts_R = trained_by_sequence(in.batch),
          .correct_R = by_sequence(loss.correct_BT)};
}

std::vector<BatchPart> token_batch() {
  return {BatchPart::kTokens, BatchPart::kTargets, BatchPart::kPositions, BatchPart::kSegments, BatchPart::kSequences};
}

}  // namespace fettle
