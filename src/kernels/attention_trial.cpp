// Trials of the composite "attention": documents with padding, grouped heads, a window; forward and backward.
#include <cmath>

#include "base/arrays/trial_numbers.h"
#include "graph/autodiff/grad.h"
#include "graph/ops.h"
#include "kernels/trial.h"
#include "models/blocks/attention.h"

namespace fettle {
namespace {

constexpr int64_t kLength = 70, kHeads = 4, kKeyHeads = 2, kWidth = 16;
constexpr double kScale = 0.25;

// Computes attention and its gradients directly from the definition: a softmax over the keys that a query sees. Returns
// o, dq, dk, dv.
std::vector<std::vector<double>> define(const std::vector<TrialInput>& inputs, int64_t window) {
  const std::vector<double> q = doubles(inputs[0].value), k = doubles(inputs[1].value), v = doubles(inputs[2].value);
  const std::vector<double> d_o = doubles(inputs[3].value);
  const int32_t* segments = inputs[4].value.as<int32_t>().data();
  std::vector<double> o(q.size()), dq(q.size()), dk(k.size()), dv(k.size());
  auto dot = [](const double* x, const double* y) {
    double sum = 0;
    for (int64_t h = 0; h < kWidth; ++h) sum += x[h] * y[h];
    return sum;
  };
  auto add = [](double factor, const double* x, double* to) {
    for (int64_t h = 0; h < kWidth; ++h) to[h] += factor * x[h];
  };
  const int64_t rows = inputs[0].value.shape().dims[0];
  for (int64_t i = 0; i < rows * kLength * kHeads; ++i) {
    const int64_t position = i / kHeads, t = position % kLength, query = i * kWidth;
    const int64_t key_head = i % kHeads / (kHeads / kKeyHeads);
    std::vector<int64_t> keys;
    std::vector<double> weights;
    double sum = 0;
    for (int64_t s = 0; s <= t; ++s) {
      const int64_t key = (position - t + s) * kKeyHeads + key_head;
      if (segments[position - t + s] != segments[position] || (window > 0 && t - s >= window)) continue;
      keys.push_back(key * kWidth);
      weights.push_back(std::exp(kScale * dot(&q[query], &k[keys.back()])));
      sum += weights.back();
    }
    for (size_t s = 0; s < keys.size(); ++s) add(weights[s] /= sum, &v[keys[s]], &o[query]);
    const double mean = dot(&o[query], &d_o[query]);
    for (size_t s = 0; s < keys.size(); ++s) {
      const double change = kScale * weights[s] * (dot(&d_o[query], &v[keys[s]]) - mean);
      add(weights[s], &d_o[query], &dv[keys[s]]);
      add(change, &q[query], &dk[keys[s]]);
      add(change, &k[keys[s]], &dq[query]);
    }
  }
  return {o, dq, dk, dv};
}

Trial attention_trial(const MeshAxes& mesh, DType dtype, int64_t window, double bound) {
  const int64_t rows = mesh.size();
  std::vector<std::string> axes;
  for (const auto& [name, size] : mesh.axes) axes.push_back(name);
  const Partition by_row{{axes}};
  HostArray segments(Shape{DType::kI32, {rows, kLength}});
  for (int64_t i = 0; i < rows * kLength; ++i) {
    const int64_t t = i % kLength;
    segments.as<int32_t>()[i] = t < 20 ? 1 : t < kLength - 5 ? 2 : 0;
  }
  const Dims queries{rows, kLength, kHeads, kWidth}, keys{rows, kLength, kKeyHeads, kWidth};
  Trial out{.title = "attention in " + std::string(stablehlo_name(dtype)), .bound = bound};
  out.inputs.push_back({trial_numbers({dtype, queries}, 1), by_row});
  out.inputs.push_back({trial_numbers({dtype, keys}, 2), by_row});
  out.inputs.push_back({trial_numbers({dtype, keys}, 3), by_row});
  out.inputs.push_back({trial_numbers({DType::kF32, queries}, 4), by_row});
  out.inputs.push_back({std::move(segments), by_row});
  out.build = [mesh, window](const std::vector<Tensor>& in) -> std::vector<Tensor> {
    const ModelConfig config;
    const Weights none;
    const ShardingRules rules(mesh);
    Forward f{.config = config, .weights = none, .sharding = rules};
    f.segments = in[4];
    AttentionOptions options{.scale = kScale};
    if (window > 0) options.window = constant(static_cast<double>(window), DType::kI32);
    const Tensor o = convert(attention(f, in[0], in[1], in[2], options, nullptr), DType::kF32);
    std::vector<Tensor> results{o};
    for (const Tensor& gradient : grad(reduce_sum(o * in[3], {0, 1, 2, 3}), {in[0], in[1], in[2]}))
      results.push_back(convert(gradient, DType::kF32));
    return results;
  };
  out.wanted = define(out.inputs, window);
  return out;
}

}  // namespace

std::vector<Trial> attention_trials(const MeshAxes& mesh) {
  std::vector<Trial> out;
  out.push_back(attention_trial(mesh, DType::kF32, 0, 1e-4));
  out.push_back(attention_trial(mesh, DType::kBF16, 30, 2e-2));
  return out;
}

}  // namespace fettle
