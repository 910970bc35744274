// Compares the CPU's attention with its definition in double precision, for each instruction set of this machine.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <set>
#include <string>

#include "base/arrays/host_array.h"
#include "block_tasks.h"
#include "environment.h"
#include "kernels/cpu/attention/attention.h"
#include "kernels/cpu/attention/attention_blocks.h"

namespace fettle::cpu {
namespace {

struct Setting {
  std::string name;
  int64_t rows, length, heads, key_heads, width;
  bool causal = true;
  int64_t window = 0;
  float softcap = 0;
  bool slopes = false;
  std::vector<int32_t> documents = {1};  // segment ids of documents of equal length
};

struct Array {
  HostArray bytes;
  std::vector<double> values;  // the values of the bytes
};

Array random_array(DType dtype, Dims dims, uint32_t seed, float width) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0, width);
  Array out{HostArray(Shape{dtype, std::move(dims)}), {}};
  for (int64_t i = 0; i < out.bytes.shape().elements(); ++i) {
    store_float(out.bytes.data(), dtype, i, normal(generator));
    out.values.push_back(load_float(out.bytes.data(), dtype, i));
  }
  return out;
}

std::vector<double> values_of(const HostArray& array) {
  std::vector<double> out;
  for (int64_t i = 0; i < array.shape().elements(); ++i)
    out.push_back(load_float(array.data(), array.shape().dtype, i));
  return out;
}

struct Inputs {
  Setting setting;
  DType dtype;
  Array q, k, v, d_o;
  std::vector<int32_t> segments;
  std::vector<float> slopes;

  Inputs(const Setting& s, DType type)
      : setting(s),
        dtype(type),
        q(random_array(type, {s.rows, s.length, s.heads, s.width}, 1, 2)),
        k(random_array(type, {s.rows, s.length, s.key_heads, s.width}, 2, 1)),
        v(random_array(type, {s.rows, s.length, s.key_heads, s.width}, 3, 1)),
        d_o(random_array(type, {s.rows, s.length, s.heads, s.width}, 4, 1)) {
    const int64_t documents = static_cast<int64_t>(s.documents.size());
    for (int64_t i = 0; i < s.rows * s.length; ++i)
      segments.push_back(s.documents[i % s.length * documents / s.length]);
    for (int64_t n = 0; n < s.heads; ++n) slopes.push_back(0.1F * static_cast<float>(n + 1));
  }

  AttentionProblem problem() const {
    return {.rows = setting.rows,
            .length = setting.length,
            .keys = setting.length,
            .heads = setting.heads,
            .key_heads = setting.key_heads,
            .width = setting.width,
            .dtype = dtype,
            .causal = setting.causal,
            .window = setting.window,
            .scale = static_cast<float>(1 / std::sqrt(static_cast<double>(setting.width))),
            .softcap = setting.softcap,
            .slopes = setting.slopes ? slopes.data() : nullptr,
            .segments = segments.data(),
            .q = q.bytes.data(),
            .k = k.bytes.data(),
            .v = v.bytes.data()};
  }
};

struct Results {
  std::vector<double> o, log_sum, dq, dk, dv;
};

// Computes attention directly from its definition, forward and backward.
Results definition(const Inputs& in) {
  const Setting& s = in.setting;
  const double scale = in.problem().scale;
  Results out;
  out.o.resize(in.q.values.size());
  out.dq.resize(in.q.values.size());
  out.dk.resize(in.k.values.size());
  out.dv.resize(in.k.values.size());
  for (int64_t b = 0; b < s.rows; ++b)
    for (int64_t n = 0; n < s.heads; ++n)
      for (int64_t i = 0; i < s.length; ++i) {
        const int64_t query = ((b * s.length + i) * s.heads + n) * s.width;
        std::vector<int64_t> seen, keys;
        std::vector<double> scores, slopes;
        double top = -std::numeric_limits<double>::infinity();
        for (int64_t j = 0; j < s.length; ++j) {
          if (in.segments[b * s.length + i] != in.segments[b * s.length + j]) continue;
          if (s.causal && (j > i || (s.window > 0 && i - j >= s.window))) continue;
          const int64_t key = ((b * s.length + j) * s.key_heads + n / (s.heads / s.key_heads)) * s.width;
          double score = 0, slope = scale;
          for (int64_t h = 0; h < s.width; ++h) score += in.q.values[query + h] * in.k.values[key + h];
          score *= scale;
          if (s.softcap > 0) {
            const double capped = std::tanh(score / s.softcap);
            score = s.softcap * capped;
            slope *= 1 - capped * capped;
          }
          if (s.slopes) score -= in.slopes[n] * static_cast<double>(i - j);
          seen.push_back(j);
          keys.push_back(key);
          scores.push_back(score);
          slopes.push_back(slope);
          top = std::max(top, score);
        }
        double sum = 0, out_dot = 0;
        for (const double score : scores) sum += std::exp(score - top);
        out.log_sum.push_back(top + std::log(sum));
        for (size_t j = 0; j < seen.size(); ++j)
          for (int64_t h = 0; h < s.width; ++h)
            out.o[query + h] += std::exp(scores[j] - top) / sum * in.v.values[keys[j] + h];
        for (int64_t h = 0; h < s.width; ++h) out_dot += out.o[query + h] * in.d_o.values[query + h];
        for (size_t j = 0; j < seen.size(); ++j) {
          const double weight = std::exp(scores[j] - top) / sum;
          double change = -out_dot;
          for (int64_t h = 0; h < s.width; ++h) {
            change += in.d_o.values[query + h] * in.v.values[keys[j] + h];
            out.dv[keys[j] + h] += weight * in.d_o.values[query + h];
          }
          change *= weight * slopes[j];
          for (int64_t h = 0; h < s.width; ++h) {
            out.dq[query + h] += change * in.k.values[keys[j] + h];
            out.dk[keys[j] + h] += change * in.q.values[query + h];
          }
        }
      }
  return out;
}

struct Computed {
  HostArray o, dq, dk, dv;
  std::vector<float> log_sum;
  Results values() const {
    return {values_of(o), {log_sum.begin(), log_sum.end()}, values_of(dq), values_of(dk), values_of(dv)};
  }
};

Computed compute(const Inputs& in, const BlockOps* ops, const ParallelFor& parallel) {
  AttentionProblem p = in.problem();
  p.ops = ops;
  Computed out{HostArray(in.q.bytes.shape()), HostArray(in.q.bytes.shape()), HostArray(in.k.bytes.shape()),
               HostArray(in.k.bytes.shape()), std::vector<float>(p.rows * p.heads * p.length)};
  // NaN shows whether the workspace is read before it is written.
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> forward(attention_workspace(p) / 4, nan), backward(attention_backward_workspace(p) / 4, nan);
  attention(p, out.o.data(), out.log_sum.data(), forward.data(), parallel);
  attention_backward(p, out.o.data(), out.log_sum.data(), in.d_o.bytes.data(), out.dq.data(), out.dk.data(),
                     out.dv.data(), backward.data(), parallel);
  return out;
}

// Returns the norm of the difference divided by the norm of the wanted values.
double distance(const std::vector<double>& got, const std::vector<double>& wanted) {
  EXPECT_EQ(got.size(), wanted.size());
  double error = 0, length = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    error += (got[i] - wanted[i]) * (got[i] - wanted[i]);
    length += wanted[i] * wanted[i];
  }
  EXPECT_GT(length, 0);
  return std::sqrt(error / length);
}

class CpuAttention : public testing::TestWithParam<Setting> {};

TEST_P(CpuAttention, EqualsItsDefinition) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const Inputs inputs(GetParam(), dtype);
    const Results wanted = definition(inputs);
    // bf16 has 8 bits of precision, so one rounding has an error of up to 2e-3. The attention weights, the output, the
    // gradients of the scores, and dq, dk and dv are each rounded once.
    const double bound = dtype == DType::kF32 ? 2e-6 : 6e-3;
    for (const BlockOps* ops : usable_block_ops(dtype)) {
      SCOPED_TRACE(fmt::format("{} {}", hf_name(dtype), ops->name));
      const Computed computed = compute(inputs, ops, on_one_thread);
      const Results got = computed.values();
      EXPECT_LT(distance(got.o, wanted.o), bound);
      EXPECT_LT(distance(got.log_sum, wanted.log_sum), 1e-6);
      EXPECT_LT(distance(got.dq, wanted.dq), bound);
      EXPECT_LT(distance(got.dk, wanted.dk), bound);
      EXPECT_LT(distance(got.dv, wanted.dv), bound);
      const Computed again = compute(inputs, ops, on_three_threads);
      for (const auto& [a, b] : {std::pair{&computed.o, &again.o}, std::pair{&computed.dq, &again.dq},
                                 std::pair{&computed.dk, &again.dk}, std::pair{&computed.dv, &again.dv}})
        EXPECT_EQ(std::memcmp(a->data(), b->data(), a->shape().bytes()), 0)
            << "the result depends on the number of threads";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Settings, CpuAttention,
    testing::Values(
        Setting{"one_block", 1, 64, 1, 1, 16}, Setting{"less_than_a_block", 2, 21, 4, 2, 8},
        Setting{"grouped", 1, 130, 3, 1, 64}, Setting{"as_135m", 1, 200, 9, 3, 64},
        Setting{.name = "window",
                .rows = 2,
                .length = 200,
                .heads = 2,
                .key_heads = 2,
                .width = 40,
                .window = 37,
                .documents = {1, 2, 3, 0}},
        Setting{.name = "window_of_two_blocks",
                .rows = 1,
                .length = 300,
                .heads = 4,
                .key_heads = 4,
                .width = 128,
                .window = 128,
                .softcap = 30},
        Setting{
            .name = "narrow_window", .rows = 1, .length = 150, .heads = 2, .key_heads = 1, .width = 32, .window = 2},
        Setting{.name = "softcap_and_slopes",
                .rows = 1,
                .length = 150,
                .heads = 2,
                .key_heads = 1,
                .width = 64,
                .softcap = 5,
                .slopes = true,
                .documents = {1, 2, 3, 4}},
        Setting{.name = "both_ways",
                .rows = 2,
                .length = 100,
                .heads = 2,
                .key_heads = 1,
                .width = 32,
                .causal = false,
                .documents = {1, 2, 3, 0}},
        Setting{.name = "segments_out_of_order",
                .rows = 1,
                .length = 257,
                .heads = 9,
                .key_heads = 3,
                .width = 64,
                .documents = {7, 1, 7, 2, 9, 1, 0, 7}}),
    [](const auto& info) { return info.param.name; });

int64_t products_of(const Setting& setting) {
  const Inputs inputs(setting, DType::kF32);
  return counted_products([&](const BlockOps& ops) {
    AttentionProblem p = inputs.problem();
    p.ops = &ops;
    HostArray o(inputs.q.bytes.shape());
    std::vector<float> log_sum(p.rows * p.heads * p.length), workspace(attention_workspace(p) / 4);
    attention(p, o.data(), log_sum.data(), workspace.data(), on_one_thread);
  });
}

// 512 positions are 8 blocks. Causal attention needs 1 + 2 + ... + 8 = 36 blocks of scores. A window of 64 positions
// needs 8 + 7, four documents need 4 * (1 + 2), and attention without a mask needs 8 * 8. Each block of scores takes
// two products.
TEST(CpuAttentionBlocks, HiddenOnesAreNotComputed) {
  const Setting causal{"causal", 1, 512, 1, 1, 16};
  EXPECT_EQ(products_of(causal), 2 * 36);
  Setting window = causal;
  window.window = 64;
  EXPECT_EQ(products_of(window), 2 * 15);
  Setting documents = causal;
  documents.documents = {1, 2, 3, 4};
  EXPECT_EQ(products_of(documents), 2 * 4 * 3);
  Setting both = causal;
  both.causal = false;
  EXPECT_EQ(products_of(both), 2 * 64);
  EXPECT_EQ(attention_flops(Inputs(causal, DType::kF32).problem()), 2 * 36 * 2 * 64 * 64 * 16);
  EXPECT_EQ(attention_flops(Inputs(window, DType::kF32).problem()), 2 * 15 * 2 * 64 * 64 * 16);
}

TEST(CpuAttentionTables, EachInstructionSetHasItsOwn) {
  const std::vector<const BlockOps*> f32 = usable_block_ops(DType::kF32), bf16 = usable_block_ops(DType::kBF16);
  EXPECT_EQ(std::string(f32[0]->name), "portable");
  std::set<std::string> names;
  for (const BlockOps* ops : bf16) EXPECT_TRUE(names.insert(ops->name).second) << ops->name;
  for (const BlockOps* ops : f32) EXPECT_FALSE(ops->pairs) << ops->name << " would round f32";
}

#ifdef __x86_64__
// On Intel's CPUs that have AMX, products of pairs with AVX-512 are slower than products of f32.
TEST(CpuAttentionTables, SlowProductsOfPairsAreNotChosen) {
  const Environment limit("FETTLE_MAX_CPU_ISA", "avx512_bf16");
  if (std::string(usable_block_ops(DType::kBF16).back()->name) != "avx512_bf16") GTEST_SKIP() << "no AVX-512 with bf16";
  EXPECT_EQ(std::string(block_ops(DType::kF32).name), "avx512");
  const bool slow = __builtin_cpu_is("intel") && !__builtin_cpu_is("cooperlake");
  if (slow) {
    EXPECT_EQ(std::string(block_ops(DType::kBF16).name), "avx512");
  }
  if (__builtin_cpu_is("amd")) {
    EXPECT_EQ(std::string(block_ops(DType::kBF16).name), "avx512_bf16");
  }
}

// A limit keeps the tables up to the one that it names. If f32 has no table of this name, the one before it is the
// last.
TEST(CpuAttentionTables, TheLimitIsKept) {
  const std::vector<std::string> names{"portable", "avx2", "avx512", "avx512_bf16", "amx_bf16"};
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    std::vector<std::string> here;
    for (const BlockOps* ops : usable_block_ops(dtype)) here.emplace_back(ops->name);
    for (size_t i = 0; i < names.size(); ++i) {
      const Environment limit("FETTLE_MAX_CPU_ISA", names[i].c_str());
      std::vector<std::string> wanted;
      for (size_t j = 0; j <= i; ++j)
        if (std::ranges::find(here, names[j]) != here.end()) wanted.push_back(names[j]);
      std::vector<std::string> got;
      for (const BlockOps* ops : usable_block_ops(dtype)) got.emplace_back(ops->name);
      EXPECT_EQ(got, wanted) << names[i] << ' ' << stablehlo_name(dtype);
    }
  }
}
#endif

}  // namespace
}  // namespace fettle::cpu
