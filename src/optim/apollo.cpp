#include "optim/apollo.h"

#include <cmath>
#include <numbers>

#include "graph/ops.h"
#include "graph/random.h"
#include "optim/adamw.h"
#include "optim/update.h"

namespace fettle {
namespace {

// From one step to the next, the norm of a scaled gradient may grow by at most this factor (Fira, arXiv:2410.01623).
constexpr double kMostGrowth = 1.01;
constexpr double kTiny = 1e-8;

// The indices of a weight's dims in three groups: dims of the stack, dims that stay, and dims that are projected.
struct Sides {
  std::vector<int64_t> stack, kept, projected;
};

Sides sides_of(const OptimWeight& weight, const OptimOptions& options) {
  Sides out;
  std::vector<int64_t> rows, columns;
  int64_t row_count = 1, column_count = 1;
  for (int64_t d = 0; d < weight.shape.rank(); ++d) {
    if (d < weight.stacked)
      out.stack.push_back(d);
    else if (d < weight.first_column())
      rows.push_back(d), row_count *= weight.shape.dims[static_cast<size_t>(d)];
    else
      columns.push_back(d), column_count *= weight.shape.dims[static_cast<size_t>(d)];
  }
  const std::string& type = options.text("proj_type");
  const bool right = type == "std" ? row_count >= column_count : type == "right";
  out.kept = right ? rows : columns;
  out.projected = right ? columns : rows;
  return out;
}

bool is_projected(const OptimWeight& weight) {
  return weight.low_rank && weight.is_matrix();
}

std::vector<OptimState> apollo_state(const OptimWeight& weight, const OptimOptions& options) {
  if (!is_projected(weight)) return adamw_state(weight, options);
  const Sides sides = sides_of(weight, options);
  OptimState low{"m", {DType::kF32, {}}, {}}, norm{"norm", {DType::kF32, {}}, {}};
  auto add = [&](OptimState& state, const std::vector<int64_t>& dims) {
    for (int64_t d : dims) {
      state.shape.dims.push_back(weight.shape.dims[static_cast<size_t>(d)]);
      state.axes.push_back(weight.axes[static_cast<size_t>(d)]);
    }
  };
  add(low, sides.stack);
  add(low, sides.kept);
  low.shape.dims.push_back(std::llround(options.number("rank")));
  low.axes.push_back("");
  add(norm, sides.stack);
  OptimState second = low;
  second.name = "v";
  return {low, second, norm};
}

std::map<std::string, double> apollo_scalars(const OptimOptions& options, int64_t step, double rate) {
  const auto t = static_cast<double>(step);
  return {{"learning_rate", rate},
          {"correction", std::sqrt(1 - std::pow(options.beta2, t)) / (1 - std::pow(options.beta1, t))},
          {"interval", std::floor((t - 1) / options.number("update_proj_gap"))}};
}

// Returns the random matrix [rank, ..sizes] that projects dims with these sizes.
Tensor projection(const OptimWeight& weight, int64_t rank, const Dims& sizes, const Tensor& interval) {
  const Dims dims{rank, product(sizes)};
  const Tensor key = constant(weight.key, DType::kU32) + convert(interval, DType::kU32) * 2654435769.0;
  // Box and Muller's formula makes normal numbers from these uniform numbers in (0, 1), which have 24 bits.
  auto uniform = [&](const Tensor& of) {
    return (convert(shift_right(random_bits(dims, of), 8), DType::kF32) + 0.5) / 16777216.0;
  };
  const Tensor radius = sqrt(log(uniform(key)) * -2.0);
  const Tensor turn = uniform(bit_xor(key, constant(0x5bd1e995, DType::kU32))) * (2 * std::numbers::pi);
  Dims out{rank};
  out.insert(out.end(), sizes.begin(), sizes.end());
  return reshape(radius * cosine(turn) / std::sqrt(static_cast<double>(rank)), out);
}

Tensor norm_over(const Tensor& x, int64_t first) {
  Dims dims;
  for (int64_t d = first; d < x.rank(); ++d) dims.push_back(d);
  return sqrt(reduce_sum(x * x, dims));
}

// Reshapes `factors` so that they broadcast to the weight. `of` lists groups of Sides: `factors` has only the dims in
// these groups. The other dims get size 1.
Tensor factors_of(const Tensor& factors, const OptimWeight& weight, const std::vector<std::vector<int64_t>>& of) {
  Dims dims(weight.shape.dims.size(), 1);
  for (const std::vector<int64_t>& some : of)
    for (int64_t d : some) dims[static_cast<size_t>(d)] = weight.shape.dims[static_cast<size_t>(d)];
  return reshape(factors, dims);
}

Updated apollo_update(const OptimWeight& weight, const OptimOptions& options, const UpdateInputs& in) {
  const bool projected = is_projected(weight);
  const Sides sides = projected ? sides_of(weight, options) : Sides{};
  Tensor grad = in.grad;
  if (projected) {
    Dims sizes, over;
    for (int64_t d : sides.projected) {
      sizes.push_back(weight.shape.dims[static_cast<size_t>(d)]);
      over.push_back(static_cast<int64_t>(over.size()) + 1);
    }
    const Tensor matrix = projection(weight, std::llround(options.number("rank")), sizes, in.scalars.at("interval"));
    grad = dot_general(in.grad, matrix, {.lhs_contracting = sides.projected, .rhs_contracting = over}, DType::kF32);
  }
  const Tensor m = in.state[0] * options.beta1 + grad * (1 - options.beta1);
  const Tensor v = in.state[1] * options.beta2 + grad * grad * (1 - options.beta2);
  Tensor step = m / (sqrt(v) + options.epsilon);
  std::vector<Tensor> state{m, v};
  if (projected) {
    const bool by_channel = options.text("scale_type") == "channel";
    const int64_t first = weight.stacked + (by_channel ? static_cast<int64_t>(sides.kept.size()) : 0);
    const Tensor factor = norm_over(step, first) / (norm_over(grad, first) + kTiny);
    const double scale = std::sqrt(options.number("scale"));
    const bool front = options.flag("scale_front");
    step = in.grad * (by_channel ? factors_of(factor, weight, {sides.stack, sides.kept})
                                 : factors_of(factor, weight, {sides.stack}));
    if (front) step = step * scale;
    const Tensor norm = norm_over(step, weight.stacked), earlier = in.state[2];
    const Tensor growth = maximum(norm / (earlier + kTiny), constant(kMostGrowth, DType::kF32)) / kMostGrowth;
    const Tensor limit =
        select(compare(earlier, Direction::kGT, constant(0, DType::kF32)), growth, constant(1, DType::kF32));
    step = step / factors_of(limit, weight, {sides.stack});
    if (!front) step = step * scale;
    state.push_back(norm / limit);
  }
  const Tensor rate = rate_of(weight, in);
  const Tensor next = in.weight - step * (rate * in.scalars.at("correction"));
  return {weight.weight_decay == 0 ? next : next - next * (rate * weight.weight_decay), state};
}

}  // namespace

UpdateRule apollo_rule() {
  return {.name = "apollo_adamw",
          .args = {{"rank", "128", {}, {.least = 1, .whole = true}},
                   {"update_proj_gap", "200", {}, {.least = 1, .whole = true}},
                   {"scale", "1.0", {}, kAboveZero},
                   {"proj", "random", {"random"}},
                   {"proj_type", "std", {"std", "right", "left"}},
                   {"scale_type", "channel", {"channel", "tensor"}},
                   {"scale_front", "false", {"true", "false"}}},
          .state = apollo_state,
          .scalars = apollo_scalars,
          .update = apollo_update,
          .projects = true};
}

}  // namespace fettle
