// Tests invalid hyperparameters of update rules.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "optim/optimizer.h"
#include "temp_folder.h"

namespace fettle {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string message(const std::string& optim, const std::map<std::string, std::string>& args, bool rate_set = false) {
  OptimSpec spec{.rule = optim, .args = args};
  spec.places.set("optim_args", "r.yaml:3");
  if (rate_set) spec.places.set("learning_rate", "r.yaml:4");
  return user_error([&] { make_optimizer(spec); });
}

TEST(OptimArgs, UnknownOnesListTheKnown) {
  EXPECT_EQ(message("sgd", {{"momentun", "0.9"}}),
            "r.yaml:3: optim_args: sgd does not read 'momentun'; it reads momentum, dampening, nesterov");
  EXPECT_THAT(message("adamw_torch", {{"amsgrad", "true"}}), HasSubstr("it reads no arguments; leave out optim_args"));
}

TEST(OptimArgs, ValuesOfAnotherKind) {
  EXPECT_EQ(message("sgd", {{"momentum", "high"}}),
            "r.yaml:3: optim_args: momentum is 'high', wanted a number >= 0 and < 1");
  EXPECT_EQ(message("sgd", {{"momentum", "nan"}}),
            "r.yaml:3: optim_args: momentum is 'nan', wanted a number >= 0 and < 1");
  EXPECT_EQ(message("muon", {{"adjust_lr_fn", "none"}}),
            "r.yaml:3: optim_args: adjust_lr_fn is 'none', wanted one of match_rms_adamw, original");
}

TEST(OptimArgs, NumbersOutOfRange) {
  const std::string at = "r.yaml:3: optim_args: ";
  EXPECT_EQ(message("muon", {{"ns_steps", "1e9"}}), at + "ns_steps is '1e9', wanted a whole number >= 1 and <= 99");
  EXPECT_EQ(message("muon", {{"ns_steps", "2.5"}}), at + "ns_steps is '2.5', wanted a whole number >= 1 and <= 99");
  EXPECT_EQ(message("sgd", {{"momentum", "-0.5"}}), at + "momentum is '-0.5', wanted a number >= 0 and < 1");
  EXPECT_EQ(message("adafactor", {{"eps1", "0"}}), at + "eps1 is '0', wanted a number > 0");
  const std::vector<std::array<const char*, 3>> wrong{
      {"muon", "momentum", "1"},
      {"muon", "eps", "0"},
      {"sgd", "dampening", "1.5"},
      {"sgd", "momentum", "1"},
      {"adafactor", "clip_threshold", "0"},
      {"adafactor", "decay_rate", "0.8"},
      {"adafactor", "beta1", "-1"},
      {"adafactor", "eps2", "-1e-3"},
  };
  for (const auto& [rule, name, value] : wrong)
    EXPECT_THAT(message(rule, {{name, value}}), HasSubstr(std::string(name) + " is '" + value + "', wanted a number"))
        << rule;
}

// Every default is within the range of its argument, and so is the largest value of ns_steps.
TEST(OptimArgs, DefaultsAreValid) {
  for (const UpdateRule& rule : update_rules())
    for (const OptimArgument& argument : rule.args) {
      OptimSpec spec{.rule = std::string(rule.name),
                     .args = {{std::string(argument.name), std::string(argument.value)}}};
      EXPECT_NO_THROW(make_optimizer(spec)) << rule.name << ' ' << argument.name;
    }
  EXPECT_NO_THROW(make_optimizer({.rule = "muon", .args = {{"ns_steps", "99"}}}));
}

TEST(OptimArgs, ThatExcludeEachOther) {
  EXPECT_THAT(message("sgd", {{"nesterov", "true"}}), HasSubstr("nesterov=true needs momentum above 0"));
  EXPECT_THAT(message("adafactor", {{"warmup_init", "true"}}), HasSubstr("warmup_init needs relative_step=true"));
  EXPECT_THAT(message("adafactor", {{"relative_step", "true"}}, true),
              AllOf(HasSubstr("relative_step"), HasSubstr("remove learning_rate (r.yaml:4)")));
}

}  // namespace
}  // namespace fettle
