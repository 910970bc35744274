#include "stages/preferences.h"

#include "base/error.h"
#include "graph/autodiff/grad.h"
#include "graph/ops.h"
#include "models/blocks/sequences.h"
#include "stages/tokens.h"

namespace fettle {
namespace {

Tensor sequence_logps(const TokenLoss& loss, const BatchInputs& batch) {
  return -sum_by_sequence(loss.losses_BT, batch.at(BatchPart::kSequences), batch.sequences);
}

}  // namespace

Tensor side(const Tensor& x_S, int64_t which) {
  const int64_t rows = x_S.dim(0) / 2;
  return reshape(slice(reshape(x_S, {rows, 2}), 1, which, which + 1), {rows});
}

Tensor preference_sums(const std::vector<Tensor>& terms_R) {
  std::vector<Tensor> sums;
  for (const Tensor& term : terms_R) sums.push_back(reshape(reduce_sum(term, {0}), {1}));
  return stop_gradient(concatenate(sums, 0));
}

Tensor one_if(const Tensor& pred) {
  return convert(pred, DType::kF32);
}

Tensor real_sequences(const Tensor& tokens_S) {
  return one_if(compare(side(tokens_S, 0), Direction::kGT, constant(0, DType::kF32)));
}

Tensor real_rows_of(const BatchInputs& batch) {
  return real_sequences(trained_by_sequence(batch));
}

BatchLoss reply_loss(const LossInputs& in, const std::function<PreferenceLoss(const ReplyLogps&)>& losses) {
  const Tensor& targets = in.batch.at(BatchPart::kTargets);
  ReplyLogps logps{.trained_S = sequence_logps(in.trained.token_loss(targets, {}), in.batch)};
  if (in.reference) logps.reference_S = sequence_logps(in.reference().token_loss(targets, {}), in.batch);
  logps.tokens_S = trained_by_sequence(in.batch);
  const PreferenceLoss loss = losses(logps);
  BatchLoss out{.sum = reduce_sum(loss.losses_R, {0}),
                .losses_R = loss.losses_R,
                .counts_R = real_sequences(logps.tokens_S),
                .metrics = loss.metrics};
  if (!in.differentiable) return out;
  const Tensor slope = stop_gradient(grad(out.sum, {logps.trained_S})[0]);
  const TokenLoss weighted =
      in.trained.token_loss(targets, {.differentiable = true,
                                      .head_trained = in.head_trained,
                                      .weights_BT = spread_by_sequence(-slope, in.batch.at(BatchPart::kSequences))});
  out.sum = weighted.sum + stop_gradient(out.sum - weighted.sum);
  return out;
}

std::map<std::string, double> reward_metrics(std::span<const float> sums) {
  std::map<std::string, double> out;
  const double chosen = sums[kChosen], rejected = sums[kRejected];
  if (chosen > 0) {
    out["rewards/chosen"] = sums[kRewardChosen] / chosen;
    out["logps/chosen"] = sums[kLogpsChosen] / chosen;
  }
  if (rejected > 0) {
    out["rewards/rejected"] = sums[kRewardRejected] / rejected;
    out["logps/rejected"] = sums[kLogpsRejected] / rejected;
  }
  if (chosen > 0 && rejected > 0) out["rewards/margins"] = out["rewards/chosen"] - out["rewards/rejected"];
  return out;
}

std::vector<RefusedKey> refused_with_preferences() {
  return {{"packing", "packing joins several rows into one, but this stage compares whole rows; remove the key"},
          {"train_on_prompt", "this stage compares replies, so it cannot train on prompts; remove the key"},
          {"train_from_scratch",
           "the model must already be able to write; train random weights with stage: pt or sft first"}};
}

void check_reference_start(const KeyValues& keys) {
  if (keys.flag("pissa_init") && keys.text("ref_model").empty())
    throw UserError(
        "{}: pissa_init moves part of the base into the adapter, so the base cannot be the reference model; remove "
        "pissa_init, or name the base in ref_model",
        keys.where("pissa_init"));
}

}  // namespace fettle
