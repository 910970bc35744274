// Compares the next token's logits and greedy continuations with those that Transformers recorded (tests/reference).
#include <gtest/gtest.h>

#include "checkpoint/safetensors.h"
#include "correct/generate_models.h"
#include "families.h"
#include "generate/batch_decoder.h"
#include "generate/decode.h"
#include "temp_folder.h"

namespace fettle {
namespace {

class Decode : public testing::TestWithParam<std::string> {};

void expect_greedy_ids(const std::string& family, bool tuned) {
  Loaded model(reference_recipe(family, tuned));
  Generator generator(model.devices, model.run, model.state);
  const nlohmann::json reference = reference_of(family);
  for (const nlohmann::json& prompt : reference["greedy"]) {
    const std::vector<int32_t> wanted = prompt[tuned ? "tuned" : "base"]["ids"];
    EXPECT_EQ(continue_greedily(generator, prompt["prompt"], static_cast<int64_t>(wanted.size())), wanted)
        << prompt["text"];
  }
}

TEST_P(Decode, GreedyIdsAreThoseOfTransformers) {
  expect_greedy_ids(GetParam(), false);
}
TEST_P(Decode, GreedyIdsOfTheAdapterAreThoseOfPeft) {
  expect_greedy_ids(GetParam(), true);
}

TEST_P(Decode, LogitsAfterEachTokenAreThoseOfTransformers) {
  Loaded model(reference_recipe(GetParam()));
  Generator generator(model.devices, model.run, model.state);
  const std::vector<int32_t> ids = reference_of(GetParam())["sequences"]["40"];
  const SafetensorsFile recorded = SafetensorsFile::open(kReferenceModels / GetParam() / "logits.safetensors");
  const HostArray wanted = recorded.read(*recorded.find("logits_40"));
  const int64_t vocab = wanted.shape().dims[1];
  // Decodes a prompt of 19 tokens in one piece, then 12 single tokens, then 9 tokens at once.
  std::vector<size_t> lengths{19};
  for (size_t length = 20; length <= 31; ++length) lengths.push_back(length);
  lengths.push_back(40);
  const int64_t turn = model.run.model.config.rope_turn();
  int64_t before = 0;
  for (const size_t length : lengths) {
    const bool turns = turn > 0 && (before > turn) != (static_cast<int64_t>(length) > turn);
    EXPECT_EQ(generator.known(std::span(ids).first(length)), turns ? 0 : before) << length;
    before = static_cast<int64_t>(length);
    const std::vector<float> got = generator.logits(std::span(ids).first(length));
    // With longrope, a short text has other logits than the beginning of a long text.
    if (before <= turn) continue;
    EXPECT_LT(largest_difference(got, wanted.as<float>().subspan((length - 1) * vocab, vocab)), 1e-4) << length;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, Decode, testing::ValuesIn(kFamilies), [](const auto& info) { return info.param; });

TEST(DecodeState, NoAdapterIsMadeWhenNoneIsGiven) {
  Recipe recipe = reference_recipe("llama");
  recipe.finetuning_type = "lora";
  const Loaded model(recipe);
  EXPECT_FALSE(model.run.adapter.lora);
  EXPECT_TRUE(model.run.trained.empty());
}

TEST(DecodeState, CapacityGrowsInStepsUpToTheModelsPositions) {
  Loaded model(reference_recipe("llama2"));
  Generator generator(model.devices, model.run, model.state);
  const std::vector<int32_t> ids(128, 7);
  EXPECT_EQ(generator.capacity(), 0);
  generator.logits(std::span(ids).first(3));
  EXPECT_EQ(generator.capacity(), 64);
  generator.clear();
  generator.logits(std::span(ids).first(64));
  EXPECT_EQ(generator.capacity(), 64);
  generator.logits(std::span(ids).first(65));
  EXPECT_EQ(generator.capacity(), 128);
  generator.logits(ids);
  EXPECT_EQ(generator.capacity(), 128);
  generator.clear();
  EXPECT_EQ(generator.known(ids), 0);
  generator.reserve(1000);
  generator.logits(std::span(ids).first(3));
  EXPECT_EQ(generator.capacity(), 128);
}

// All rows of a batch have the capacity of its largest row.
TEST(DecodeState, ALongSequenceLeavesNoLargeCacheToShortOnes) {
  const TempFolder folder;
  std::filesystem::copy(kReferenceModels / "llama", folder / "model");
  auto config = nlohmann::json::parse(std::ifstream(folder / "model/config.json"));
  config["max_position_embeddings"] = 1024;
  std::ofstream(folder / "model/config.json") << config;
  Recipe recipe = reference_recipe("llama");
  recipe.model_name_or_path = (folder / "model").string();
  Loaded model(recipe);
  const std::vector<int32_t> ids(600, 7);
  Generator generator(model.devices, model.run, model.state);
  const std::vector<float> wanted = generator.logits(std::span(ids).first(40));
  generator.logits(ids);
  EXPECT_EQ(generator.capacity(), 1024);
  generator.logits(std::span(ids).first(200));
  EXPECT_EQ(generator.capacity(), 1024) << "the sequence reuses the tokens in the cache";
  EXPECT_EQ(generator.known(std::span(ids).first(40)), 0);
  EXPECT_LT(largest_difference(generator.logits(std::span(ids).first(40)), wanted), 1e-5);
  EXPECT_EQ(generator.capacity(), 64);

  BatchDecoder decoder(model.devices, model.run, model.state, 2);
  decoder.join(0, ids, 600);
  EXPECT_EQ(decoder.capacity(), 1024);
  decoder.shrink(600);
  EXPECT_EQ(decoder.capacity(), 1024);
  decoder.shrink(40);
  EXPECT_LT(largest_difference(decoder.join(0, std::span(ids).first(40), 40), wanted), 1e-5);
  EXPECT_EQ(decoder.capacity(), 64);
}

}  // namespace
}  // namespace fettle
