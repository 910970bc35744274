// Tests that choices which share their prompt are as likely as choices that are evaluated alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "correct/eval_command.h"
#include "eval/measure.h"
#include "eval/shared_prompts.h"
#include "step/evaluate.h"

namespace fettle {
namespace {

// Returns questions whose choices begin with the same tokens: `prompt` tokens, then a choice of up to 7 tokens (or
// `choice`, if this is larger).
std::vector<std::vector<Example>> questions_with(const std::vector<int64_t>& prompts, int64_t choices,
                                                 int64_t choice = 0) {
  uint32_t state = 7;
  const auto token = [&] { return static_cast<int32_t>((state = state * 1664525u + 1013904223u) >> 24) % 50 + 3; };
  std::vector<std::vector<Example>> out;
  for (const int64_t length : prompts) {
    Example prompt{.source = "row " + std::to_string(out.size() + 1)};
    for (int64_t i = 0; i < length; ++i) prompt.input_ids.push_back(token());
    prompt.labels.assign(prompt.input_ids.size(), kIgnore);
    out.emplace_back();
    for (int64_t c = 0; c < choices; ++c) {
      out.back().push_back(prompt);
      for (int64_t i = 0; i < std::max(choice, 1 + (c * 3 + length) % 7); ++i) {
        out.back().back().input_ids.push_back(token());
        out.back().back().labels.push_back(out.back().back().input_ids.back());
      }
    }
  }
  return out;
}

// Evaluates the choices as rows of their own and as continuations of shared prompts. Expects equal losses.
void expect_equal_with_shared_prompts(const Recipe& recipe, const std::vector<std::vector<Example>>& questions) {
  Loaded loaded(recipe);
  ASSERT_TRUE(can_branch(loaded.run));
  std::vector<Example> separate;
  for (const std::vector<Example>& question : questions)
    separate.insert(separate.end(), question.begin(), question.end());
  const std::vector<double> wanted = Evaluator(loaded.devices, loaded.run, separate).losses(loaded.state);
  const std::vector<Example> rows = with_shared_prompts(questions, recipe.cutoff_len);
  ASSERT_GT(rows.size(), separate.size());
  const std::vector<double> losses =
      Evaluator(loaded.devices, loaded.run, rows, {}, RowGrouping::kBranches).losses(loaded.state);
  ASSERT_EQ(losses.size(), rows.size());
  size_t next = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].trained_tokens() == 0) {
      EXPECT_EQ(losses[i], 0) << "a prompt is not trained";
    } else {
      EXPECT_NEAR(losses[i], wanted[next], 2e-5 * wanted[next]) << next;
      ++next;
    }
  }
  EXPECT_EQ(next, wanted.size());
}

class SharedPrompts : public testing::TestWithParam<const char*> {};

// GPT-2 learns its positions. Gemma 3 has windows and Llama 4 chunks, both shorter than these rows. Baichuan 13B has
// ALiBi, GPT-OSS sinks and windows, DeepSeek-V2 latent heads and experts.
TEST_P(SharedPrompts, MakeChoicesAsLikelyAsAlone) {
  Recipe recipe = reference_recipe(GetParam());
  recipe.stage = "pt";
  recipe.cutoff_len = 64;
  if (GetParam() == std::string("llama")) recipe.mesh = {{"fsdp", 2}, {"tp", 2}};
  expect_equal_with_shared_prompts(recipe, questions_with({21, 19, 33, 17, 22, 26, 30, 24}, 4));
}

INSTANTIATE_TEST_SUITE_P(Families, SharedPrompts,
                         testing::Values("llama", "gpt2", "gemma3", "llama4", "baichuan13b", "gpt_oss", "deepseek_v2"),
                         [](const auto& info) { return std::string(info.param); });

// Two questions a step, so the last step has one question and filler. The choices of the longest question do not fit
// into one line, so it is repeated.
TEST_F(EvalCommand, SharedPromptsOfSeveralSteps) {
  std::vector<std::vector<Example>> questions = questions_with({40, 33, 52, 35, 44}, 5);
  questions[1].resize(3);
  questions[4].resize(4);
  Recipe few = reference_recipe("llama");
  few.stage = "pt";
  few.cutoff_len = 64;
  few.per_device_eval_batch_size = 2;
  expect_equal_with_shared_prompts(few, questions);
}

// Only one choice has the token whose embedding is NaN. The whole line then has no finite loss.
TEST_F(EvalCommand, AChoiceWithoutAFiniteLossIsFound) {
  constexpr int32_t kBroken = 100;
  std::vector<std::vector<Example>> questions = questions_with({40, 33}, 4, 3);
  Example& bad = questions[1][2];
  bad.input_ids[33] = bad.labels[33] = kBroken;
  bad.source = "bad";
  recipe.cutoff_len = 64;
  recipe.per_device_eval_batch_size = 2;  // both questions are in one batch
  Loaded loaded(recipe);
  DeviceBuffer& embedding = loaded.state.buffers.at("frozen/model.embed_tokens.weight");
  HostArray values = embedding.download();
  store_float(values.data(), values.shape().dtype, kBroken * values.shape().dims[1], std::nanf(""));
  embedding = replicate(loaded.devices, values);
  BatchSpec spec = loaded.run.eval_batch;
  spec.grouping = RowGrouping::kBranches;
  const Batches batches(with_shared_prompts(questions, recipe.cutoff_len), spec);
  EXPECT_THAT(rows_not_finite(loaded.devices, loaded.run, loaded.state, batches.at(0)), testing::ElementsAre("bad"));
}

// A line has more positions than a block of queries has, and a number that blocks do not divide.
TEST_F(EvalCommand, ChoicesThatShareALongPromptAreAsLikelyAsAlone) {
  Recipe long_rows = reference_recipe("llama");
  long_rows.stage = "pt";
  long_rows.cutoff_len = 640;
  expect_equal_with_shared_prompts(long_rows, questions_with({300, 290, 310}, 5, 60));
}

TEST_F(EvalCommand, PromptsAreSharedOnlyWherePossible) {
  const auto can = [](const std::string& model, const std::map<std::string, int64_t>& mesh = {}) {
    Recipe recipe = reference_recipe(model);
    recipe.stage = "pt";
    recipe.mesh = mesh;
    return can_branch(Loaded(recipe).run);
  };
  EXPECT_TRUE(can("llama"));
  EXPECT_FALSE(can("llama", {{"sp", 2}})) << "split positions";
  EXPECT_FALSE(can("falcon_h1_gated")) << "a recurrent state";
  EXPECT_FALSE(can("lfm2")) << "a convolution";
}

TEST_F(EvalCommand, SharedPromptsOfQuestions) {
  const auto row = [](std::vector<int32_t> ids, size_t prompt) {
    Example out{.input_ids = std::move(ids), .source = "row"};
    out.labels = out.input_ids;
    std::fill_n(out.labels.begin(), prompt, kIgnore);
    return out;
  };
  const auto ids = [](const std::vector<Example>& rows) {
    std::vector<std::vector<int32_t>> out;
    for (const Example& one : rows) out.push_back(one.input_ids);
    return out;
  };
  using Ids = std::vector<std::vector<int32_t>>;
  std::vector<int32_t> asked(16), prompt(15);  // 1, 2, 3, ...
  std::iota(asked.begin(), asked.end(), 1);
  std::iota(prompt.begin(), prompt.end(), 1);
  const auto choice = [&](const std::vector<int32_t>& reply) {
    std::vector<int32_t> all = asked;
    all.insert(all.end(), reply.begin(), reply.end());
    return row(all, asked.size());
  };
  const std::vector<Example> three{choice({20}), choice({21, 22}), choice({23})};
  const std::vector<Example> rows = with_shared_prompts({three}, 32);
  EXPECT_EQ(ids(rows), (Ids{prompt, {16, 20}, {16, 21, 22}, {16, 23}}));
  EXPECT_EQ(rows[0].labels, std::vector<int32_t>(15, kIgnore));
  EXPECT_EQ(rows[2].labels, (std::vector<int32_t>{kIgnore, 21, 22}));
  // The fifth choice does not fit into the line of the first four.
  std::vector<Example> seven = three;
  for (int32_t id = 24; id < 28; ++id) seven.push_back(choice({id}));
  EXPECT_EQ(ids(with_shared_prompts({seven}, 24)),
            (Ids{prompt, {16, 20}, {16, 21, 22}, {16, 23}, {16, 24}, prompt, {16, 25}, {16, 26}, {16, 27}}));
  // The choices' own tokens are not shared, even if they are equal.
  EXPECT_EQ(ids(with_shared_prompts({{choice({20, 30}), choice({20, 31}), choice({20, 32})}}, 32)),
            (Ids{prompt, {16, 20, 30}, {16, 20, 31}, {16, 20, 32}}));
  // A question that was cut differently for its choices.
  EXPECT_EQ(ids(with_shared_prompts({three, three, {row({2, 3, 4}, 2), row({3, 5, 5}, 2)}}, 32)), (Ids{prompt,
                                                                                                       {16, 20},
                                                                                                       {16, 21, 22},
                                                                                                       {16, 23},
                                                                                                       prompt,
                                                                                                       {16, 20},
                                                                                                       {16, 21, 22},
                                                                                                       {16, 23},
                                                                                                       {2},
                                                                                                       {3, 4},
                                                                                                       {3},
                                                                                                       {5, 5}}));
  EXPECT_TRUE(with_shared_prompts({{row({1, 8}, 1), row({1, 9}, 1)}}, 16).empty()) << "one token before the choice";
  EXPECT_TRUE(with_shared_prompts({{three[0], three[2]}}, 32).empty()) << "less than half would be saved";
}

}  // namespace
}  // namespace fettle
