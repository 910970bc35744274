// Trials of the composite "attention": documents with padding, grouped heads, windows; forward and backward.
#include <fmt/format.h>

#include <cmath>

#include "base/arrays/trial_numbers.h"
#include "graph/autodiff/grad.h"
#include "graph/ops.h"
#include "kernels/trial.h"
#include "models/blocks/attention.h"

namespace fettle {
namespace {

// The sizes and options of a trial. Each trial has several documents, padding and grouped heads. Its inputs are q, k,
// v, d_o, segments and window.
struct Setting {
  DType dtype = DType::kF32;
  double bound = 1e-4;
  int64_t length = 70, width = 16;
  int64_t window = 0;            // 0: none
  bool window_is_input = false;  // the compiler does not know the window
  double softcap = 0;
  bool slopes = false;
};

constexpr int64_t kHeads = 4, kKeyHeads = 2;

double scale_of(const Setting& s) {
  return 1 / std::sqrt(static_cast<double>(s.width));
}

// Computes attention and its gradients directly from the definition: a softmax over the keys that a query sees. Returns
// o, dq, dk, dv.
std::vector<std::vector<double>> define(const std::vector<TrialInput>& inputs, const Setting& s) {
  const std::vector<double> q = doubles(inputs[0].value), k = doubles(inputs[1].value), v = doubles(inputs[2].value);
  const std::vector<double> d_o = doubles(inputs[3].value), slopes = alibi_slopes(kHeads);
  const int32_t* segments = inputs[4].value.as<int32_t>().data();
  std::vector<double> o(q.size()), dq(q.size()), dk(k.size()), dv(k.size());
  auto dot = [&](const double* x, const double* y) {
    double sum = 0;
    for (int64_t h = 0; h < s.width; ++h) sum += x[h] * y[h];
    return sum;
  };
  auto add = [&](double factor, const double* x, double* to) {
    for (int64_t h = 0; h < s.width; ++h) to[h] += factor * x[h];
  };
  const int64_t rows = inputs[0].value.shape().dims[0];
  for (int64_t i = 0; i < rows * s.length * kHeads; ++i) {
    const int64_t position = i / kHeads, t = position % s.length, query = i * s.width;
    const int64_t key_head = i % kHeads / (kHeads / kKeyHeads);
    std::vector<int64_t> keys;
    std::vector<double> weights, slants;  // slants: derivatives of the scores with respect to the products of q and k
    double sum = 0;
    for (int64_t place = 0; place <= t; ++place) {
      const int64_t key = (position - t + place) * kKeyHeads + key_head;
      if (segments[position - t + place] != segments[position] || (s.window > 0 && t - place >= s.window)) continue;
      keys.push_back(key * s.width);
      double score = scale_of(s) * dot(&q[query], &k[keys.back()]);
      const double capped = s.softcap > 0 ? std::tanh(score / s.softcap) : 0;
      if (s.softcap > 0) score = s.softcap * capped;
      if (s.slopes) score -= slopes[i % kHeads] * static_cast<double>(t - place);
      slants.push_back(scale_of(s) * (1 - capped * capped));
      weights.push_back(std::exp(score));
      sum += weights.back();
    }
    for (size_t n = 0; n < keys.size(); ++n) add(weights[n] /= sum, &v[keys[n]], &o[query]);
    const double mean = dot(&o[query], &d_o[query]);
    for (size_t n = 0; n < keys.size(); ++n) {
      const double change = slants[n] * weights[n] * (dot(&d_o[query], &v[keys[n]]) - mean);
      add(weights[n], &d_o[query], &dv[keys[n]]);
      add(change, &q[query], &dk[keys[n]]);
      add(change, &k[keys[n]], &dq[query]);
    }
  }
  return {o, dq, dk, dv};
}

Trial attention_trial(const MeshAxes& mesh, const Setting& s) {
  const int64_t rows = mesh.size();
  std::vector<std::string> axes;
  for (const auto& [name, size] : mesh.axes) axes.push_back(name);
  const Partition by_row{{axes}};
  HostArray segments(Shape{DType::kI32, {rows, s.length}}), window(Shape{DType::kI32, {}});
  for (int64_t i = 0; i < rows * s.length; ++i) {
    const int64_t t = i % s.length;
    segments.as<int32_t>()[i] = t < 20 ? 1 : t < s.length - 5 ? 2 : 0;
  }
  window.as<int32_t>()[0] = static_cast<int32_t>(s.window);
  const Dims queries{rows, s.length, kHeads, s.width}, keys{rows, s.length, kKeyHeads, s.width};
  std::string title = "attention in " + std::string(stablehlo_name(s.dtype));
  if (s.width != Setting{}.width) title += fmt::format(", {} wide", s.width);
  Trial out{.title = title, .bound = s.bound};
  out.inputs.push_back({trial_numbers({s.dtype, queries}, 1), by_row});
  out.inputs.push_back({trial_numbers({s.dtype, keys}, 2), by_row});
  out.inputs.push_back({trial_numbers({s.dtype, keys}, 3), by_row});
  out.inputs.push_back({trial_numbers({DType::kF32, queries}, 4), by_row});
  out.inputs.push_back({std::move(segments), by_row});
  out.inputs.push_back({std::move(window), {}});
  out.build = [mesh, s](const std::vector<Tensor>& in) -> std::vector<Tensor> {
    const ModelConfig config;
    const Weights none;
    const ShardingRules rules(mesh);
    Forward f{.config = config, .weights = none, .sharding = rules};
    f.segments = in[4];
    AttentionOptions options{.scale = scale_of(s), .softcap = s.softcap};
    if (s.slopes) options.slopes = alibi_slopes(kHeads);
    if (s.window_is_input)
      options.window = in[5];
    else if (s.window > 0)
      options.window = constant(static_cast<double>(s.window), DType::kI32);
    const Tensor o = convert(attention(f, in[0], in[1], in[2], options, nullptr), DType::kF32);
    std::vector<Tensor> results{o};
    for (const Tensor& gradient : grad(reduce_sum(o * in[3], {0, 1, 2, 3}), {in[0], in[1], in[2]}))
      results.push_back(convert(gradient, DType::kF32));
    return results;
  };
  out.wanted = define(out.inputs, s);
  return out;
}

}  // namespace

std::vector<Trial> attention_trials(const MeshAxes& mesh, bool every_width) {
  constexpr double kF16 = 3e-3, kBF16 = 2e-2;
  std::vector<Setting> settings{{.dtype = DType::kF32}, {.dtype = DType::kBF16, .bound = kBF16, .window = 30}};
  if (every_width) {
    // With 300 positions, there are blocks in which every pair is seen, blocks with masks, and blocks that are skipped.
    settings.push_back({.dtype = DType::kF16, .bound = kF16, .length = 300, .width = 64});
    settings.push_back(
        {.dtype = DType::kBF16, .bound = kBF16, .length = 300, .width = 128, .window = 150, .window_is_input = true});
    settings.push_back({.dtype = DType::kBF16, .bound = kBF16, .length = 300, .width = 256, .softcap = 2});
    settings.push_back({.dtype = DType::kF16, .bound = kF16, .length = 300, .width = 128, .slopes = true});
  }
  std::vector<Trial> out;
  for (const Setting& setting : settings) out.push_back(attention_trial(mesh, setting));
  return out;
}

}  // namespace fettle
