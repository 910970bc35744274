#include "models/remat_policy.h"

#include <algorithm>
#include <array>

#include "base/error.h"

namespace fettle {
namespace {

constexpr std::array kPolicies{
    RematPolicy{.name = "none", .saves = Remat::kNone},
    RematPolicy{.name = "attention", .saves = Remat::kNone, .scores_again = true},
    RematPolicy{.name = "dots", .saves = Remat::kDots},
    RematPolicy{.name = "linear", .saves = Remat::kDots, .scores_again = true},
    RematPolicy{.name = "25%", .saves = Remat::kDots, .scores_again = true, .full_percent = 25},
    RematPolicy{.name = "50%", .saves = Remat::kDots, .scores_again = true, .full_percent = 50},
    RematPolicy{.name = "75%", .saves = Remat::kDots, .scores_again = true, .full_percent = 75},
    RematPolicy{.name = "full"},
};

}  // namespace

std::span<const RematPolicy> remat_policies() {
  return kPolicies;
}

const RematPolicy& remat_policy(std::string_view name) {
  const auto* found = std::ranges::find(kPolicies, name, &RematPolicy::name);
  internal_check(found != kPolicies.end(), "there is no rematerialisation policy '{}'", name);
  return *found;
}

}  // namespace fettle
