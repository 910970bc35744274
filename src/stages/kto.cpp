// Stage kto: replies rated good or bad. Source: Ethayarajh 2024, as implemented in TRL.
#include "base/error.h"
#include "data/example.h"
#include "graph/ops.h"
#include "stages/preferences.h"
#include "stages/stages.h"

namespace fettle {
namespace {

bool kto_compares(const KeyValues&) {
  return true;
}

void kto_check(const KeyValues& keys) {
  check_reference_start(keys);
  if (keys.number("kto_chosen_weight") == 0 && keys.number("kto_rejected_weight") == 0)
    throw UserError(
        "{}: kto_chosen_weight and kto_rejected_weight are both 0, so nothing would be learned; set one above 0",
        keys.where("kto_chosen_weight"));
}

PreferenceLoss kto_losses(const KeyValues& keys, const Tensor& preferences_S, const ReplyLogps& in) {
  const double beta = keys.number("pref_beta");
  const Tensor zero = constant(0, DType::kF32);
  const Tensor real = real_sequences(in.tokens_S);
  const Tensor difference = in.trained_S - in.reference_S;
  // The KL divergence is estimated over all rows of the micro-batch, on all devices.
  const Tensor other = one_if(compare(side(in.tokens_S, 1), Direction::kGT, zero));
  const Tensor mean =
      reduce_sum(side(difference, 1) * other, {0}) / maximum(reduce_sum(other, {0}), constant(1, DType::kF32));
  const Tensor kl = stop_gradient(maximum(mean, zero));
  const Tensor score = side(difference, 0), logp = side(in.trained_S, 0);
  const Tensor chosen = constant(static_cast<double>(Preference::kChosen), DType::kI32);
  const Tensor good = real * one_if(compare(side(preferences_S, 0), Direction::kEQ, chosen));
  const Tensor bad = real - good;
  const Tensor loss = good * ((1.0 - logistic((score - kl) * beta)) * keys.number("kto_chosen_weight")) +
                      bad * ((1.0 - logistic((kl - score) * beta)) * keys.number("kto_rejected_weight"));
  const Tensor reward = score * beta;
  const Tensor none = zeros_like(real);
  return {loss,
          preference_sums({good, bad, reward * good, reward * bad, none, logp * good, logp * bad, none, real * kl})};
}

BatchLoss kto_loss(const LossInputs& in) {
  return reply_loss(
      in, [&](const ReplyLogps& logps) { return kto_losses(in.keys, in.batch.at(BatchPart::kPreferences), logps); });
}

std::map<std::string, double> kto_metrics(const KeyValues&, std::span<const float> sums) {
  std::map<std::string, double> out = reward_metrics(sums);
  const double rows = sums[kChosen] + sums[kRejected];
  if (rows > 0) out["kl"] = sums[kExtra] / rows;
  return out;
}

}  // namespace

const Stage& kto_stage() {
  static const Stage stage{.name = "kto",
                           .learned = "which replies are good and which are bad",
                           .rows = RowKind::kRatedReplies,
                           .grouping = RowGrouping::kWithMismatched,
                           .mixes_rows = true,
                           .batch = {BatchPart::kTokens, BatchPart::kTargets, BatchPart::kPositions,
                                     BatchPart::kSegments, BatchPart::kSequences, BatchPart::kPreferences},
                           .keys = {"pref_beta", "kto_chosen_weight", "kto_rejected_weight", "ref_model"},
                           .refused = refused_with_preferences(),
                           .check = kto_check,
                           .compares = kto_compares,
                           .counts = real_rows_of,
                           .loss = kto_loss,
                           .metric_sums = kPreferenceSums,
                           .metrics = kto_metrics,
                           .eval_task = "preferences",
                           .measured_as = sft_stage};
  return stage;
}

}  // namespace fettle
