// Stage dpo: direct preference optimization on pairs of replies, and similar losses.
//
// Sources: DPO Rafailov 2023, hinge Zhao 2023 (SLiC-HF), IPO Azar 2023 (with means over tokens, like TRL), ORPO Hong
// 2024, SimPO Meng 2024.
#include "base/error.h"
#include "graph/ops.h"
#include "models/blocks/layers.h"
#include "stages/preferences.h"
#include "stages/stages.h"

namespace fettle {
namespace {

bool dpo_compares(const KeyValues& keys) {
  const std::string& kind = keys.text("pref_loss");
  return kind != "orpo" && kind != "simpo";
}

void dpo_check(const KeyValues& keys) {
  const std::string& kind = keys.text("pref_loss");
  auto refuse = [&](const char* key, const char* readers) {
    if (keys.changed(key))
      throw UserError("{}: {} belongs to stage: dpo with {}, found pref_loss: {}; remove the key, or change pref_loss",
                      keys.where(key), key, readers, kind);
  };
  if (kind != "sigmoid" && kind != "simpo") refuse("dpo_label_smoothing", "pref_loss: sigmoid or simpo");
  if (kind != "simpo") refuse("simpo_gamma", "pref_loss: simpo");
  if (!dpo_compares(keys)) return refuse("ref_model", "pref_loss: sigmoid, hinge or ipo");
  check_reference_start(keys);
}

// Returns the loss of each row, [R]. `margin` is the score of the chosen reply minus the score of the rejected reply.
Tensor margin_loss(const KeyValues& keys, const Tensor& margin) {
  const std::string& kind = keys.text("pref_loss");
  const double beta = keys.number("pref_beta");
  if (kind == "hinge") return maximum(1.0 - margin * beta, constant(0, DType::kF32));
  if (kind == "ipo") {
    const Tensor off = margin - 1 / (2 * beta);
    return off * off;
  }
  const Tensor x = kind == "simpo" ? margin * beta - keys.number("simpo_gamma") : margin * beta;
  const double wrong = keys.number("dpo_label_smoothing");
  const Tensor loss = -log_sigmoid(x);
  return wrong > 0 ? loss * (1 - wrong) - log_sigmoid(-x) * wrong : loss;
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
  const std::string& kind = keys.text("pref_loss");
  const double beta = keys.number("pref_beta"), ftx = keys.number("pref_ftx");
  const Tensor real = real_sequences(in.tokens_S);
  auto reply = [&](int64_t which) {
    return Reply{side(in.trained_S, which), in.reference_S ? side(in.reference_S, which) : Tensor{},
                 maximum(side(in.tokens_S, which), constant(1, DType::kF32))};
  };
  const Reply chosen = reply(0), rejected = reply(1);
  const bool means = !dpo_compares(keys);
  auto logp = [&](const Reply& x) { return means ? x.logp / x.tokens : x.logp; };
  auto score = [&](const Reply& x) { return x.reference ? logp(x) - x.reference : logp(x); };
  auto compared = [&](const Reply& x) { return kind == "ipo" ? score(x) / x.tokens : score(x); };

  const Tensor nll = -(chosen.logp / chosen.tokens);
  Tensor loss, odds = zeros_like(nll);
  if (kind == "orpo") {
    odds = log_sigmoid((logp(chosen) - logp(rejected)) - (log_1m_exp(logp(chosen)) - log_1m_exp(logp(rejected))));
    loss = nll - odds * beta;
  } else {
    loss = margin_loss(keys, compared(chosen) - compared(rejected));
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
