#include "config/foreign/axolotl/intervals.h"

#include <fmt/format.h>

#include <cmath>
#include <string_view>
#include <tuple>

#include "base/error.h"
#include "base/log.h"
#include "config/foreign/nodes.h"
#include "config/value.h"

namespace fettle {
namespace {

// Returns whether a value counts as given. In Axolotl, 0 steps or rows do not.
bool counts(const YAML::Node& node) {
  return node.IsDefined() && !node.IsNull() && number_of(node, 1) != 0;
}

bool gives(const ForeignRecipe& recipe, const char* key) {
  return counts(recipe.given(key)) || counts(override_of(recipe.root(), recipe.all(), key));
}

bool evaluates(const ForeignRecipe& recipe) {
  return gives(recipe, "val_set_size") || gives(recipe, "val_size") || gives(recipe, "test_datasets") ||
         gives(recipe, "eval_dataset");
}

// Returns the number that saves_per_epoch or evals_per_epoch gives; 0 if it is not given.
double times_per_epoch(const ForeignRecipe& recipe, const char* key) {
  if (!recipe.has(key)) return 0;
  const double times = number_of(recipe.given(key), -1);
  if (times < 0)
    throw UserError("{}: {}: found {}, wanted a number, 0 or more", recipe.place(key), key,
                    describe_node(recipe.given(key)));
  return times;
}

// With early_stopping_patience, Axolotl's result is the best model. It then demands save_steps and eval_steps. Its
// trainers of preferences ignore the patience. `replacing` is the override that replaces such steps; "": none.
void read_patience(ForeignRecipe& recipe, const std::string& replacing) {
  const auto given = [&](const char* key) { return number_of(recipe.current(key, key), 0); };
  const bool stops = given("early_stopping_patience") > 0 && evaluates(recipe) && recipe.text("rl").empty();
  if (!stops || !gives(recipe, "save_steps") || !gives(recipe, "eval_steps")) return;
  const std::string strategy = recipe.text("save_strategy");  // a key without a value counts as not given
  if (!strategy.empty() && strategy != "steps") return;
  const double save = given("save_steps"), evaluate = given("eval_steps");  // below 1, these are shares of the run
  const double times = std::round(save / evaluate);                         // evaluations between two checkpoints
  const bool whole = (save < 1) == (evaluate < 1) && times >= 1 && std::abs(save / evaluate - times) < 1e-6;
  if (whole && replacing.empty()) return recipe.usual("load_best_model_at_end", "true");
  warn("early_stopping_patience: Axolotl's result is the best model, but Fettle's is the last one, because {}",
       replacing.empty() ? "save_steps is no multiple of eval_steps; change one of them"
                         : replacing + " replaces the steps in the file; set save_steps and eval_steps instead");
}

}  // namespace

// Once per epoch becomes the strategy `epoch`. Other numbers become save_steps and eval_steps, which are shares of the
// run's steps. The command line counts, too: its steps replace the file's numbers per epoch, and its numbers per epoch
// replace the file's steps.
void read_axolotl_intervals(ForeignRecipe& recipe) {
  const double epochs = number_of(recipe.current("num_train_epochs", "num_epochs"), 1);
  const bool evaluated = evaluates(recipe);
  std::string replacing;
  for (const auto& [from, strategy, steps] : {std::tuple{"saves_per_epoch", "save_strategy", "save_steps"},
                                              {"evals_per_epoch", "eval_strategy", "eval_steps"}}) {
    recipe.handle({from});
    const double times = times_per_epoch(recipe, from);
    const bool given = gives(recipe, steps);
    const bool replaces = times > 0 && recipe.is_word(from) && !recipe.overrides(steps);
    if (replaces && given) replacing = from;
    if (replaces || !given || !counts(recipe.in_file(steps))) recipe.handle_in_file(steps);  // it may lack its value
    if ((given && !replaces) || times <= 0) continue;
    if (std::string_view(from) == "evals_per_epoch" && !evaluated) continue;
    recipe.handle_in_file(strategy);
    recipe.mean(strategy, times == 1 ? "epoch" : "steps");
    if (times != 1 && epochs > 0) recipe.mean(steps, fmt::format("{:.9g}", 1 / (times * epochs)));
  }
  if (evaluated && gives(recipe, "eval_steps"))
    recipe.usual("eval_strategy", "steps");
  else if (evaluated && times_per_epoch(recipe, "evals_per_epoch") <= 0)
    recipe.usual("eval_strategy", "epoch");
  if (!evaluated)
    for (const char* key : {"eval_strategy", "evaluation_strategy", "eval_steps"}) recipe.handle_in_file(key);
  if (times_per_epoch(recipe, "saves_per_epoch") <= 0 && !gives(recipe, "save_steps"))
    recipe.usual("save_strategy", "epoch");
  read_patience(recipe, replacing);
}

}  // namespace fettle
