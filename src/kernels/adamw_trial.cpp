// Trials of the composite "optimizer_update" for AdamW: with and without clipping, and a step that changes nothing.
#include <cmath>

#include "base/arrays/trial_numbers.h"
#include "graph/ops.h"
#include "kernels/trial.h"
#include "optim/update.h"

namespace fettle {
namespace {

constexpr double kDecay = 0.1, kRateFactor = 0.5, kRate = 0.01, kDivisor = 7, kFactor = 0.25;
constexpr int64_t kStep = 3;

Trial adamw_trial(const MeshAxes& mesh, bool clipped, bool finite) {
  Trial out{.title = std::string("an update of AdamW") + (clipped ? "" : " without clipping") +
                     (finite ? "" : " with a gradient that is not finite"),
            .bound = 1e-5};
  const Shape shape{DType::kF32, {mesh.size(), 83, 7}};
  std::vector<std::string> axes;
  for (const auto& [name, size] : mesh.axes) axes.push_back(name);
  const Partition by_row{{axes}};
  for (uint32_t i = 0; i < 4; ++i) out.inputs.push_back({trial_numbers(shape, i + 1), by_row});
  for (int64_t i = 0; i < shape.elements(); ++i) {
    float& v = out.inputs[3].value.as<float>()[i];
    v = std::abs(v);
  }
  const Optimizer optimizer = make_optimizer({});
  const OptimWeight weight{.shape = shape, .axes = {}, .weight_decay = kDecay, .rate = kRateFactor};
  const std::map<std::string, double> scalars = optimizer.scalars(kStep, kRate);
  out.build = [=](const std::vector<Tensor>& in) -> std::vector<Tensor> {
    auto scalar = [](double x) { return constant(x, DType::kF32); };
    WholeUpdate update{.weight = in[0],
                       .grad = in[1],
                       .state = {in[2], in[3]},
                       .divisor = scalar(kDivisor),
                       .factor = clipped ? scalar(kFactor) : Tensor{},
                       .finite = compare(scalar(0), finite ? Direction::kEQ : Direction::kNE, scalar(0)),
                       .scalars = {},
                       .partition = by_row,
                       .of_state = {by_row, by_row}};
    for (const auto& [name, value] : scalars) update.scalars[name] = scalar(value);
    const Updated next = updated(optimizer, weight, update);
    return {next.weight, next.state[0], next.state[1]};
  };
  const std::vector<double> w = doubles(out.inputs[0].value), g = doubles(out.inputs[1].value),
                            m = doubles(out.inputs[2].value), v = doubles(out.inputs[3].value);
  out.wanted = {w, m, v};
  for (size_t i = 0; finite && i < w.size(); ++i) {
    const double mean = g[i] / kDivisor * (clipped ? kFactor : 1), beta1 = optimizer.options.beta1,
                 beta2 = optimizer.options.beta2, rate = kRate * kRateFactor;
    const double first = m[i] * beta1 + mean * (1 - beta1), second = v[i] * beta2 + mean * mean * (1 - beta2);
    const double root = std::sqrt(second / (1 - std::pow(beta2, kStep))) + optimizer.options.epsilon;
    out.wanted[0][i] = w[i] * (1 - rate * kDecay) - rate / (1 - std::pow(beta1, kStep)) * first / root;
    out.wanted[1][i] = first;
    out.wanted[2][i] = second;
  }
  return out;
}

}  // namespace

std::vector<Trial> adamw_trials(const MeshAxes& mesh, bool /*every_width*/) {
  std::vector<Trial> out;
  out.push_back(adamw_trial(mesh, false, false));
  out.push_back(adamw_trial(mesh, true, true));
  return out;
}

}  // namespace fettle
