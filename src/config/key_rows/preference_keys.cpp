#include "config/keys.h"

namespace fettle {

std::vector<Key> preference_keys() {
  return {
      {.name = "sft_loss",
       .group = Group::kMethod,
       .member = &Recipe::sft_loss,
       .help =
           "Loss of `stage: sft`. dft multiplies each token's loss by the token's probability. eaft multiplies it by "
           "the entropy of the prediction. asft is dft plus the distance to a reference model's predictions. "
           "Evaluation always measures cross_entropy.",
       .values = {"cross_entropy", "dft", "eaft", "asft"},
       .spellings = {{"nll", "cross_entropy"}}},
      {.name = "eaft_alpha",
       .group = Group::kMethod,
       .member = &Recipe::eaft_alpha,
       .help = "Power to which the weight in `sft_loss: eaft` is raised.",
       .min = 0},
      {.name = "asft_alpha",
       .group = Group::kMethod,
       .member = &Recipe::asft_alpha,
       .help = "Weight of the distance to the reference model in `sft_loss: asft`.",
       .min = 0},
      {.name = "pref_loss",
       .group = Group::kMethod,
       .member = &Recipe::pref_loss,
       .help = "Loss of `stage: dpo`. orpo and simpo need no reference model.",
       .aliases = {"loss_type"},
       .values = {"sigmoid", "hinge", "ipo", "orpo", "simpo", "robust", "exo_pair", "nca_pair", "bco_pair", "sppo_hard",
                  "apo_zero", "apo_down", "discopop", "sigmoid_norm"},
       .later = {"kto_pair", "aot", "aot_unpaired"}},
      {.name = "pref_beta",
       .group = Group::kMethod,
       .member = &Recipe::pref_beta,
       .help = "Factor on the differences of log-probabilities in the losses of stages dpo and kto. For orpo, the "
               "weight of the odds ratio.",
       .aliases = {"beta", "dpo_beta", "orpo_alpha", "rl_beta"},
       .min = 0,
       .above_min = true},
      {.name = "pref_ftx",
       .group = Group::kMethod,
       .member = &Recipe::pref_ftx,
       .help = "Weight of the chosen reply's mean token loss, which is added to the loss of `stage: dpo`.",
       .aliases = {"rpo_alpha", "dpo_ftx", "cpo_alpha"},
       .min = 0},
      {.name = "dpo_label_smoothing",
       .group = Group::kMethod,
       .member = &Recipe::dpo_label_smoothing,
       .help = "Assumed share of pairs in which chosen and rejected are swapped (pref_loss sigmoid, simpo, robust and "
               "exo_pair).",
       .aliases = {"label_smoothing"},
       .min = 0,
       .max = 0.5,
       .below_max = true},
      {.name = "center_rewards_coefficient",
       .group = Group::kMethod,
       .member = &Recipe::center_rewards_coefficient,
       .help = "Weight of the squared sum of a pair's two scores, which is added to the loss of `stage: rm`. It keeps "
               "the scores around 0.",
       .min = 0},
      {.name = "simpo_gamma",
       .group = Group::kMethod,
       .member = &Recipe::simpo_gamma,
       .help = "Margin of `pref_loss: simpo`: by how much the chosen reply's reward should exceed the other reward.",
       .min = 0},
      {.name = "kto_chosen_weight",
       .group = Group::kMethod,
       .member = &Recipe::kto_chosen_weight,
       .help = "Weight of the good replies in `stage: kto`.",
       .aliases = {"desirable_weight", "kto_desirable_weight"},
       .min = 0},
      {.name = "kto_rejected_weight",
       .group = Group::kMethod,
       .member = &Recipe::kto_rejected_weight,
       .help = "Weight of the bad replies in `stage: kto`.",
       .aliases = {"undesirable_weight", "kto_undesirable_weight"},
       .min = 0},
      {.name = "disable_dropout",
       .group = Group::kMethod,
       .member = &Recipe::disable_dropout,
       .help =
           "Whether LoRA's dropout is off, whatever lora_dropout says. auto: dropout is off in stages dpo and kto. In "
           "recipes of Axolotl, ms-swift and TRL, auto turns dropout off in stage rm too. In recipes of torchtune, "
           "dropout stays on.",
       .values = {"auto", "true", "false"},
       .spellings = {{"true", "true"}, {"false", "false"}}},
      {.name = "ref_model",
       .group = Group::kMethod,
       .member = &Recipe::ref_model,
       .help = "Folder of the reference model for stages dpo and kto and for `sft_loss: asft`. This model must have "
               "the architecture of the trained model. If empty, the reference is the model at the start of the run. "
               "If the run trains a new adapter, this reference needs no extra memory.",
       .aliases = {"ref_model_name_or_path", "ref_checkpointer.checkpoint_dir"}},
  };
}

}  // namespace fettle
