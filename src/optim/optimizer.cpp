#include "optim/optimizer.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/error.h"
#include "optim/adafactor.h"
#include "optim/adam_mini.h"
#include "optim/adamw.h"
#include "optim/adamw_4bit.h"
#include "optim/adamw_8bit.h"
#include "optim/apollo.h"
#include "optim/lion.h"
#include "optim/muon.h"
#include "optim/sgd.h"

namespace fettle {
namespace {

bool holds(const OptimRange& range, double x) {
  const bool high = range.above ? x > range.least : x >= range.least;
  const bool low = range.below ? x < range.most : x <= range.most;
  return high && low && !(range.whole && x != std::floor(x));
}

// Returns the range in words: "a whole number >= 1 and <= 99".
std::string words(const OptimRange& range) {
  const std::string from =
      fmt::format("a {}number {} {}", range.whole ? "whole " : "", range.above ? ">" : ">=", range.least);
  return std::isinf(range.most) ? from : fmt::format("{} and {} {}", from, range.below ? "<" : "<=", range.most);
}

std::string argument_value(const OptimSpec& spec, const OptimArgument& argument, const std::string& given) {
  auto refuse = [&](const std::string& wanted) {
    throw UserError("{}: optim_args: {} is '{}', wanted {}", spec.places.of("optim_args"), argument.name, given,
                    wanted);
  };
  std::string text = given;
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  if (!argument.values.empty()) {
    if (text == "1" || text == "yes") text = "true";
    if (text == "0" || text == "no") text = "false";
    if (std::ranges::find(argument.values, text) == argument.values.end())
      refuse(fmt::format("one of {}", fmt::join(argument.values, ", ")));
    return text;
  }
  double number = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || rest != text.data() + text.size() || !std::isfinite(number) ||
      !holds(argument.range, number))
    refuse(words(argument.range));
  return text;
}

}  // namespace

const std::string& OptimOptions::text(std::string_view argument) const {
  const auto found = args.find(argument);
  internal_check(found != args.end(), "the update rule has no argument '{}'", argument);
  return found->second;
}

double OptimOptions::number(std::string_view argument) const {
  const std::string& digits = text(argument);
  double out = 0;  // std::from_chars, unlike std::stod, does not depend on the locale
  const auto [rest, error] = std::from_chars(digits.data(), digits.data() + digits.size(), out);
  internal_check(error == std::errc(), "the argument '{}' of the update rule is '{}', not a number", argument, digits);
  return out;
}

const std::vector<UpdateRule>& update_rules() {
  static const std::vector<UpdateRule> rules{adamw_rule(),     adamw_8bit_rule(), adamw_4bit_rule(), adafactor_rule(),
                                             lion_rule(),      lion_8bit_rule(),  sgd_rule(),        muon_rule(),
                                             adam_mini_rule(), apollo_rule()};
  return rules;
}

Optimizer make_optimizer(const OptimSpec& spec) {
  const auto& rules = update_rules();
  const auto rule = std::ranges::find(rules, spec.rule, &UpdateRule::name);
  internal_check(rule != rules.end(), "optim '{}' has no update rule", spec.rule);
  Optimizer out{&*rule, {spec.beta1, spec.beta2, spec.epsilon, {}}};
  for (const OptimArgument& argument : rule->args) out.options.args.emplace(argument.name, argument.value);
  for (const auto& [name, value] : spec.args) {
    const auto argument = std::ranges::find(rule->args, name, &OptimArgument::name);
    if (argument == rule->args.end()) {
      std::vector<std::string_view> known;
      for (const OptimArgument& each : rule->args) known.push_back(each.name);
      throw UserError("{}: optim_args: {} does not read '{}'; it reads {}", spec.places.of("optim_args"), rule->name,
                      name,
                      known.empty() ? "no arguments; leave out optim_args" : fmt::format("{}", fmt::join(known, ", ")));
    }
    out.options.args[name] = argument_value(spec, *argument, value);
  }
  if (rule->check) rule->check(out.options, spec);
  return out;
}

}  // namespace fettle
