// Tests that attention in blocks of queries equals attention over all queries at once, forward and backward, with
// random inputs, windows, documents and padding.
#include <gtest/gtest.h>

#include "graph/autodiff/grad.h"
#include "graph/ops.h"
#include "graph_run.h"
#include "models/blocks/attention.h"

namespace fettle {
namespace {

using Tensors = std::vector<Tensor>;

struct Setting {
  std::string name;
  int64_t length, block, query_heads, key_heads, window;
  bool causal = true;
};

Value any(Dims dims, uint32_t seed) {
  return random_value({DType::kF32, std::move(dims)}, seed);
}

// Returns two rows of segment ids: one row has three documents and padding, the other a single document.
Value segments_of(int64_t t) {
  Value out{{DType::kI32, {2, t}}, {}};
  for (int64_t i = 0; i < t; ++i) out.elements.push_back(i < t / 4 ? 1 : i < t / 2 + 1 ? 2 : i < t - 3 ? 3 : 0);
  for (int64_t i = 0; i < t; ++i) out.elements.push_back(1);
  return out;
}

// Computes attention by its definition in double: a softmax over the keys that a query may see.
std::vector<double> reference(const Setting& s, const Value& q, const Value& k, const Value& v, const Value& segments,
                              double scale) {
  const int64_t h = 4, group = s.query_heads / s.key_heads;
  std::vector<double> out;
  for (int64_t b = 0; b < 2; ++b)
    for (int64_t t = 0; t < s.length; ++t)
      for (int64_t n = 0; n < s.query_heads; ++n) {
        std::vector<double> mixed(h, 0);
        double total = 0;
        for (int64_t u = 0; u < (s.causal ? t + 1 : s.length); ++u) {
          if (segments.elements[b * s.length + u] != segments.elements[b * s.length + t]) continue;
          if (s.window > 0 && std::abs(t - u) >= s.window) continue;
          double score = 0;
          const int64_t key = ((b * s.length + u) * s.key_heads + n / group) * h;
          for (int64_t i = 0; i < h; ++i)
            score += q.elements[((b * s.length + t) * s.query_heads + n) * h + i] * k.elements[key + i];
          const double weight = std::exp(score * scale);
          total += weight;
          for (int64_t i = 0; i < h; ++i) mixed[i] += weight * v.elements[key + i];
        }
        for (double x : mixed) out.push_back(x / total);
      }
  return out;
}

class Blockwise : public testing::TestWithParam<Setting> {};

TEST_P(Blockwise, EqualsAttentionAtOnce) {
  const Setting& s = GetParam();
  const Value q = any({2, s.length, s.query_heads, 4}, 1), k = any({2, s.length, s.key_heads, 4}, 2);
  const Value v = any({2, s.length, s.key_heads, 4}, 3), weights = any({2, s.length, s.query_heads, 4}, 4);
  const Value segments = segments_of(s.length);
  const double scale = 0.9;
  const ModelConfig config;
  const Weights none;
  const ShardingRules rules{MeshAxes{}};
  GraphRun run;
  const Tensors inputs{run.input(q), run.input(k), run.input(v)};
  const Tensor documents = run.input(segments), weight = run.input(weights);
  for (const auto& [name, block] : {std::pair<std::string, int64_t>{"once", 512}, {"blocks", s.block}}) {
    Forward f{.config = config, .weights = none, .sharding = rules, .attention_block = block};
    f.segments = documents;
    AttentionOptions options{.scale = scale, .causal = s.causal};
    if (s.window > 0) options.window = constant(static_cast<double>(s.window), DType::kI32);
    const Tensor out = attention(f, inputs[0], inputs[1], inputs[2], options, nullptr);
    const Tensors grads = grad(reduce_sum(out * weight, {0, 1, 2, 3}), inputs);
    run.output(name + "/out", out);
    for (size_t i = 0; i < 3; ++i) run.output(name + "/grad" + std::to_string(i), grads[i]);
  }
  const std::map<std::string, Value> got = run.run();
  for (const char* part : {"/out", "/grad0", "/grad1", "/grad2"})
    for (size_t e = 0; e < got.at(std::string("once") + part).elements.size(); ++e)
      ASSERT_NEAR(got.at(std::string("blocks") + part).elements[e], got.at(std::string("once") + part).elements[e],
                  2e-6)
          << part << ' ' << e;
  const std::vector<double> wanted = reference(s, q, k, v, segments, scale);
  for (size_t e = 0; e < wanted.size(); ++e) ASSERT_NEAR(got.at("once/out").elements[e], wanted[e], 2e-6) << e;
}

// In blocks of 8, 40 positions (5 blocks) are computed in one group of blocks, 48 positions (6 blocks) in two groups,
// and 32 positions (4 blocks) in four groups. With 21 and 37 positions, the last block is partial.
INSTANTIATE_TEST_SUITE_P(Settings, Blockwise,
                         testing::Values(Setting{"grouped", 40, 8, 4, 2, 0}, Setting{"plain", 32, 8, 2, 2, 0},
                                         Setting{"window", 48, 8, 4, 2, 7}, Setting{"wide_window", 32, 4, 4, 1, 20},
                                         Setting{"window_of_one", 32, 8, 2, 1, 1}, Setting{"rest", 21, 8, 4, 2, 0},
                                         Setting{"rest_of_four_groups", 37, 8, 4, 2, 0},
                                         Setting{"rest_and_window", 21, 8, 2, 2, 5},
                                         Setting{"both_ways", 40, 8, 4, 2, 0, false},
                                         Setting{"both_ways_and_window", 32, 8, 2, 2, 5, false},
                                         Setting{"both_ways_rest_and_window", 37, 8, 2, 2, 7, false}),
                         [](const auto& info) { return info.param.name; });

// Rows of a prompt and its branches. Many blocks of queries equal one block, and each branch equals the row of its
// prompt and the branch alone. 8 parts of 2 blocks, 3 blocks that are left, and 5 positions.
TEST(AttentionToPrompts, EqualsRowsOfTheirOwn) {
  const int64_t block = 8, t = 8 * 2 * block + 3 * block + 5, prompt = 61, branch = 24;
  const Value q = any({1, t, 4, 4}, 1), k = any({1, t, 2, 4}, 2), v = any({1, t, 2, 4}, 3);
  std::vector<double> segments, prompts, positions;
  for (int64_t i = 0; i < t; ++i) {
    const int64_t number = i < prompt ? 0 : 1 + (i - prompt) / branch;
    segments.push_back(static_cast<double>(number + 1));
    prompts.push_back(1);
    positions.push_back(static_cast<double>(i < prompt ? i : prompt + (i - prompt) % branch));
  }
  const ModelConfig config{.attention_chunk = 20};
  const Weights none;
  const ShardingRules rules{MeshAxes{}};
  GraphRun run;
  const Tensors in{run.input(q), run.input(k), run.input(v)};
  const Tensor number = run.input(i32({1, t}, segments)), of_prompt = run.input(i32({1, t}, prompts)),
               position = run.input(i32({1, t}, positions));
  for (const std::string kind : {"plain", "window", "chunk", "slopes"}) {
    AttentionOptions options{.scale = 0.9};
    if (kind == "window") options.window = constant(19, DType::kI32);
    if (kind == "chunk") options.chunk = constant(20, DType::kI32);
    if (kind == "slopes") options.slopes = alibi_slopes(4);
    for (const auto& [name, size] : {std::pair<std::string, int64_t>{"once", 512}, {"blocks", block}}) {
      Forward f{.config = config, .weights = none, .sharding = rules, .attention_block = size};
      f.segments = number, f.prompts = of_prompt, f.positions = position;
      run.output(kind + "/" + name, attention(f, in[0], in[1], in[2], options, nullptr));
    }
    for (int64_t start = prompt; start < t; start += branch) {
      const int64_t end = std::min(start + branch, t), length = prompt + end - start;
      const auto alone = [&](const Tensor& x) {
        return concatenate({slice(x, 1, 0, prompt), slice(x, 1, start, end)}, 1);
      };
      Forward f{.config = config, .weights = none, .sharding = rules, .attention_block = 512};
      f.segments = full(1, {DType::kI32, {1, length}});
      f.positions = expand(iota({DType::kI32, {length}}, 0), 0);
      const Tensor out = attention(f, alone(in[0]), alone(in[1]), alone(in[2]), options, nullptr);
      run.output(kind + "/" + std::to_string(start), slice(out, 1, prompt, length));
    }
  }
  const std::map<std::string, Value> got = run.run();
  for (const std::string kind : {"plain", "window", "chunk", "slopes"}) {
    const std::vector<double>& once = got.at(kind + "/once").elements;
    for (size_t e = 0; e < once.size(); ++e)
      ASSERT_NEAR(got.at(kind + "/blocks").elements[e], once[e], 2e-6) << kind << ' ' << e;
    for (int64_t start = prompt; start < t; start += branch) {
      const std::vector<double>& alone = got.at(kind + "/" + std::to_string(start)).elements;
      for (size_t e = 0; e < alone.size(); ++e)
        ASSERT_NEAR(once[static_cast<size_t>(start) * 16 + e], alone[e], 2e-6) << kind << ' ' << start << ' ' << e;
    }
  }
}

// Returns the number of elements of the largest array in a program's text.
int64_t largest_array(const std::string& text) {
  int64_t largest = 0;
  for (size_t at = text.find("tensor<"); at != std::string::npos; at = text.find("tensor<", at + 1)) {
    int64_t elements = 1;
    for (const char* next = text.c_str() + at + 7; std::isdigit(*next) != 0;) {
      char* end;
      elements *= std::strtoll(next, &end, 10);
      next = *end == 'x' ? end + 1 : end;
    }
    largest = std::max(largest, elements);
  }
  return largest;
}

// For any length, the largest array has the scores of the two heads for one whole block of queries (2 * block * seen),
// or for the last, partial block (2 * rest * length).
TEST(BlockwiseMemory, NoWholeScoresWhateverTheLength) {
  const ModelConfig config;
  const Weights none;
  const ShardingRules rules{MeshAxes{}};
  for (const bool causal : {true, false})
    for (const auto& [length, block] :
         {std::pair<int64_t, int64_t>{2000, 200}, {2100, 200}, {1999, 200}, {10000, 512}}) {
      Program program;
      BuildScope scope(program.block());
      auto input = [&, t = length](const char* name, int64_t heads) {
        return program.input(name, {DType::kF32, {1, t, heads, 4}});
      };
      const Tensors inputs{input("q", 2), input("k", 1), input("v", 1)};
      Forward f{.config = config, .weights = none, .sharding = rules, .attention_block = block};
      f.segments = program.input("segments", {DType::kI32, {1, length}});
      const Tensor out = attention(f, inputs[0], inputs[1], inputs[2], {.causal = causal}, nullptr);
      const Tensors grads = grad(reduce_sum(out, {0, 1, 2, 3}), inputs);
      for (size_t i = 0; i < grads.size(); ++i) program.output(std::to_string(i), grads[i]);
      // With a causal mask, the queries of whole blocks do not see the keys of the partial block.
      const int64_t rest = length % block, seen = causal ? length - rest : length;
      EXPECT_EQ(largest_array(program.text()), 2 * std::max(block * seen, rest * length))
          << length << (causal ? " causal" : " both ways");
    }
}

}  // namespace
}  // namespace fettle
