#include "optim/adafactor.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "graph/ops.h"
#include "optim/update.h"

namespace fettle {
namespace {

std::vector<OptimState> adafactor_state(const OptimWeight& weight, const OptimOptions& options) {
  const Shape whole = weight.shape.with_dtype(DType::kF32);
  std::vector<OptimState> state{{"v", whole, weight.axes}};
  if (weight.is_matrix()) {
    // Returns a state array without the dims [first, end) of the weight.
    auto means = [&](const char* name, int64_t first, int64_t end) {
      OptimState out{name, whole, weight.axes};
      out.shape.dims.erase(out.shape.dims.begin() + first, out.shape.dims.begin() + end);
      out.axes.erase(out.axes.begin() + first, out.axes.begin() + end);
      return out;
    };
    state = {means("row", weight.first_column(), whole.rank()), means("column", weight.stacked, weight.first_column())};
  }
  if (options.number("beta1") > 0) state.push_back({"m", whole, weight.axes});
  return state;
}

std::map<std::string, double> adafactor_scalars(const OptimOptions& options, int64_t step, double rate) {
  const auto t = static_cast<double>(step);
  if (options.flag("relative_step")) rate = std::min(options.flag("warmup_init") ? 1e-6 * t : 1e-2, 1 / std::sqrt(t));
  return {{"learning_rate", rate}, {"beta2", 1 - std::pow(t, options.number("decay_rate"))}};
}

// Returns the means over the dims [first, end), which remain with size 1.
Tensor mean(const Tensor& x, int64_t first, int64_t end) {
  Dims dims, kept = x.dims();
  double count = 1;
  for (int64_t d = first; d < end; ++d) {
    dims.push_back(d);
    count *= static_cast<double>(x.dim(d));
    kept[d] = 1;
  }
  return reshape(reduce_sum(x, dims) / count, kept);
}

Tensor root_mean_square(const Tensor& x, const OptimWeight& weight) {
  return sqrt(mean(x * x, weight.stacked, x.rank()));
}

Updated adafactor_update(const OptimWeight& weight, const OptimOptions& options, const UpdateInputs& in) {
  const Tensor beta2 = in.scalars.at("beta2");
  const Tensor square = in.grad * in.grad + options.number("eps1");
  auto averaged = [&](const Tensor& old, const Tensor& now) { return old * beta2 + now * (1.0 - beta2); };
  Updated out;
  Tensor step;
  if (weight.is_matrix()) {
    const int64_t first = weight.stacked, middle = weight.first_column();
    const Tensor of_row = mean(square, middle, in.grad.rank()), of_column = mean(square, first, middle);
    const Tensor row = averaged(in.state[0], reshape(of_row, in.state[0].dims()));
    const Tensor column = averaged(in.state[1], reshape(of_column, in.state[1].dims()));
    const Tensor relative = rsqrt(row / mean(row, first, middle));
    step = reshape(relative, of_row.dims()) * reshape(rsqrt(column), of_column.dims()) * in.grad;
    out.state = {row, column};
  } else {
    out.state = {averaged(in.state[0], square)};
    step = rsqrt(out.state[0]) * in.grad;
  }
  const Tensor clip =
      maximum(root_mean_square(step, weight) / options.number("clip_threshold"), constant(1, DType::kF32));
  Tensor rate = rate_of(weight, in);
  if (options.flag("scale_parameter"))
    rate = maximum(root_mean_square(in.weight, weight), constant(options.number("eps2"), DType::kF32)) * rate;
  step = step / clip * rate;
  if (const double beta1 = options.number("beta1"); beta1 > 0)
    out.state.push_back(step = in.state.back() * beta1 + step * (1 - beta1));
  out.weight = weight.weight_decay == 0 ? in.weight : in.weight - in.weight * (rate * weight.weight_decay);
  out.weight = out.weight - step;
  return out;
}

void check_adafactor(const OptimOptions& options, const OptimSpec& spec) {
  const std::string where = spec.places.of("optim_args");
  if (options.flag("warmup_init") && !options.flag("relative_step"))
    throw UserError("{}: optim_args: warmup_init needs relative_step=true", where);
  if (options.flag("relative_step") && spec.places.has("learning_rate"))
    throw UserError("{}: optim_args: relative_step=true computes the learning rate itself; remove learning_rate ({})",
                    where, spec.places.of("learning_rate"));
}

}  // namespace

UpdateRule adafactor_rule() {
  return {"adafactor",
          {{"scale_parameter", "false", {"true", "false"}},
           {"relative_step", "false", {"true", "false"}},
           {"warmup_init", "false", {"true", "false"}},
           {"clip_threshold", "1.0", {}, kAboveZero},
           {"decay_rate", "-0.8", {}, {.least = -1, .most = 0}},
           {"beta1", "0", {}, kShare},
           {"eps1", "1e-30", {}, kAboveZero},
           {"eps2", "1e-3", {}, {.least = 0}}},
          adafactor_state,
          adafactor_scalars,
          adafactor_update,
          check_adafactor};
}

}  // namespace fettle
