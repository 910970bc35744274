// Trials of the composite "linear": with odd sizes, plain and transposed weights, forward and backward.
#include "base/arrays/trial_numbers.h"
#include "graph/autodiff/grad.h"
#include "graph/ops.h"
#include "kernels/trial.h"
#include "models/blocks/layers.h"

namespace fettle {
namespace {

constexpr int64_t kPositions = 70, kIn = 51, kOut = 83;

// Computes y = x w^T, dx = dy w and dw = dy^T x; with a transposed weight y = x w, dx = dy w^T, dw = x^T dy.
std::vector<std::vector<double>> define_linear(const std::vector<TrialInput>& inputs, bool transposed) {
  const std::vector<double> x = doubles(inputs[0].value), w = doubles(inputs[1].value), dy = doubles(inputs[2].value);
  std::vector<double> y(dy.size()), dx(x.size()), dw(w.size());
  const int64_t rows = static_cast<int64_t>(x.size()) / kIn;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t o = 0; o < kOut; ++o)
      for (int64_t i = 0; i < kIn; ++i) {
        const int64_t at = transposed ? i * kOut + o : o * kIn + i;
        y[r * kOut + o] += x[r * kIn + i] * w[at];
        dx[r * kIn + i] += dy[r * kOut + o] * w[at];
        dw[at] += dy[r * kOut + o] * x[r * kIn + i];
      }
  return {y, dx, dw};
}

Trial linear_trial(const MeshAxes& mesh, DType dtype, bool transposed, double bound) {
  const int64_t rows = mesh.size();
  std::vector<std::string> axes;
  for (const auto& [name, size] : mesh.axes) axes.push_back(name);
  const Partition by_row{{axes}};
  Trial out{.title = "linear in " + std::string(stablehlo_name(dtype)), .bound = bound};
  out.inputs.push_back({trial_numbers({dtype, {rows, kPositions, kIn}}, 1), by_row});
  out.inputs.push_back({trial_numbers({dtype, transposed ? Dims{kIn, kOut} : Dims{kOut, kIn}}, 2), {}});
  out.inputs.push_back({trial_numbers({DType::kF32, {rows, kPositions, kOut}}, 3), by_row});
  out.build = [mesh, transposed](const std::vector<Tensor>& in) -> std::vector<Tensor> {
    const ShardingRules rules(mesh);
    const Tensor y = convert(product(&rules, in[0], in[1], {.transposed = transposed}), DType::kF32);
    std::vector<Tensor> results{y};
    for (const Tensor& gradient : grad(reduce_sum(y * in[2], {0, 1, 2}), {in[0], in[1]}))
      results.push_back(convert(gradient, DType::kF32));
    return results;
  };
  out.wanted = define_linear(out.inputs, transposed);
  return out;
}

}  // namespace

std::vector<Trial> linear_trials(const MeshAxes& mesh) {
  std::vector<Trial> out;
  out.push_back(linear_trial(mesh, DType::kF32, false, 1e-4));
  out.push_back(linear_trial(mesh, DType::kBF16, false, 2e-2));
  out.push_back(linear_trial(mesh, DType::kF32, true, 1e-4));
  return out;
}

}  // namespace fettle
