// Trials of the composite "cached_attention": pieces of prompts whose first query is not the first key, and the next
// tokens of several rows.
#include <fmt/format.h>

#include <cmath>

#include "base/arrays/trial_numbers.h"
#include "graph/ops.h"
#include "kernels/trial.h"
#include "models/blocks/attention.h"

namespace fettle {
namespace {

// The sizes and options of a trial. The queries of row r are at the positions first_of(r), first_of(r) + 1, ... of the
// keys.
struct CachedSetting {
  DType dtype = DType::kF32;
  double bound = 1e-4;
  int64_t rows = 1, length = 70, keys = 320, first = 91, width = 16;
  int64_t window = 0, chunk = 0;  // 0: none
  double softcap = 0;
  bool slopes = false;

  int64_t first_of(int64_t row) const { return first + 70 * row; }
};

constexpr int64_t kQueryHeads = 4, kCacheHeads = 2;
constexpr int64_t kLayers = 3, kLayer = 1;  // the trial reads one layer of the cache
// The size of the numbers in keys and values after the last query. They must not change a result.
constexpr float kGarbage = 1e4F;

double scale_of(const CachedSetting& s) {
  return 1 / std::sqrt(static_cast<double>(s.width));
}

bool sees(const CachedSetting& s, int64_t query, int64_t key) {
  return key <= query && (s.window == 0 || query - key < s.window) &&
         (s.chunk == 0 || query / s.chunk == key / s.chunk);
}

// Computes attention directly from its definition: a softmax over the keys that a query sees.
std::vector<double> define_cached(const std::vector<TrialInput>& inputs, const CachedSetting& s) {
  const std::vector<double> q = doubles(inputs[0].value), k = doubles(inputs[1].value), v = doubles(inputs[2].value);
  const std::vector<double> slopes = alibi_slopes(kQueryHeads);
  std::vector<double> out(q.size());
  for (int64_t i = 0; i < s.rows * s.length * kQueryHeads; ++i) {
    const int64_t row = i / kQueryHeads / s.length, head = i % kQueryHeads;
    const int64_t position = s.first_of(row) + i / kQueryHeads % s.length;
    double sum = 0;
    for (int64_t key = 0; key < s.keys; ++key) {
      if (!sees(s, position, key)) continue;
      const int64_t key_head = head / (kQueryHeads / kCacheHeads);
      const int64_t at = (((kLayer * s.rows + row) * s.keys + key) * kCacheHeads + key_head) * s.width;
      double score = 0;
      for (int64_t h = 0; h < s.width; ++h) score += scale_of(s) * q[i * s.width + h] * k[at + h];
      if (s.softcap > 0) score = s.softcap * std::tanh(score / s.softcap);
      if (s.slopes) score -= slopes[head] * static_cast<double>(position - key);
      sum += std::exp(score);
      for (int64_t h = 0; h < s.width; ++h) out[i * s.width + h] += std::exp(score) * v[at + h];
    }
    for (int64_t h = 0; h < s.width; ++h) out[i * s.width + h] /= sum;
  }
  return out;
}

Trial cached_trial(const MeshAxes& mesh, const CachedSetting& s) {
  std::string title = s.length == 1 ? "attention of the next token in " : "attention to a cache in ";
  title += stablehlo_name(s.dtype);
  if (s.window > 0) title += " with a window";
  Trial out{.title = title, .bound = s.bound};
  const Dims cache{kLayers, s.rows, s.keys, kCacheHeads, s.width};
  out.inputs.push_back({trial_numbers({s.dtype, {s.rows, s.length, kQueryHeads, s.width}}, 1), {}});
  for (const uint32_t seed : {2U, 3U}) {
    HostArray array = trial_numbers({s.dtype, cache}, seed);
    for (int64_t row = kLayer * s.rows; row < (kLayer + 1) * s.rows; ++row)
      for (int64_t key = s.first_of(row % s.rows) + s.length; key < s.keys; ++key)
        for (int64_t i = 0; i < kCacheHeads * s.width; ++i)
          store_float(array.data(), s.dtype, (row * s.keys + key) * kCacheHeads * s.width + i,
                      i % 2 == 0 ? kGarbage : -kGarbage);
    out.inputs.push_back({std::move(array), {}});
  }
  std::vector<int32_t> filled;
  for (int64_t row = 0; row < s.rows; ++row) filled.push_back(static_cast<int32_t>(s.first_of(row)));
  out.inputs.push_back({HostArray::from<int32_t>({DType::kI32, {s.rows}}, filled), {}});
  out.build = [mesh, s](const std::vector<Tensor>& in) -> std::vector<Tensor> {
    const ModelConfig config;
    const Weights none;
    const ShardingRules rules = ShardingRules(mesh).for_one_row();
    Forward f{.config = config, .weights = none, .sharding = rules};
    f.cache = Cache{.filled = in[3]};
    AttentionOptions options{.scale = scale_of(s), .softcap = s.softcap};
    if (s.slopes) options.slopes = alibi_slopes(kQueryHeads);
    if (s.window > 0) options.window = constant(static_cast<double>(s.window), DType::kI32);
    if (s.chunk > 0) options.chunk = constant(static_cast<double>(s.chunk), DType::kI32);
    // The cache already has the keys and values of the queries.
    const Tensor layer = constant(static_cast<double>(kLayer), DType::kI32);
    LayerCache layer_cache({{"keys", {in[1], layer}}, {"values", {in[2], layer}}});
    return {convert(attention(f, in[0], {}, {}, options, &layer_cache), DType::kF32)};
  };
  out.wanted = {define_cached(out.inputs, s)};
  return out;
}

}  // namespace

std::vector<Trial> cached_attention_trials(const MeshAxes& mesh, bool) {
  const CachedSetting settings[] = {
      {.window = 75, .softcap = 3},
      {.dtype = DType::kF32, .chunk = 50, .slopes = true},
      {.dtype = DType::kBF16, .bound = 2e-2, .width = 64},
      {.rows = 2, .length = 1, .window = 75, .softcap = 3},
      {.rows = 3, .length = 1, .chunk = 50, .slopes = true},
      {.dtype = DType::kBF16, .bound = 2e-2, .rows = 2, .length = 1, .width = 64},
  };
  std::vector<Trial> out;
  for (const CachedSetting& setting : settings) out.push_back(cached_trial(mesh, setting));
  return out;
}

}  // namespace fettle
