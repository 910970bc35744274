// Defines freeze-tuning: some layers of a model are trained, the rest stays. After LLaMA-Factory's keys.
#pragma once

#include <string>
#include <vector>

#include "models/model.h"

namespace fettle {

struct FreezeOptions {
  int64_t layers = 2;                          // the last so many, or below 0 the first
  std::vector<std::string> modules = {"all"};  // of those layers: "mlp", "self_attn", "input_layernorm"
  std::vector<std::string> extra = {};         // outside of the layers: "embed_tokens", "norm", "lm_head"
};

// All parameters of the model. Stacks are cut where training begins or ends, so that what is frozen has neither
// gradients nor optimizer state.
struct FrozenAndTrained {
  std::vector<Param> frozen, trained;
};

// Throws UserError listing the names when one matches none, and when nothing is left to train.
FrozenAndTrained freeze_params(const Model& model, const FreezeOptions& options);

}  // namespace fettle
