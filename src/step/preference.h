// Defines the losses of stages dpo and kto over the log-probabilities of whole replies, and of stage rm over their
// scores.
//
// A row is two sequences S, one after the other: in stages dpo and rm the chosen and the rejected reply, in stage kto
// the reply and, for the divergence, another row's reply to the same prompt. R rows, S = 2 R. Sources: DPO Rafailov
// 2023, hinge Zhao 2023 (SLiC-HF), IPO Azar 2023 (over means of tokens, as TRL), ORPO Hong 2024, SimPO Meng 2024, KTO
// Ethayarajh 2024; rewards and their names are TRL's.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "config/recipe.h"
#include "graph/tensor.h"

namespace fettle {

bool has_preferences(const Recipe& recipe);  // stage dpo, kto or rm
// The loss compares with a reference model.
bool has_reference(const Recipe& recipe);
int64_t sequences_per_row(const Recipe& recipe);

struct SequenceLogps {
  Tensor trained_S;      // f32: sums over the reply's tokens; of stage rm the scores
  Tensor reference_S;    // null without a reference model
  Tensor tokens_S;       // f32: how many
  Tensor preferences_S;  // i32 of stage kto: Batch::preferences
};

constexpr int64_t kPreferenceSums = 9;

struct PreferenceLoss {
  Tensor losses_R;  // 0 for filler; differentiable by trained_S
  Tensor metrics;   // f32 [kPreferenceSums], sums that preference_metrics() reads
};
PreferenceLoss preference_loss(const Recipe& recipe, const SequenceLogps& in);

// 1 for each row of replies, 0 for filler: tokens_S [.., S] -> [.., R].
Tensor real_rows(const Tensor& tokens_S);

// Means by name: rewards/chosen, rewards/rejected, rewards/accuracies, rewards/margins, logps/chosen, logps/rejected;
// nll_loss where it is added, log_odds_ratio of orpo, kl of kto. Of stage rm: accuracy, margin, mean_reward.
std::map<std::string, double> preference_metrics(const Recipe& recipe, std::span<const float> sums);

}  // namespace fettle
