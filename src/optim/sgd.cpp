#include "optim/sgd.h"

#include "base/error.h"
#include "graph/ops.h"
#include "optim/update.h"

namespace fettle {
namespace {

std::vector<OptimState> sgd_state(const OptimWeight& weight, const OptimOptions& options) {
  if (options.number("momentum") == 0) return {};
  return {{"momentum", weight.shape.with_dtype(DType::kF32), weight.axes}};
}

// Returns the scalars of a step. Dampening does not apply to the first gradient.
std::map<std::string, double> sgd_scalars(const OptimOptions& options, int64_t step, double rate) {
  return {{"learning_rate", rate}, {"gradient_share", step == 1 ? 1 : 1 - options.number("dampening")}};
}

Updated sgd_update(const OptimWeight& weight, const OptimOptions& options, const UpdateInputs& in) {
  const double momentum = options.number("momentum");
  Tensor direction = weight.weight_decay == 0 ? in.grad : in.grad + in.weight * weight.weight_decay;
  Updated out;
  if (momentum != 0) {
    const Tensor sum = in.state[0] * momentum + direction * in.scalars.at("gradient_share");
    direction = options.flag("nesterov") ? direction + sum * momentum : sum;
    out.state.push_back(sum);
  }
  out.weight = in.weight - rate_of(weight, in) * direction;
  return out;
}

void check_sgd(const OptimOptions& options, const OptimSpec& spec) {
  if (options.flag("nesterov") && (options.number("momentum") <= 0 || options.number("dampening") != 0))
    throw UserError("{}: optim_args: nesterov=true needs momentum above 0 and dampening=0",
                    spec.places.of("optim_args"));
}

}  // namespace

UpdateRule sgd_rule() {
  return {"sgd",
          {{"momentum", "0", {}, kShare},
           {"dampening", "0", {}, {.least = 0, .most = 1}},
           {"nesterov", "false", {"true", "false"}}},
          sgd_state,
          sgd_scalars,
          sgd_update,
          check_sgd};
}

}  // namespace fettle
