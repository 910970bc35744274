// Stage dpo: direct preference optimization on pairs of replies, the losses of pair_losses.h, and ORPO (Hong 2024).
#include "base/error.h"
#include "graph/ops.h"
#include "models/blocks/layers.h"
#include "stages/pair_losses.h"
#include "stages/preferences.h"
#include "stages/stages.h"

namespace fettle {
namespace {

bool dpo_compares(const KeyValues& keys) {
  const PairLoss* loss = find_pair_loss(keys.text("pref_loss"));
  return loss != nullptr && loss->compares;
}

void dpo_check(const KeyValues& keys) {
  const std::string& kind = keys.text("pref_loss");
  const PairLoss* loss = find_pair_loss(kind);
  auto refuse = [&](const char* key, const std::string& readers) {
    if (keys.changed(key))
      throw UserError(
          "{}: {} belongs to stage: dpo with pref_loss: {}, found pref_loss: {}; remove the key, or change "
          "pref_loss",
          keys.where(key), key, readers, kind);
  };
  const Smoothing smoothing = loss != nullptr ? loss->smoothing : Smoothing::kNone;
  if (smoothing == Smoothing::kNone)
    refuse("dpo_label_smoothing",
           names_of_pair_losses([](const PairLoss& row) { return row.smoothing != Smoothing::kNone; }));
  if (smoothing == Smoothing::kNeeded && keys.number("dpo_label_smoothing") == 0)
    throw UserError("{}: pref_loss: {} needs dpo_label_smoothing above 0; the paper has 0.001", keys.where("pref_loss"),
                    kind);
  if (kind != "simpo") refuse("simpo_gamma", "simpo");
  if (!dpo_compares(keys))
    return refuse("ref_model", names_of_pair_losses([](const PairLoss& row) { return row.compares; }));
  check_reference_start(keys);
}

// Returns log(1 - exp(x)) for x < 0.
Tensor log_1m_exp(const Tensor& x) {
  constexpr double kLeast = 1e-7;  // the precision of f32 near 1
  return log(maximum(1.0 - exp(x), constant(kLeast, DType::kF32)));
}

// The values of all chosen replies, or of all rejected replies.
struct Reply {
  Tensor logp, reference, tokens;  // [R]
};

PreferenceLoss dpo_losses(const KeyValues& keys, const ReplyLogps& in) {
  const PairLoss* pair_loss = find_pair_loss(keys.text("pref_loss"));
  const double beta = keys.number("pref_beta"), ftx = keys.number("pref_ftx");
  const Tensor real = real_sequences(in.tokens_S);
  auto reply = [&](int64_t which) {
    return Reply{side(in.trained_S, which), in.reference_S ? side(in.reference_S, which) : Tensor{},
                 maximum(side(in.tokens_S, which), constant(1, DType::kF32))};
  };
  const Reply chosen = reply(0), rejected = reply(1);
  const bool without_reference = !dpo_compares(keys);
  auto logp = [&](const Reply& x) { return without_reference ? x.logp / x.tokens : x.logp; };
  auto score = [&](const Reply& x) { return x.reference ? logp(x) - x.reference : logp(x); };

  const Tensor nll = -(chosen.logp / chosen.tokens);
  Tensor loss, odds = zeros_like(nll);
  if (pair_loss == nullptr) {
    odds = log_sigmoid((logp(chosen) - logp(rejected)) - (log_1m_exp(logp(chosen)) - log_1m_exp(logp(rejected))));
    loss = nll - odds * beta;
  } else {
    auto compared = [&](const Reply& x) { return pair_loss->averages ? score(x) / x.tokens : score(x); };
    loss = pair_loss->loss({compared(chosen), compared(rejected)},
                           {beta, keys.number("dpo_label_smoothing"), keys.number("simpo_gamma")});
  }
  if (ftx > 0) loss = loss + nll * ftx;

  const Tensor good = score(chosen) * beta, bad = score(rejected) * beta;
  const Tensor right = one_if(compare(good, Direction::kGT, bad));
  return {loss * real, preference_sums({real, real, good * real, bad * real, right * real, logp(chosen) * real,
                                        logp(rejected) * real, nll * real, odds * real})};
}

BatchLoss dpo_loss(const LossInputs& in) {
  return reply_loss(in, [&](const ReplyLogps& logps) { return dpo_losses(in.keys, logps); });
}

std::map<std::string, double> dpo_metrics(const KeyValues& keys, std::span<const float> sums) {
  std::map<std::string, double> out = reward_metrics(sums);
  const double chosen = sums[kChosen];
  if (chosen == 0) return out;
  const bool orpo = keys.text("pref_loss") == "orpo";
  out["rewards/accuracies"] = sums[kRight] / chosen;
  if (keys.number("pref_ftx") > 0 || orpo) out["nll_loss"] = sums[kNll] / chosen;
  if (orpo) out["log_odds_ratio"] = sums[kExtra] / chosen;
  return out;
}

}  // namespace

const Stage& dpo_stage() {
  static const Stage stage{
      .name = "dpo",
      .learned = "which of two replies is better",
      .rows = RowKind::kPreferencePairs,
      .grouping = RowGrouping::kPairs,
      .batch = {BatchPart::kTokens, BatchPart::kTargets, BatchPart::kPositions, BatchPart::kSegments,
                BatchPart::kSequences},
      .keys = {"pref_loss", "pref_beta", "pref_ftx", "dpo_label_smoothing", "simpo_gamma", "ref_model"},
      .refused = refused_with_preferences(),
      .check = dpo_check,
      .compares = dpo_compares,
      .counts = real_rows_of,
      .loss = dpo_loss,
      .metric_sums = kPreferenceSums,
      .metrics = dpo_metrics,
      .eval_task = "preferences",
      .measured_as = sft_stage};
  return stage;
}

}  // namespace fettle
