#include "optim/schedule.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "base/error.h"

namespace fettle {
namespace {

constexpr std::array kTypes{"linear",     "cosine",       "constant",          "constant_with_warmup",
                            "polynomial", "inverse_sqrt", "cosine_with_min_lr"};

double cosine(double progress) {
  return std::max(0.0, 0.5 * (1 + std::cos(std::numbers::pi * progress)));
}

}  // namespace

void check_schedule_type(const std::string& type) {
  if (std::find(kTypes.begin(), kTypes.end(), type) == kTypes.end())
    throw UserError("lr_scheduler_type: '{}' is not implemented; use one of {}", type, fmt::join(kTypes, ", "));
}

double Schedule::multiplier(int64_t step) const {
  if (type == "constant") return 1;
  const auto s = static_cast<double>(step), warmup = static_cast<double>(warmup_steps);
  if (step < warmup_steps) return s / std::max(1.0, warmup);
  if (type == "constant_with_warmup") return 1;
  const double rest = std::max(1.0, static_cast<double>(total_steps - warmup_steps));
  const double progress = (s - warmup) / rest;
  if (type == "linear") return std::max(0.0, (static_cast<double>(total_steps) - s) / rest);
  if (type == "cosine") return cosine(progress);
  if (type == "cosine_with_min_lr") return std::max(0.0, cosine(progress) * (1 - min_rate) + min_rate);
  if (type == "inverse_sqrt") {
    const double timescale = warmup_steps > 0 ? warmup : 10000;
    return 1 / std::sqrt((s + timescale - warmup) / timescale);
  }
  // polynomial of power 1, down to 1e-7 of an absolute rate: Transformers' lr_end; relative here.
  return step > total_steps ? 0 : 1 - progress;
}

}  // namespace fettle
