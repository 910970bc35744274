// Trials of the composites "linear" and "lora": with odd sizes, plain and transposed weights, forward and backward.
#include <fmt/format.h>

#include "base/arrays/trial_numbers.h"
#include "graph/autodiff/grad.h"
#include "graph/ops.h"
#include "kernels/trial.h"
#include "models/blocks/layers.h"

namespace fettle {
namespace {

// Products take three ways (matrix_product.h): few rows; a short side, as with LoRA's matrices; three long sides, as
// kPositions, kIn and kOut have.
constexpr int64_t kPositions = 70, kFewPositions = 3, kIn = 67, kOut = 83, kRank = 5;
constexpr double kScale = 2;

// Computes y = x * w^T, dx = dy * w and dw = dy^T * x. With a transposed weight, computes y = x * w, dx = dy * w^T and
// dw = x^T * dy.
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

Trial linear_trial(const MeshAxes& mesh, DType dtype, bool transposed, double bound, int64_t positions = kPositions) {
  const int64_t rows = mesh.size();
  std::vector<std::string> axes;
  for (const auto& [name, size] : mesh.axes) axes.push_back(name);
  const Partition by_row{{axes}};
  Trial out{.title = fmt::format("linear of {} positions in {}", positions, stablehlo_name(dtype)), .bound = bound};
  out.inputs.push_back({trial_numbers({dtype, {rows, positions, kIn}}, 1), by_row});
  out.inputs.push_back({trial_numbers({dtype, transposed ? Dims{kIn, kOut} : Dims{kOut, kIn}}, 2), {}});
  out.inputs.push_back({trial_numbers({DType::kF32, {rows, positions, kOut}}, 3), by_row});
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

// Sums over all rows, without a gradient.
Trial row_products_trial(const MeshAxes& mesh, DType dtype, double bound) {
  Trial out = linear_trial(mesh, dtype, false, bound);
  out.title = fmt::format("sums over {} positions in {}", kPositions, stablehlo_name(dtype));
  out.inputs[1] = {trial_numbers({dtype, {mesh.size(), kPositions, kOut}}, 2), out.inputs[0].partition};
  out.inputs.pop_back();
  out.build = [](const std::vector<Tensor>& in) -> std::vector<Tensor> { return {row_products(in[0], in[1])}; };
  const std::vector<double> left = doubles(out.inputs[0].value), right = doubles(out.inputs[1].value);
  std::vector<double> sums(kIn * kOut);
  for (size_t r = 0; r < left.size() / kIn; ++r)
    for (int64_t i = 0; i < kIn; ++i)
      for (int64_t o = 0; o < kOut; ++o) sums[i * kOut + o] += left[r * kIn + i] * right[r * kOut + o];
  out.wanted = {sums};
  return out;
}

// Calls define_linear, then adds the low-rank part, scale * x * a^T * b^T, to y, and the gradient of this part to dx.
// Returns y, dx, da and db, but not dw.
std::vector<std::vector<double>> define_lora(const std::vector<TrialInput>& inputs, bool transposed) {
  std::vector<std::vector<double>> out = define_linear(inputs, transposed);
  out.pop_back();
  const std::vector<double> x = doubles(inputs[0].value), dy = doubles(inputs[2].value), a = doubles(inputs[3].value),
                            b = doubles(inputs[4].value);
  std::vector<double> da(a.size()), db(b.size());
  const int64_t rows = static_cast<int64_t>(x.size()) / kIn;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t k = 0; k < kRank; ++k) {
      double low = 0, d_low = 0;
      for (int64_t i = 0; i < kIn; ++i) low += kScale * x[r * kIn + i] * a[k * kIn + i];
      for (int64_t o = 0; o < kOut; ++o) d_low += kScale * dy[r * kOut + o] * b[o * kRank + k];
      for (int64_t o = 0; o < kOut; ++o) {
        out[0][r * kOut + o] += low * b[o * kRank + k];
        db[o * kRank + k] += dy[r * kOut + o] * low;
      }
      for (int64_t i = 0; i < kIn; ++i) {
        out[1][r * kIn + i] += d_low * a[k * kIn + i];
        da[k * kIn + i] += d_low * x[r * kIn + i];
      }
    }
  out.push_back(da);
  out.push_back(db);
  return out;
}

Trial lora_trial(const MeshAxes& mesh, DType dtype, DType adapter, bool transposed, double bound) {
  Trial out = linear_trial(mesh, dtype, transposed, bound);
  out.title = "linear with LoRA in " + std::string(stablehlo_name(dtype));
  out.inputs.push_back({trial_numbers({adapter, {kRank, kIn}}, 4), {}});
  out.inputs.push_back({trial_numbers({adapter, {kOut, kRank}}, 5), {}});
  out.build = [mesh, transposed](const std::vector<Tensor>& in) -> std::vector<Tensor> {
    const LowRank low{in[3], in[4], kScale};
    const Tensor y =
        convert(lora_product(ShardingRules(mesh), in[0], in[1], low, {.transposed = transposed}), DType::kF32);
    std::vector<Tensor> results{y};
    for (const Tensor& gradient : grad(reduce_sum(y * in[2], {0, 1, 2}), {in[0], in[3], in[4]}))
      results.push_back(convert(gradient, DType::kF32));
    return results;
  };
  out.wanted = define_lora(out.inputs, transposed);
  return out;
}

}  // namespace

std::vector<Trial> lora_trials(const MeshAxes& mesh, bool /*every_width*/) {
  std::vector<Trial> out;
  out.push_back(lora_trial(mesh, DType::kBF16, DType::kF32, false, 2e-2));
  out.push_back(lora_trial(mesh, DType::kF32, DType::kF32, true, 1e-4));
  return out;
}

std::vector<Trial> linear_trials(const MeshAxes& mesh, bool /*every_width*/) {
  std::vector<Trial> out;
  out.push_back(linear_trial(mesh, DType::kF32, false, 1e-4));
  out.push_back(linear_trial(mesh, DType::kBF16, false, 2e-2));
  out.push_back(linear_trial(mesh, DType::kF32, false, 1e-4, kFewPositions));
  out.push_back(linear_trial(mesh, DType::kBF16, false, 2e-2, kFewPositions));
  if (mesh.size() == 1) {
    out.push_back(row_products_trial(mesh, DType::kF32, 1e-4));
    out.push_back(row_products_trial(mesh, DType::kBF16, 2e-2));
  }
  out.push_back(linear_trial(mesh, DType::kF32, true, 1e-4));
  return out;
}

}  // namespace fettle
