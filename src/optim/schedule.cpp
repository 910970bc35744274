#include "optim/schedule.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace fettle {
namespace {

// One type of schedule. `after_warmup` returns the factor for a step after the warm-up. `progress` is 0 at the end of
// the warm-up and 1 at total_steps; after that, it continues to grow.
struct Type {
  std::string_view name;
  double (*after_warmup)(const Schedule& s, double step, double progress);
};

double half_cosine(double progress) {
  return std::max(0.0, 0.5 * (1 + std::cos(std::numbers::pi * progress)));
}

// Maps `factor` from [0, 1] to [min_rate, 1].
double above_min(const Schedule& s, double factor) {
  return std::max(0.0, factor * (1 - s.min_rate) + s.min_rate);
}

double inverse_sqrt(const Schedule& s, double step, double) {
  const auto warmup = static_cast<double>(s.warmup_steps);
  const double timescale = s.warmup_steps > 0 ? warmup : 10000;
  return 1 / std::sqrt((step + timescale - warmup) / timescale);
}

double polynomial(const Schedule& s, double, double progress) {
  return progress > 1 ? s.min_rate : std::pow(1 - progress, s.power) * (1 - s.min_rate) + s.min_rate;
}

double restarts(const Schedule& s, double, double progress) {
  return progress >= 1 ? 0 : half_cosine(std::fmod(s.cycles * progress, 1.0));
}

double stable_then_decay(const Schedule& s, double step, double) {
  const auto decay = static_cast<double>(s.decay_steps), start = static_cast<double>(s.warmup_steps + s.stable_steps);
  if (step < start) return 1;
  if (step >= start + decay) return s.min_rate;
  return above_min(s, half_cosine((step - start) / std::max(1.0, decay)));
}

constexpr double one(const Schedule&, double, double) {
  return 1;
}

constexpr std::array kTypes{
    Type{"linear", [](const Schedule&, double, double progress) { return std::max(0.0, 1 - progress); }},
    Type{"cosine", [](const Schedule&, double, double progress) { return half_cosine(progress); }},
    Type{"cosine_with_restarts", restarts},
    Type{"cosine_with_min_lr",
         [](const Schedule& s, double, double progress) { return above_min(s, half_cosine(progress)); }},
    Type{"constant", one},
    Type{"constant_with_warmup", one},
    Type{"polynomial", polynomial},
    Type{"inverse_sqrt", inverse_sqrt},
    Type{"warmup_stable_decay", stable_then_decay},
};

const Type& find_type(const std::string& name) {
  for (const Type& type : kTypes)
    if (type.name == name) return type;
  std::vector<std::string_view> names;
  for (const Type& type : kTypes) names.push_back(type.name);
  throw UserError("lr_scheduler_type: '{}' is not implemented; use one of {}", name, fmt::join(names, ", "));
}

}  // namespace

void check_schedule_type(const std::string& type) {
  find_type(type);
}

double Schedule::multiplier(int64_t step) const {
  const Type& schedule = find_type(type);
  const auto at = static_cast<double>(step), warmup = static_cast<double>(warmup_steps);
  if (step < warmup_steps && type != "constant") {
    const double risen = at / std::max(1.0, warmup);
    return type == "warmup_stable_decay" ? above_min(*this, risen) : risen;
  }
  return schedule.after_warmup(*this, at, (at - warmup) / std::max(1.0, static_cast<double>(total_steps) - warmup));
}

}  // namespace fettle
