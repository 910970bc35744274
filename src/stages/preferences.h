// Defines the parts that all preference stages share.
//
// A data row becomes two sequences with successive numbers: the chosen and the rejected reply. In stage kto, these are
// the rated reply and, to estimate the KL divergence from the reference model, the same prompt with another row's
// reply. Both sequences are in the same micro-batch. So there are R rows and S = 2 * R sequences. Sequences without
// tokens, which fill up a step, are called filler. Rewards are computed and named as in TRL.
#pragma once

#include <span>

#include "stages/stage.h"

namespace fettle {

// Returns the values of the first (`which` = 0) or second (`which` = 1) sequence of each row: [S] -> [R].
Tensor side(const Tensor& x_S, int64_t which);

// The inputs of a loss over whole replies.
struct ReplyLogps {
  Tensor trained_S;    // f32: log-probability of the reply, summed over its tokens; stage rm: the score
  Tensor reference_S;  // log-probability by the reference model; null when there is none
  Tensor tokens_S;     // f32: number of trained tokens of the reply
};

// The losses of the data rows, and the sums from which metrics are computed.
struct PreferenceLoss {
  Tensor losses_R;  // 0 for filler; differentiable with respect to trained_S
  Tensor metrics;   // f32 [kPreferenceSums]
};

// The sums over rows in PreferenceLoss::metrics, in this order: the counts of chosen and rejected replies, their
// rewards, the number of rows whose chosen reply has the larger reward, the log-probabilities, the mean negative
// log-likelihood of the chosen replies' tokens, and one more sum that the stage defines.
enum PreferenceSum {
  kChosen,
  kRejected,
  kRewardChosen,
  kRewardRejected,
  kRight,
  kLogpsChosen,
  kLogpsRejected,
  kNll,
  kExtra
};
inline constexpr int64_t kPreferenceSums = kExtra + 1;
// Sums each term (f32 [R]) over the rows and returns [kPreferenceSums]. Gradients do not flow through these sums.
Tensor preference_sums(const std::vector<Tensor>& terms_R);

// Returns 1 where the predicate is true, else 0, in f32.
Tensor one_if(const Tensor& pred);
// Returns 1 for each row of data and 0 for filler, [R], from tokens_S.
Tensor real_sequences(const Tensor& tokens_S);
// Returns real_sequences() of the batch.
Tensor real_rows_of(const BatchInputs& batch);

// Returns the loss of a batch of replies. `losses` computes the rows' losses from the log-probabilities. If
// in.differentiable is true, the gradient of BatchLoss::sum is computed in chunks of tokens by the chain rule:
// d loss / d (log-probability of a sequence), times d (log-probability of a token) / d logits.
BatchLoss reply_loss(const LossInputs& in, const std::function<PreferenceLoss(const ReplyLogps&)>& losses);

// Returns rewards/chosen, rewards/rejected, rewards/margins, logps/chosen and logps/rejected. Leaves out the metrics of
// chosen replies if no reply is chosen, and of rejected replies if none is rejected. rewards/margins needs both kinds.
std::map<std::string, double> reward_metrics(std::span<const float> sums);

// Returns the keys that every preference stage refuses.
std::vector<RefusedKey> refused_with_preferences();
// Throws UserError when pissa_init is set without ref_model. PiSSA moves a part of the base model into the adapter, so
// the weights that remain in the base model are not a reference model.
void check_reference_start(const KeyValues& keys);

}  // namespace fettle
