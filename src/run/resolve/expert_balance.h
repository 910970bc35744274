// Defines how a run balances the load of experts: by a loss, and by the corrections of routers.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "run/run.h"

namespace fettle {

struct Recipe;

// Returns `config` (config.json) with the recipe's output_router_logits. Returns it unchanged if the key is auto.
nlohmann::json with_asked_balance(const Recipe& recipe, nlohmann::json config);

// Returns the factor of the loss that balances the load of the experts: moe_aux_loss_coef if the recipe sets it.
// Otherwise, a language model uses moe_aux_loss_default or the value in config.json, unless output_router_logits is
// false. A classifier uses 0, as in Transformers. A model without experts has the factor 0.
double balance_factor(const Recipe& recipe, const Stage& stage, const ModelConfig& config);

// Sets the factor of the loss in run.model. Adds warnings about keys without effect, and about experts that are trained
// without this loss, to run.remarks. Throws UserError if the recipe asks for the loss, but the model has no experts.
void set_balance(Run& run, const Recipe& recipe, Purpose purpose);

// Sets the amount by which each step changes the corrections of routers. Throws UserError if the run does not train
// such corrections.
void set_router_bias_rate(Run& run, const Recipe& recipe, Purpose purpose);

}  // namespace fettle
