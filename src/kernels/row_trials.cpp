// Trials of the composites "gated", "rms_norm" and "cross_entropy": with odd widths, forward and backward.
#include <cmath>
#include <numbers>

#include "base/arrays/trial_numbers.h"
#include "graph/autodiff/grad.h"
#include "graph/ops.h"
#include "kernels/trial.h"
#include "models/blocks/layers.h"
#include "models/blocks/loss.h"

namespace fettle {
namespace {

using Tensors = std::vector<Tensor>;
using Numbers = std::vector<double>;

constexpr int64_t kRowPositions = 70;

Partition by_row(const MeshAxes& mesh) {
  std::vector<std::string> axes;
  for (const auto& [name, size] : mesh.axes) axes.push_back(name);
  return {{axes}};
}

double bound_of(DType dtype) {
  return dtype == DType::kF32 ? 1e-4 : 2e-2;
}

// Returns the results of a trial: `value` in f32, and the gradients of sum(value * weights) with respect to `of`.
Tensors with_gradients(const Tensor& value, const Tensor& weights, const Tensors& of) {
  const Tensor wide = convert(value, DType::kF32);
  Dims all;
  for (int64_t d = 0; d < wide.rank(); ++d) all.push_back(d);
  Tensors out{wide};
  for (const Tensor& gradient : grad(reduce_sum(wide * weights, all), of))
    out.push_back(convert(gradient, DType::kF32));
  return out;
}

Trial gated_trial(const MeshAxes& mesh, DType dtype, const std::string& act) {
  const Shape shape{dtype, {mesh.size(), kRowPositions, 83}};
  Trial out{.title = "a gated " + act + " in " + std::string(stablehlo_name(dtype)), .bound = bound_of(dtype)};
  for (uint32_t i = 0; i < 2; ++i) out.inputs.push_back({trial_numbers(shape, i + 1, 3), by_row(mesh)});
  out.inputs.push_back({trial_numbers(shape.with_dtype(DType::kF32), 3), by_row(mesh)});
  out.build = [mesh, act](const Tensors& in) {
    return with_gradients(gated(ShardingRules(mesh), act, in[0], in[1]), in[2], {in[0], in[1]});
  };
  const Numbers gate = doubles(out.inputs[0].value), up = doubles(out.inputs[1].value),
                d = doubles(out.inputs[2].value);
  Numbers y, d_gate, d_up;
  for (size_t i = 0; i < gate.size(); ++i) {
    const double x = gate[i];
    double value = 0, slope = 0;
    if (act == "silu") {
      const double s = 1 / (1 + std::exp(-x));
      value = x * s, slope = s + x * s * (1 - s);
    } else {
      const double scale = std::sqrt(2 / std::numbers::pi), t = std::tanh(scale * (x + 0.044715 * x * x * x));
      value = 0.5 * x * (1 + t);
      slope = 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * scale * (1 + 3 * 0.044715 * x * x);
    }
    y.push_back(value * up[i]);
    d_gate.push_back(d[i] * up[i] * slope);
    d_up.push_back(d[i] * value);
  }
  out.wanted = {y, d_gate, d_up};
  return out;
}

// `frozen`: the weight gets no gradient.
Trial rms_norm_trial(const MeshAxes& mesh, DType dtype, double offset, bool frozen) {
  constexpr int64_t kWidth = 83;
  constexpr double kEps = 1e-5;
  const Shape shape{dtype, {mesh.size(), kRowPositions, kWidth}};
  Trial out{.title = "RMSNorm in " + std::string(stablehlo_name(dtype)), .bound = bound_of(dtype)};
  out.inputs.push_back({trial_numbers(shape, 1, 3), by_row(mesh)});
  out.inputs.push_back({trial_numbers({dtype, {kWidth}}, 2), {}});
  out.inputs.push_back({trial_numbers(shape.with_dtype(DType::kF32), 3), by_row(mesh)});
  out.build = [mesh, offset, frozen](const Tensors& in) {
    const ShardingRules rules(mesh);
    const Tensors of = frozen ? Tensors{in[0]} : Tensors{in[0], in[1]};
    return with_gradients(rms_norm(in[0], in[1], kEps, offset, &rules), in[2], of);
  };
  const Numbers x = doubles(out.inputs[0].value), w = doubles(out.inputs[1].value), d = doubles(out.inputs[2].value);
  Numbers y(x.size()), dx(x.size()), dw(w.size());
  for (size_t first = 0; first < x.size(); first += kWidth) {
    double squares = 0, dots = 0;
    for (size_t i = 0; i < kWidth; ++i) {
      squares += x[first + i] * x[first + i];
      dots += d[first + i] * (w[i] + offset) * x[first + i];
    }
    const double r = 1 / std::sqrt(squares / kWidth + kEps);
    for (size_t i = 0; i < kWidth; ++i) {
      y[first + i] = x[first + i] * r * (w[i] + offset);
      dx[first + i] = r * d[first + i] * (w[i] + offset) - x[first + i] * r * r * r * dots / kWidth;
      dw[i] += d[first + i] * x[first + i] * r;
    }
  }
  out.wanted = {y, dx};
  if (!frozen) out.wanted.push_back(dw);
  return out;
}

Trial cross_entropy_trial(const MeshAxes& mesh, DType dtype) {
  constexpr int64_t kVocab = 83;
  const int64_t rows = mesh.size();
  Trial out{.title = "cross-entropy in " + std::string(stablehlo_name(dtype)), .bound = bound_of(dtype)};
  out.inputs.push_back({trial_numbers({DType::kF32, {rows, kRowPositions, kVocab}}, 1, 4), by_row(mesh)});
  HostArray targets(Shape{DType::kI32, {rows, kRowPositions}});
  auto* const target = reinterpret_cast<int32_t*>(targets.data());
  for (int64_t i = 0; i < rows * kRowPositions; ++i)
    target[i] = i % 5 == 4 ? -100 : static_cast<int32_t>(i * 7 % kVocab);
  const Numbers x = doubles(out.inputs[0].value);
  Numbers losses, hits, slope(x.size());
  out.inputs.push_back({std::move(targets), by_row(mesh)});
  out.inputs.push_back({trial_numbers({DType::kF32, {rows, kRowPositions}}, 3), by_row(mesh)});
  const auto* const wanted = reinterpret_cast<const int32_t*>(out.inputs[1].value.data());
  const Numbers weights = doubles(out.inputs[2].value);
  out.build = [mesh, dtype](const Tensors& in) -> Tensors {
    const CrossEntropy c = cross_entropy(ShardingRules(mesh), in[0], in[1], in[2], dtype);
    return {c.losses_BC, c.correct_BC, convert(c.slope_BCV, DType::kF32)};
  };
  for (int64_t r = 0; r < rows * kRowPositions; ++r) {
    const double* const row = &x[r * kVocab];
    const bool trained = wanted[r] >= 0;
    double sum = 0, top = row[0];
    for (int64_t i = 0; i < kVocab; ++i) sum += std::exp(row[i]), top = std::max(top, row[i]);
    losses.push_back(trained ? std::log(sum) - row[wanted[r]] : 0);
    hits.push_back(trained && row[wanted[r]] >= top ? 1 : 0);
    for (int64_t i = 0; trained && i < kVocab; ++i)
      slope[r * kVocab + i] = weights[r] * (std::exp(row[i]) / sum - (i == wanted[r] ? 1 : 0));
  }
  out.wanted = {losses, hits, slope};
  return out;
}

}  // namespace

std::vector<Trial> gated_trials(const MeshAxes& mesh, bool /*every_width*/) {
  std::vector<Trial> out;
  out.push_back(gated_trial(mesh, DType::kBF16, "silu"));
  out.push_back(gated_trial(mesh, DType::kF32, "gelu_pytorch_tanh"));
  return out;
}

std::vector<Trial> rms_norm_trials(const MeshAxes& mesh, bool /*every_width*/) {
  std::vector<Trial> out;
  out.push_back(rms_norm_trial(mesh, DType::kF32, 1, false));
  out.push_back(rms_norm_trial(mesh, DType::kBF16, 0, false));
  out.push_back(rms_norm_trial(mesh, DType::kBF16, 0, true));
  return out;
}

std::vector<Trial> cross_entropy_trials(const MeshAxes& mesh, bool /*every_width*/) {
  std::vector<Trial> out;
  out.push_back(cross_entropy_trial(mesh, DType::kF32));
  out.push_back(cross_entropy_trial(mesh, DType::kBF16));
  return out;
}

}  // namespace fettle
