#include "step/preference.h"

#include <algorithm>
#include <vector>

#include "data/example.h"
#include "graph/ops.h"
#include "models/blocks/layers.h"
#include "run/batch_spec.h"

namespace fettle {
namespace {

// Places in PreferenceLoss::metrics.
enum Sum { kChosen, kRejected, kRewardChosen, kRewardRejected, kRight, kLogpsChosen, kLogpsRejected, kNll, kExtra };

Tensor zero() {
  return constant(0, DType::kF32);
}

// The first (0) or second (1) sequence of each row: [.., S] -> [.., R].
Tensor side(const Tensor& x, int64_t which) {
  Dims pairs = x.dims(), rows = x.dims();
  pairs.back() = rows.back() = x.dims().back() / 2;
  pairs.push_back(2);
  const int64_t last = static_cast<int64_t>(pairs.size()) - 1;
  return reshape(slice(reshape(x, pairs), last, which, which + 1), rows);
}

Tensor one_if(const Tensor& pred) {
  return convert(pred, DType::kF32);
}

Tensor stack_sums(const std::vector<Tensor>& terms_R) {
  std::vector<Tensor> sums;
  for (const Tensor& term : terms_R) sums.push_back(reshape(reduce_sum(term, {0}), {1}));
  return stop_gradient(concatenate(sums, 0));
}

// Of a pair: what its replies' log-probabilities are to the loss.
struct Reply {
  Tensor logp, reference, tokens;  // [R]
};

Tensor pair_loss(const Recipe& r, const Tensor& margin) {
  if (r.pref_loss == "hinge") return maximum(1.0 - margin * r.pref_beta, zero());
  if (r.pref_loss == "ipo") {
    const Tensor off = margin - 1 / (2 * r.pref_beta);
    return off * off;
  }
  const Tensor x = r.pref_loss == "simpo" ? margin * r.pref_beta - r.simpo_gamma : margin * r.pref_beta;
  const double wrong = r.dpo_label_smoothing;
  const Tensor loss = -log_sigmoid(x);
  return wrong > 0 ? loss * (1 - wrong) - log_sigmoid(-x) * wrong : loss;
}

// log(1 - exp(x)) of x < 0.
Tensor log_1m_exp(const Tensor& x) {
  constexpr double kLeast = 1e-7;  // of f32 beside 1
  return log(maximum(1.0 - exp(x), constant(kLeast, DType::kF32)));
}

PreferenceLoss pairs_loss(const Recipe& r, const SequenceLogps& in) {
  const Tensor real = real_rows(in.tokens_S);
  auto reply = [&](int64_t which) {
    return Reply{side(in.trained_S, which), in.reference_S ? side(in.reference_S, which) : Tensor{},
                 maximum(side(in.tokens_S, which), constant(1, DType::kF32))};
  };
  const Reply chosen = reply(0), rejected = reply(1);
  const bool of_means = r.pref_loss == "orpo" || r.pref_loss == "simpo";
  auto logp = [&](const Reply& x) { return of_means ? x.logp / x.tokens : x.logp; };
  auto score = [&](const Reply& x) { return x.reference ? logp(x) - x.reference : logp(x); };
  auto compared = [&](const Reply& x) { return r.pref_loss == "ipo" ? score(x) / x.tokens : score(x); };

  const Tensor nll = -(chosen.logp / chosen.tokens);
  Tensor loss, odds = zeros_like(nll);
  if (r.pref_loss == "orpo") {
    odds = log_sigmoid((logp(chosen) - logp(rejected)) - (log_1m_exp(logp(chosen)) - log_1m_exp(logp(rejected))));
    loss = nll - odds * r.pref_beta;
  } else {
    loss = pair_loss(r, compared(chosen) - compared(rejected));
  }
  if (r.pref_ftx > 0) loss = loss + nll * r.pref_ftx;

  const Tensor good = score(chosen) * r.pref_beta, bad = score(rejected) * r.pref_beta;
  const Tensor right = one_if(compare(good, "GT", bad));
  return {loss * real, stack_sums({real, real, good * real, bad * real, right * real, logp(chosen) * real,
                                   logp(rejected) * real, nll * real, odds * real})};
}

PreferenceLoss judged_loss(const Recipe& r, const SequenceLogps& in) {
  const Tensor real = real_rows(in.tokens_S);
  const Tensor difference = in.trained_S - in.reference_S;
  // The divergence is estimated over all rows of the micro-batch, whatever device they are on.
  const Tensor other = one_if(compare(side(in.tokens_S, 1), "GT", zero()));
  const Tensor mean =
      reduce_sum(side(difference, 1) * other, {0}) / maximum(reduce_sum(other, {0}), constant(1, DType::kF32));
  const Tensor kl = stop_gradient(maximum(mean, zero()));
  const Tensor score = side(difference, 0), logp = side(in.trained_S, 0);
  const Tensor chosen = constant(static_cast<double>(Preference::kChosen), DType::kI32);
  const Tensor good = real * one_if(compare(side(in.preferences_S, 0), "EQ", chosen));
  const Tensor bad = real - good;
  const Tensor loss = good * ((1.0 - logistic((score - kl) * r.pref_beta)) * r.kto_chosen_weight) +
                      bad * ((1.0 - logistic((kl - score) * r.pref_beta)) * r.kto_rejected_weight);
  const Tensor reward = score * r.pref_beta;
  const Tensor none = zeros_like(real);
  return {loss, stack_sums({good, bad, reward * good, reward * bad, none, logp * good, logp * bad, none, real * kl})};
}

// Bradley and Terry's model of which reply is preferred, as TRL's RewardTrainer has it.
PreferenceLoss scores_loss(const SequenceLogps& in) {
  const Tensor real = real_rows(in.tokens_S);
  const Tensor good = side(in.trained_S, 0), bad = side(in.trained_S, 1), none = zeros_like(real);
  const Tensor right = one_if(compare(good, "GT", bad));
  return {-log_sigmoid(good - bad) * real,
          stack_sums({real, real, good * real, bad * real, right * real, none, none, none, none})};
}

}  // namespace

bool has_preferences(const Recipe& recipe) {
  return recipe.stage == "dpo" || recipe.stage == "kto" || recipe.stage == "rm";
}

bool has_reference(const Recipe& recipe) {
  return has_preferences(recipe) && recipe.stage != "rm" && recipe.pref_loss != "orpo" && recipe.pref_loss != "simpo";
}

int64_t sequences_per_row(const Recipe& recipe) {
  return sequences_per_group(row_grouping(recipe.stage));
}

Tensor real_rows(const Tensor& tokens_S) {
  return one_if(compare(side(tokens_S, 0), "GT", zero()));
}

PreferenceLoss preference_loss(const Recipe& recipe, const SequenceLogps& in) {
  if (recipe.stage == "rm") return scores_loss(in);
  return recipe.stage == "kto" ? judged_loss(recipe, in) : pairs_loss(recipe, in);
}

std::map<std::string, double> preference_metrics(const Recipe& recipe, std::span<const float> sums) {
  std::map<std::string, double> out;
  const double chosen = sums[kChosen], rejected = sums[kRejected];
  if (recipe.stage == "rm") {
    const double pairs = std::max(chosen, 1.0);
    out["accuracy"] = sums[kRight] / pairs;
    out["margin"] = (sums[kRewardChosen] - sums[kRewardRejected]) / pairs;
    out["mean_reward"] = (sums[kRewardChosen] + sums[kRewardRejected]) / (2 * pairs);
    return out;
  }
  if (chosen > 0) {
    out["rewards/chosen"] = sums[kRewardChosen] / chosen;
    out["logps/chosen"] = sums[kLogpsChosen] / chosen;
  }
  if (rejected > 0) {
    out["rewards/rejected"] = sums[kRewardRejected] / rejected;
    out["logps/rejected"] = sums[kLogpsRejected] / rejected;
  }
  if (chosen > 0 && rejected > 0) out["rewards/margins"] = out["rewards/chosen"] - out["rewards/rejected"];
  if (recipe.stage == "kto") {
    if (chosen + rejected > 0) out["kl"] = sums[kExtra] / (chosen + rejected);
  } else if (chosen > 0) {
    out["rewards/accuracies"] = sums[kRight] / chosen;
    if (recipe.pref_ftx > 0 || recipe.pref_loss == "orpo") out["nll_loss"] = sums[kNll] / chosen;
    if (recipe.pref_loss == "orpo") out["log_odds_ratio"] = sums[kExtra] / chosen;
  }
  return out;
}

}  // namespace fettle
