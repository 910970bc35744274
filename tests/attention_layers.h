// Defines run_layers, which runs three attention layers. A kernel or the body of the composite computes the attention.
#pragma once

#include <cmath>

#include "graph/autodiff/grad.h"
#include "graph/composite.h"
#include "graph/ops.h"
#include "graph/prune.h"
#include "graph_run.h"
#include "kernel_runs.h"
#include "models/blocks/attention.h"

namespace fettle {

struct AttentionSetting {
  std::string name;
  int64_t rows = 2, length = 40, heads = 4, key_heads = 2, width = 8;
  int64_t window = 0;
  bool window_of_layer = false;  // each layer has a different window
  double softcap = 0;
  bool causal = true, slopes = false;
  MeshAxes mesh = {};
  int64_t calls = 3;  // calls of the forward kernel in one run under Remat::kNone: one per layer
};

inline constexpr int64_t kLayers = 3;
inline constexpr double kScale = 0.85;  // the scores are multiplied by kScale / sqrt(width)

inline Value segments_of(int64_t rows, int64_t t) {
  Value out{{DType::kI32, {rows, t}}, {}};
  for (int64_t b = 0; b < rows; ++b)
    for (int64_t i = 0; i < t; ++i)
      out.elements.push_back(b % 2 == 1 ? 1 : i < t / 4 ? 1 : i < t / 2 + 1 ? 2 : i < t - 3 ? 3 : 0);
  return out;
}

// Runs kLayers layers. Each multiplies its input by its matrix in w, which gives queries, keys and values, and attends.
// Returns the last layer's output as "last". Returns the gradients of a weighted sum of this output with respect to the
// input and to w, as "x" and "w".
inline Ran run_layers(const AttentionSetting& s, DType dtype, Remat remat, const ChooseKernel& choose) {
  GraphRun run(s.mesh, choose);
  const ShardingRules rules{s.mesh};
  const ModelConfig config;
  const Weights none;
  const Partition rows = rules.partition({"batch", "length", "", ""}, {s.rows, s.length, 1, 1}, "x");
  // The elements of x and of its products with w are about 1, so layers do not magnify differences.
  auto any = [&](DType type, Dims dims, uint32_t seed, double size) {
    return random_value({type, std::move(dims)}, seed, -size, size);
  };
  const Dims dims{s.rows, s.length, s.heads, s.width};
  const Tensor x = run.input(any(dtype, dims, 1, 1.7), rows), weights = run.input(any(DType::kF32, dims, 3, 1), rows);
  const Tensor w =
      run.input(any(dtype, {kLayers, s.width, 3 * s.width}, 2, std::sqrt(3.0 / static_cast<double>(s.width))));
  const Tensor segments = run.input(segments_of(s.rows, s.length), {{rows.dims[0], rows.dims[1]}});
  const Tensor widths = run.input(i32({kLayers}, {7, 1 << 30, 20}));
  const ScanStep out =
      scan(kLayers, {x}, {w, widths},
           [&](const Tensor&, const std::vector<Tensor>& carries, const std::vector<Tensor>& xs) -> ScanStep {
             const Tensor parts =
                 dot_general(carries[0], xs[0], {.lhs_contracting = {3}, .rhs_contracting = {0}});  // [B, T, N, 3 H]
             auto part = [&](int64_t i, int64_t heads, const char* axis) {
               return rules.constrain(slice(slice(parts, 3, i * s.width, (i + 1) * s.width), 2, 0, heads),
                                      {"batch", "length", axis, ""});
             };
             Forward f{.config = config, .weights = none, .sharding = rules, .attention_block = 16};
             f.segments = segments;
             AttentionOptions options{
                 .scale = kScale / std::sqrt(static_cast<double>(s.width)), .softcap = s.softcap, .causal = s.causal};
             if (s.slopes) options.slopes = alibi_slopes(s.heads);
             if (s.window_of_layer)
               options.window = xs[1];
             else if (s.window > 0)
               options.window = constant(static_cast<double>(s.window), DType::kI32);
             const Tensor mixed = attention(f, part(0, s.heads, "act_heads"), part(1, s.key_heads, "act_kv_heads"),
                                            part(2, s.key_heads, "act_kv_heads"), options, nullptr);
             return {{carries[0] * 0.5 + mixed}, {}};
           },
           {.remat = remat});
  const Tensor last = convert(out.carries[0], DType::kF32);
  const Tensor loss = reduce_sum(last * weights, {0, 1, 2, 3});
  const std::vector<Tensor> grads = grad(loss, {x, w});
  run.output("last", last);
  run.output("x", grads[0]);
  run.output("w", grads[1]);
  Ran ran{run.run(), run.program().kernels()};
  return ran;
}

}  // namespace fettle
