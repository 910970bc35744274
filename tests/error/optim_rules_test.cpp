// Hyperparameters of update rules that make no sense.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "optim/optimizer.h"
#include "temp_folder.h"

namespace fettle {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string message(const std::string& optim, const std::map<std::string, std::string>& args, bool rate_set = false) {
  Recipe recipe;
  recipe.optim = optim;
  recipe.optim_args = args;
  recipe.set_at["optim_args"] = "r.yaml:3";
  if (rate_set) recipe.set_at["learning_rate"] = "r.yaml:4";
  return user_error([&] { make_optimizer(recipe); });
}

TEST(OptimArgs, UnknownOnesListTheKnown) {
  EXPECT_EQ(message("sgd", {{"momentun", "0.9"}}),
            "r.yaml:3: optim_args: sgd does not read 'momentun'; it reads momentum, dampening, nesterov");
  EXPECT_THAT(message("adamw_torch", {{"amsgrad", "true"}}), HasSubstr("it reads none"));
}

TEST(OptimArgs, ValuesOfAnotherKind) {
  EXPECT_EQ(message("sgd", {{"momentum", "high"}}), "r.yaml:3: optim_args: momentum is 'high', wanted a number");
  EXPECT_EQ(message("sgd", {{"momentum", "nan"}}), "r.yaml:3: optim_args: momentum is 'nan', wanted a number");
  EXPECT_EQ(message("muon", {{"adjust_lr_fn", "none"}}),
            "r.yaml:3: optim_args: adjust_lr_fn is 'none', wanted one of match_rms_adamw, original");
}

TEST(OptimArgs, ThatExcludeEachOther) {
  EXPECT_THAT(message("sgd", {{"nesterov", "true"}}), HasSubstr("nesterov needs a momentum"));
  EXPECT_THAT(message("adafactor", {{"warmup_init", "true"}}), HasSubstr("warmup_init needs relative_step=true"));
  EXPECT_THAT(message("adafactor", {{"relative_step", "true"}}, true),
              AllOf(HasSubstr("relative_step"), HasSubstr("remove learning_rate (r.yaml:4)")));
}

}  // namespace
}  // namespace fettle
