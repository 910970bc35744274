#include "run/resolve/expert_balance.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "config/recipe.h"

namespace fettle {

nlohmann::json with_asked_balance(const Recipe& recipe, nlohmann::json config) {
  if (recipe.output_router_logits == "auto") return config;
  const bool balances = recipe.output_router_logits == "true";
  config["output_router_logits"] = balances;
  if (config.contains("text_config")) config["text_config"]["output_router_logits"] = balances;
  return config;
}

double balance_factor(const Recipe& recipe, const Stage& stage, const ModelConfig& config) {
  if (recipe.moe_aux_loss_coef) return config.num_experts > 0 ? *recipe.moe_aux_loss_coef : 0;
  if (stage.head != Head::kTokens || !config.has_balancing_loss) return 0;
  return recipe.output_router_logits == "false" ? 0 : recipe.moe_aux_loss_default.value_or(config.router_aux_loss_coef);
}

void set_balance(Run& run, const Recipe& recipe, Purpose purpose) {
  if (run.model.config.num_experts == 0 && recipe.output_router_logits == "true")
    throw UserError("{}: output_router_logits: {} has no experts to balance; remove the key",
                    recipe.where("output_router_logits"), run.model.family->model_type);
  if (run.model.config.num_experts == 0 && recipe.moe_aux_loss_coef.value_or(0) != 0)
    run.remarks.warnings.push_back(fmt::format("{}: moe_aux_loss_coef has no effect here: {} has no experts to balance",
                                               recipe.where("moe_aux_loss_coef"), run.model.family->model_type));
  const ModelConfig& config = run.model.config;
  const bool by_tool = recipe.output_router_logits != "false" && recipe.moe_aux_loss_default.value_or(0) != 0;
  const bool asked = run.stage->head == Head::kTokens && (by_tool || config.router_aux_loss_coef != 0);
  if (purpose == Purpose::kTraining && asked && config.num_experts > 0 && !config.has_balancing_loss &&
      !recipe.moe_aux_loss_coef)
    run.remarks.warnings.push_back(
        fmt::format("the experts of {} are trained without a loss that balances them; moe_aux_loss_coef adds one",
                    run.model.family->model_type));
  run.model.config.router_aux_loss_coef = balance_factor(recipe, *run.stage, config);
}

void set_router_bias_rate(Run& run, const Recipe& recipe, Purpose purpose) {
  run.router_bias_rate = purpose == Purpose::kTraining ? recipe.moe_router_bias_update_rate : 0;
  if (run.router_bias_rate == 0) return;
  auto refuse = [&](const std::string& why, const char* remedy) {
    throw UserError("{}: moe_router_bias_update_rate: {}; {}", recipe.where("moe_router_bias_update_rate"), why,
                    remedy);
  };
  const ModelConfig& config = run.model.config;
  const std::string type = run.model.family->model_type;
  if (config.num_experts == 0) refuse(type + " has no experts to balance", "remove the key");
  if (config.routing.correction.empty())
    refuse(fmt::format("the routers of {} have no corrections that a step could change", type),
           "remove the key; moe_aux_loss_coef balances the experts with a loss");
  if (recipe.finetuning_type != "full")
    refuse(fmt::format("finetuning_type: {} leaves the routers of the base unchanged, and {}", recipe.finetuning_type,
                       recipe.finetuning_type == "lora" ? "an adapter has no place for their corrections"
                                                        : "most of its layers are frozen"),
           "set finetuning_type: full, or remove the key");
}

}  // namespace fettle
