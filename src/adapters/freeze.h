// Defines freeze-tuning: some layers of a model are trained, the others stay frozen. The options follow LLaMA-Factory's
// keys.
#pragma once

#include <string>
#include <vector>

#include "models/model.h"

namespace fettle {

struct FreezeOptions {
  int64_t layers = 2;  // number of trained layers: the last ones, or the first ones when negative
  std::vector<std::string> modules = {"all"};  // modules of those layers: "mlp", "self_attn", "input_layernorm"
  std::vector<std::string> extra = {};         // modules outside of the layers: "embed_tokens", "norm", "lm_head"
  // true: the model's layers are divided into `layers` blocks of equal size, and the last layer of each block is
  // trained. Source: LLaMA Pro, Wu 2024.
  bool spread = false;
};

// All parameters of the model. Stacked parameters are cut in two, the slices of the trained layers and the slices of
// the other layers, so that frozen layers have neither gradients nor optimizer state.
struct FrozenAndTrained {
  std::vector<Param> frozen, trained;
};

// Splits the model's parameters. Throws UserError when `layers` is 0, when `spread` cannot form equal blocks of at most
// 16 layers, and when a given name matches nothing. The message about such a name lists the possible names.
FrozenAndTrained freeze_params(const Model& model, const FreezeOptions& options);

}  // namespace fettle
