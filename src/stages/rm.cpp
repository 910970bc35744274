// Stage rm: a reward model learns to score the chosen reply of a pair above the rejected one.
//
// The loss is that of Bradley and Terry's model (1952), as in TRL's RewardTrainer. center_rewards_coefficient adds the
// term of Eisenstein et al. (2023).
#include "graph/ops.h"
#include "models/blocks/layers.h"
#include "models/blocks/sequences.h"
#include "stages/preferences.h"
#include "stages/stages.h"

namespace fettle {
namespace {

Tensor rm_counts(const BatchInputs& batch) {
  return real_sequences(tokens_by_sequence(batch.at(BatchPart::kSequences), batch.sequences));
}

// The loss of a pair is -log sigmoid(chosen score - rejected score) + c * (chosen score + rejected score)^2, where c is
// center_rewards_coefficient.
BatchLoss bradley_terry_loss(const LossInputs& in) {
  const Tensor logits = in.trained.class_logits(in.batch);
  const Tensor scores_S = reshape(logits, {logits.dim(0)});
  const Tensor real = rm_counts(in.batch);
  const Tensor good = side(scores_S, 0), bad = side(scores_S, 1), none = zeros_like(real);
  const Tensor right = one_if(compare(good, Direction::kGT, bad));
  Tensor losses = -log_sigmoid(good - bad);
  if (const double c = in.keys.number("center_rewards_coefficient"); c > 0)
    losses = losses + (good + bad) * (good + bad) * c;
  BatchLoss out{.losses_R = losses * real, .counts_R = real};
  out.metrics = preference_sums({real, real, good * real, bad * real, right * real, none, none, none, none});
  out.sum = reduce_sum(out.losses_R, {0});
  return out;
}

std::map<std::string, double> rm_metrics(const KeyValues&, std::span<const float> sums) {
  const double pairs = std::max(static_cast<double>(sums[kChosen]), 1.0);
  return {{"accuracy", sums[kRight] / pairs},
          {"margin", (sums[kRewardChosen] - sums[kRewardRejected]) / pairs},
          {"mean_reward", (sums[kRewardChosen] + sums[kRewardRejected]) / (2 * pairs)}};
}

}  // namespace

const Stage& rm_stage() {
  static const Stage stage{
      .name = "rm",
      .learned = "scores of replies",
      .rows = RowKind::kPreferencePairs,
      .grouping = RowGrouping::kPairs,
      .head = Head::kScore,
      .batch = {BatchPart::kTokens, BatchPart::kPositions, BatchPart::kSegments, BatchPart::kSequences},
      .keys = {"center_rewards_coefficient"},
      .refused = refused_with_preferences(),
      .counts = rm_counts,
      .loss = bradley_terry_loss,
      .metric_sums = kPreferenceSums,
      .metrics = rm_metrics,
      .eval_task = "reward",
      .output = "scores",
      .model = "reward model"};
  return stage;
}

}  // namespace fettle
