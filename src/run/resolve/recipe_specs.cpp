#include "run/resolve/recipe_specs.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "config/checks.h"
#include "config/key_values.h"
#include "config/recipe.h"

namespace fettle {
namespace {

Interval interval(const std::string& strategy, double steps) {
  if (strategy == "no" || strategy == "best") return {};
  if (strategy == "end") return {Interval::Every::kEnd};
  return {strategy == "epoch" ? Interval::Every::kEpoch : Interval::Every::kSteps, steps};
}

bool is_better_when_less(const std::string& metric) {
  return metric.ends_with("loss") || metric.ends_with("perplexity") || metric.ends_with("mse") ||
         metric.ends_with("mae");
}

// Returns the last learning rate as a share of the highest one.
double min_rate(const Recipe& r) {
  if (r.min_lr) return *r.min_lr / r.learning_rate;
  if (r.min_lr_rate) return *r.min_lr_rate;
  return r.lr_scheduler_type == "polynomial" ? kPolynomialEnd / r.learning_rate : 0;
}

}  // namespace

LengthSpec length_spec(const Recipe& r) {
  return {.epochs = r.num_train_epochs,
          .max_steps = r.max_steps,
          .warmup_ratio = r.warmup_ratio,
          .warmup_steps = r.warmup_steps,
          .max_warmup_steps = r.max_warmup_steps,
          .schedule = {.type = r.lr_scheduler_type,
                       .min_rate = min_rate(r),
                       .power = r.lr_power,
                       .cycles = r.lr_num_cycles},
          .stable_steps = r.lr_num_stable_steps,
          .decay_steps = r.lr_num_decay_steps,
          .logging_steps = r.logging_steps,
          .save = interval(r.save_strategy, r.save_steps),
          .evaluate = interval(r.eval_strategy, r.eval_steps > 0 ? r.eval_steps : r.logging_steps)};
}

OptimSpec optim_spec(const Recipe& r) {
  OptimSpec spec{.rule = r.optim,
                 .args = r.optim_args,
                 .beta1 = r.adam_beta1,
                 .beta2 = r.adam_beta2,
                 .epsilon = r.adam_epsilon,
                 .places = r.places};
  if (r.use_muon) spec.rule = "muon";
  if (r.use_adam_mini) spec.rule = "adam_mini";
  if (r.use_apollo) {
    spec.rule = "apollo_adamw";
    spec.args = {{"rank", std::to_string(r.apollo_rank)},
                 {"update_proj_gap", std::to_string(r.apollo_update_interval)},
                 {"scale", fmt::format("{}", r.apollo_scale)},
                 {"proj", r.apollo_proj},
                 {"proj_type", r.apollo_proj_type},
                 {"scale_type", r.apollo_scale_type},
                 {"scale_front", r.apollo_scale_front ? "true" : "false"}};
  }
  return spec;
}

UpdateSpec update_spec(const Recipe& r) {
  return {.learning_rate = r.learning_rate,
          .embedding_lr = r.embedding_lr,
          .loraplus_lr_ratio = r.loraplus_lr_ratio,
          .weight_decay = r.weight_decay,
          .max_grad_norm = r.max_grad_norm,
          .apollo_target = r.apollo_target};
}

BestSpec best_spec(const Recipe& r) {
  const std::string& metric = r.metric_for_best_model;
  return {
      .metric = metric.starts_with("eval_") ? metric : "eval_" + metric,
      .greater_is_better = r.greater_is_better == "auto" ? !is_better_when_less(metric) : r.greater_is_better == "true",
      .load_at_end = r.load_best_model_at_end,
      .save = r.save_strategy == "best",
      .patience = r.early_stopping_patience,
      .threshold = r.early_stopping_threshold};
}

OutputSpec output_spec(const Recipe& r) {
  return {.folder = r.output_dir,
          .overwrite = r.overwrite_output_dir,
          .resume_from = r.resume_from_checkpoint,
          .save_total_limit = r.save_total_limit,
          .save_only_model = r.save_only_model,
          .plot_loss = r.plot_loss,
          .html_report = r.html_report,
          .report_to = r.report_to,
          .run_name = r.run_name,
          .project = r.project,
          .logging_dir = r.logging_dir,
          .profile_steps = r.profiler_steps,
          .profile_start = r.profiler_steps_start,
          .changed_keys = KeyValues(r).changed_values().dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)};
}

}  // namespace fettle
