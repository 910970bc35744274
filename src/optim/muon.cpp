#include "optim/muon.h"

#include <algorithm>
#include <cmath>

#include "graph/ops.h"
#include "optim/adamw.h"
#include "optim/update.h"

namespace fettle {
namespace {

bool is_hidden_matrix(const OptimWeight& weight) {
  return weight.stacked > 0 && weight.is_matrix();
}

std::vector<OptimState> muon_state(const OptimWeight& weight, const OptimOptions& options) {
  if (!is_hidden_matrix(weight)) return adamw_state(weight, options);
  return {{"momentum", weight.shape.with_dtype(DType::kF32), weight.axes}};
}

// Multiplies x_LAB by y_LBC, or by y_LCB when `transposed`.
Tensor matmul(const Tensor& x, const Tensor& y, bool transposed, DType result) {
  return dot_general(
      x, y, {.lhs_batching = {0}, .rhs_batching = {0}, .lhs_contracting = {2}, .rhs_contracting = {transposed ? 2 : 1}},
      result);
}

// Returns approximately U V^T for each layer's matrix U S V^T. With 5 steps, singular values that are not close to 0
// become values between about 0.7 and 1.2.
Tensor orthogonalized(const Tensor& matrix_LAB, int64_t steps, double epsilon) {
  constexpr double a = 3.4445, b = -4.7750, c = 2.0315;
  const bool tall = matrix_LAB.dim(1) > matrix_LAB.dim(2);
  auto low = [](const Tensor& x) { return convert(x, DType::kBF16); };
  auto f32 = [](const Tensor& x) { return convert(x, DType::kF32); };
  Tensor x = low(tall ? transpose(matrix_LAB, {0, 2, 1}) : matrix_LAB);
  const Tensor norm = low(sqrt(reduce_sum(f32(x) * f32(x), {1, 2})));
  x = low(f32(x) / reshape(maximum(f32(norm), constant(epsilon, DType::kF32)), {x.dim(0), 1, 1}));
  for (int64_t i = 0; i < steps; ++i) {
    const Tensor gram = matmul(x, x, true, DType::kBF16);
    const Tensor polynomial = low(f32(gram) * b + matmul(gram, gram, false, DType::kF32) * c);
    x = low(f32(x) * a + matmul(polynomial, x, false, DType::kF32));
  }
  return f32(tall ? transpose(x, {0, 2, 1}) : x);
}

Updated muon_update(const OptimWeight& weight, const OptimOptions& options, const UpdateInputs& in) {
  if (!is_hidden_matrix(weight)) return adamw_update(weight, options, in);
  const double momentum = options.number("momentum");
  const Tensor sum = in.state[0] + (in.grad - in.state[0]) * (1 - momentum);
  const Tensor direction = options.flag("nesterov") ? in.grad + (sum - in.grad) * momentum : sum;
  const Dims& dims = weight.shape.dims;
  const int64_t columns = product({dims.begin() + weight.first_column(), dims.end()});
  const int64_t rows = product(weight.own_dims()) / columns;
  const auto a = static_cast<double>(rows), b = static_cast<double>(columns);
  const double ratio =
      options.text("adjust_lr_fn") == "original" ? std::sqrt(std::max(1.0, a / b)) : 0.2 * std::sqrt(std::max(a, b));
  const Tensor matrices = reshape(direction, {product(weight.stack_dims()), rows, columns});
  const Tensor step = reshape(orthogonalized(matrices, std::llround(options.number("ns_steps")), options.number("eps")),
                              weight.shape.dims);
  return {decayed(weight, in) - step * (rate_of(weight, in) * ratio), {sum}};
}

}  // namespace

UpdateRule muon_rule() {
  return {"muon",
          {{"momentum", "0.95", {}, kShare},
           {"nesterov", "true", {"true", "false"}},
           {"ns_steps", "5", {}, {.least = 1, .most = 99, .whole = true}},  // torch has the same upper bound
           {"eps", "1e-7", {}, kAboveZero},
           {"adjust_lr_fn", "match_rms_adamw", {"match_rms_adamw", "original"}}},
          muon_state,
          adamw_scalars,
          muon_update};
}

}  // namespace fettle
