// Tests that sequences that are decoded together get the same tokens as each sequence alone, no matter when sequences
// join and leave.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "correct/generate_models.h"
#include "generate/batch_decoder.h"
#include "generate/reply.h"

namespace fettle {
namespace {

constexpr double kBound = 5e-5;  // absolute; f32 sums are added in another order, and the largest logits are about 10

// Returns `length` token ids. Different values of `start` give different ids.
std::vector<int32_t> sequence(int32_t start, int64_t length) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < length; ++i) ids.push_back(static_cast<int32_t>((start + 7 * i + i * i % 5) % 250));
  return ids;
}

// Decodes given tokens in a batch, and compares the logits with those of a Generator.
struct Fed {
  Loaded& model;
  BatchDecoder batch;
  std::map<int64_t, std::vector<int32_t>> rows;  // tokens so far

  Fed(Loaded& model, int64_t count) : model(model), batch(model.devices, model.run, model.state, count) {}

  void compare(int64_t row, const std::vector<float>& got) {
    Generator alone(model.devices, model.run, model.state);
    EXPECT_LT(largest_difference(got, alone.logits(rows.at(row))), kBound)
        << "row " << row << " of " << rows.at(row).size() << " tokens";
  }
  void join(int64_t row, std::vector<int32_t> ids) {
    rows[row] = std::move(ids);
    compare(row, batch.join(row, rows[row], static_cast<int64_t>(rows[row].size()) + 2));
  }
  void step() {
    std::vector<std::pair<int64_t, int32_t>> next;
    for (auto& [row, ids] : rows) {
      ids.push_back(static_cast<int32_t>((ids.back() * 3 + row) % 250));
      next.emplace_back(row, ids.back());
    }
    const std::vector<std::vector<float>> got = batch.step(next);
    for (size_t i = 0; i < next.size(); ++i) compare(next[i].first, got[i]);
  }
};

class Batch : public testing::TestWithParam<const char*> {};

TEST_P(Batch, RowsThatComeAndGoEqualSequencesAlone) {
  Loaded model(reference_recipe(GetParam()));
  Fed fed(model, 3);
  fed.join(2, sequence(3, 17));
  fed.step();
  fed.join(0, sequence(90, 40));  // joins while row 2 is being decoded
  fed.step();
  fed.rows.erase(2);  // row 2 leaves
  fed.join(1, sequence(90, 30));
  fed.step();
  fed.join(2, sequence(11, 62));  // the cache has 64 positions
  for (int i = 0; i < 4; ++i) fed.step();
}

INSTANTIATE_TEST_SUITE_P(Families, Batch,
                         testing::Values("llama", "mistral", "qwen3", "gpt2", "gemma2", "gpt_oss", "qwen3_5_text",
                                         "llama4", "lfm2", "granite4", "falcon_h1", "nemotron_h_moe", "phi",
                                         "deepseek_v2", "gemma4_e2b", "exaone4"),
                         [](const auto& info) { return std::string(info.param); });

TEST(BatchMesh, TwoShardsOfTheHeads) {
  Recipe recipe = reference_recipe("llama");
  recipe.mesh = {{"tp", 2}};
  Loaded model(recipe);
  Fed fed(model, 2);
  fed.join(1, sequence(3, 17));
  fed.join(0, sequence(8, 5));
  for (int i = 0; i < 2; ++i) fed.step();
}

TEST(Replies, SeveralAtOnceAreThoseOfOneAfterTheOther) {
  Loaded loaded(reference_recipe("llama"));
  OpenModel model{loaded.run, std::move(loaded.state)};
  const Tokenizer tokenizer = Tokenizer::open(kReferenceModels / "llama");
  std::vector<std::vector<int32_t>> prompts;
  for (int32_t i = 0; i < 5; ++i) prompts.push_back(sequence(20 * i, 3 + 9 * i));
  prompts.push_back(sequence(1, 126));  // the model takes 128 tokens
  const auto options = [](size_t number) {
    return ReplyOptions{.max_new_tokens = number == 1 ? 1 : 4 + static_cast<int64_t>(number),
                        .sampling = {.do_sample = true, .temperature = 2, .seed = 5 + number}};
  };
  std::vector<std::vector<std::vector<int32_t>>> written;
  std::vector<ReplyEnd> ends(prompts.size());
  for (const int64_t at_once : {1, 2, 4}) {
    model.run.eval_rows_per_device = at_once;
    written.emplace_back(prompts.size());
    size_t count = 0;
    write_replies(loaded.devices, model, tokenizer, prompts, options, [&](size_t number, Reply reply) {
      ++count;
      ends[number] = reply.end;
      written.back()[number] = reply.ids;
    });
    EXPECT_EQ(count, prompts.size());
  }
  EXPECT_EQ(written[1], written[0]);
  EXPECT_EQ(written[2], written[0]);
  EXPECT_EQ(written[0][1].size(), 1u);
  EXPECT_EQ(written[0][4].size(), 8u);
  EXPECT_EQ(ends[4], ReplyEnd::kMaxNewTokens);
  EXPECT_EQ(ends[5], ReplyEnd::kMaxPositions);
}

}  // namespace
}  // namespace fettle
