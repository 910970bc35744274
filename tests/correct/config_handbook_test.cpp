// Tests that recipes of the alignment handbook mean what they mean there.
#include <gtest/gtest.h>

#include "recipe_shape.h"

namespace fettle {
namespace {

using Texts = std::vector<std::string>;

const std::string kStart = "model_name_or_path: m\n";
const std::string kMixture =
    kStart +
    "dataset_mixture:\n  datasets:\n  - id: maker/a\n    config: default\n    split: train_sft\n"
    "    columns: [messages]\n    weight: 1.0\n";

TEST_F(RecipeShape, TheHandbooksMixturesAreEntries) {
  const Recipe recipe =
      read(kMixture + "  - id: maker/b\n    config: en\n    weight: 0.5\n  test_split_size: 1000\n  seed: 0\n");
  EXPECT_EQ(recipe.dataset, (Texts{R"({"hf_hub_url":"maker/a","split":"train_sft"})",
                                   R"({"hf_hub_url":"maker/b","subset":"en","split":"train[:50%]"})"}));
  EXPECT_EQ(recipe.val_size, 1000);
  EXPECT_EQ(recipe.finetuning_type, "full");
  EXPECT_NE(said_.find("recipe.yaml:11: weight: 0.5 takes the first rows of maker/b"), std::string::npos) << said_;
  EXPECT_NE(said_.find("read as a recipe of TRL"), std::string::npos) << said_;
  EXPECT_EQ(read(kMixture + "  test_split_size: 0.1\n", {"val_size=0"}).val_size, 0);
}

// The first releases list the splits once for all data sets. Shares are those of the trained splits.
TEST_F(RecipeShape, TheHandbooksMixersAreEntries) {
  const std::string mixer = kStart + "dataset_mixer:\n  maker/a: 1.0\n  maker/b: 0.25\n";
  const Recipe recipe = read(mixer + "dataset_splits: [train_sft, test_sft]\nevaluation_strategy: epoch\n");
  EXPECT_EQ(recipe.dataset, (Texts{R"({"hf_hub_url":"maker/a","split":"train_sft"})",
                                   R"({"hf_hub_url":"maker/b","split":"train_sft[:25%]"})"}));
  EXPECT_EQ(recipe.eval_dataset, (Texts{R"({"hf_hub_url":"maker/a","split":"test_sft"})",
                                        R"({"hf_hub_url":"maker/b","split":"test_sft"})"}));
  const Recipe least = read(mixer + "dataset_configs: [en, default]\n");
  EXPECT_EQ(least.dataset,
            (Texts{R"({"hf_hub_url":"maker/a","subset":"en"})", R"({"hf_hub_url":"maker/b","split":"train[:25%]"})"}));
  EXPECT_TRUE(least.eval_dataset.empty());
  EXPECT_EQ(read(mixer + "do_eval: true\n").eval_dataset.size(), 2u);
}

TEST_F(RecipeShape, TheCommandReplacesTheHandbooksDataSets) {
  EXPECT_EQ(read(kMixture + "  - id: maker/b\n    weight: 0.001\n", {"dataset=r.jsonl"}).dataset, Texts{"r.jsonl"});
}

TEST_F(RecipeShape, TheHandbooksDataSetsThatCannotBeReadAreRefused) {
  const std::pair<std::string, const char*> cases[] = {
      {kMixture + "  - id: b\n    weight: 0.001\n", "recipe.yaml:10: the share 0.001 of a data set is no whole number"},
      {kMixture + "  - id: b\n    weight: 2\n", "recipe.yaml:10: the share of a data set: found '2', wanted"},
      {kMixture + "  - split: b\n", "recipe.yaml:9: dataset_mixture: found a data set without `id`"},
      {kMixture + "  - id: b\n    revision: c\n", "recipe.yaml:10: dataset_mixture: 'revision' of a data set"},
      {kMixture + "  shards: 2\n", "recipe.yaml:9: dataset_mixture.shards is not available"},
      {kStart + "dataset_mixture: a\n", "wanted a map with a list `datasets`"},
      {kStart + "dataset_mixer: a\n", "wanted a map of data sets to their shares"},
      {kStart + "dataset_mixer: {a: 1}\ndataset_configs: [b, c]\n", "dataset_configs has 2 names for 1 data sets"},
      {kStart + "dataset_mixer: {a: 1}\ndataset_splits: [all]\n", "recipe.yaml:3: dataset_splits: found 'all'"}};
  for (const auto& [text, said] : cases)
    EXPECT_NE(refusal(text).find(said), std::string::npos) << text << refusal(text);
}

// SimPO's own recipes name the margin as a multiple of beta.
TEST_F(RecipeShape, SimposRecipesNameTheLoss) {
  const std::string start = kStart + "dataset: r.jsonl\ngamma_beta_ratio: 0.5\n";
  const Recipe recipe = read(start + "beta: 10\n");
  EXPECT_EQ(recipe.stage, "dpo");
  EXPECT_EQ(recipe.pref_loss, "simpo");
  EXPECT_EQ(recipe.pref_beta, 10);
  EXPECT_EQ(recipe.simpo_gamma, 5);
  EXPECT_EQ(read(start).pref_beta, 2);
  EXPECT_EQ(read(start).simpo_gamma, 1);
}

// No other tool has these keys, so keys of LLaMA-Factory beside them change nothing.
TEST_F(RecipeShape, TheHandbooksRecipesMayHaveATemplate) {
  const std::string simpo = kStart + "dataset: r.jsonl\ngamma_beta_ratio: 0.5\n";
  for (const std::string& start : {kMixture, kStart + "dataset_mixer: {maker/a: 1.0}\n", simpo}) {
    const Recipe recipe = read(start + "template: llama3\n");
    EXPECT_EQ(recipe.template_name, "llama3");
    EXPECT_EQ(recipe.finetuning_type, "full");
    EXPECT_EQ(read(start + "finetuning_type: lora\n").finetuning_type, "lora");
  }
}

// TRL's first name of bfd.
TEST_F(RecipeShape, TheHandbooksPackingKeepsRowsWhole) {
  EXPECT_TRUE(read(kMixture + "packing: true\npacking_strategy: ffd\n").packing);
}

TEST_F(RecipeShape, ATokenizerOfItsOwnBelongsIntoTheModelFolder) {
  EXPECT_NE(
      refusal(kMixture + "tokenizer_name_or_path: maker/words\n").find("put the tokenizer's files into the model"),
      std::string::npos);
}

}  // namespace
}  // namespace fettle
