#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "config/keys.h"
#include "data_fixtures.h"
#include "run/batch_spec.h"
#include "run/labels.h"
#include "run/resolve/data_spec.h"
#include "stages/stages.h"

namespace fettle {
namespace {

using nlohmann::json;

TEST(DataSpec, HoldsWhatTheRecipeSays) {
  Recipe recipe;
  recipe.stage = "dpo";
  recipe.dataset = {"a", "b"};
  recipe.eval_dataset = {"c"};
  recipe.overlength = "drop";
  recipe.on_bad_row = "skip";
  recipe.mix_strategy = "interleave_over";
  recipe.interleave_probs = {"3", "1"};
  recipe.val_size = 0.5;
  recipe.data_cache = "off";
  const DataSpec spec = data_spec(recipe, dpo_stage(), {}, 77);
  EXPECT_EQ(spec.rows, RowKind::kPreferencePairs);
  EXPECT_EQ(spec.sets, recipe.dataset);
  EXPECT_EQ(spec.eval_sets, recipe.eval_dataset);
  EXPECT_EQ(spec.overlength, Overlength::kDrop);
  EXPECT_EQ(spec.on_bad_row, OnBadRow::kSkip);
  EXPECT_EQ(spec.mix, Mix::kInterleaveOver);
  EXPECT_EQ(spec.mix_weights, (std::vector<double>{3, 1}));
  EXPECT_EQ(spec.cutoff_len, 77);
  EXPECT_EQ(spec.val_size, 0.5);
  EXPECT_EQ(spec.cache, "off");
  recipe.mix_strategy = "interleave_once";
  EXPECT_EQ(data_spec(recipe, dpo_stage(), {}, 77).mix, Mix::kInterleaveOnce);
}

TEST(DataSpec, EarlierRepliesLoseTheirThoughtsIfOnlyTheLastOneIsTrained) {
  Recipe recipe;
  for (const Stage* stage : {&dpo_stage(), &kto_stage(), &rm_stage()})
    EXPECT_TRUE(data_spec(recipe, *stage, {}, 77).thinking.drop_old);
  EXPECT_FALSE(data_spec(recipe, sft_stage(), {}, 77).thinking.drop_old);
  recipe.mask_history = true;
  EXPECT_TRUE(data_spec(recipe, sft_stage(), {}, 77).thinking.drop_old);
  recipe.preserve_thinking = true;
  EXPECT_TRUE(data_spec(recipe, dpo_stage(), {}, 77).thinking.keep_old);
}

TEST(Packing, IsOnInPretrainingUnlessTheRecipeSaysOtherwise) {
  Recipe recipe;
  auto packs = [&](const Stage& stage) {
    return batch_spec(recipe, stage, ModelConfig{}, 64, MeshAxes{}, BatchUse::kTraining).packing;
  };
  EXPECT_TRUE(packs(pt_stage()));
  EXPECT_FALSE(packs(sft_stage()));
  EXPECT_FALSE(batch_spec(recipe, pt_stage(), ModelConfig{}, 64, MeshAxes{}, BatchUse::kEvaluation).packing);
  recipe.places.set("packing", "recipe.yaml:2");
  EXPECT_FALSE(packs(pt_stage()));
  recipe.packing = true;
  EXPECT_TRUE(packs(sft_stage()));
}

TEST(EvaluationBatch, HasTwoRowsForKtoUnlessTheRecipeSaysOtherwise) {
  Recipe recipe;
  recipe.per_device_train_batch_size = 1;
  recipe.gradient_accumulation_steps = 2;
  auto rows = [&](const char* stage, const MeshAxes& mesh) {
    return batch_spec(recipe, stage_named(stage, ""), ModelConfig{}, 64, mesh, BatchUse::kEvaluation).groups_per_step();
  };
  EXPECT_EQ(rows("kto", MeshAxes{}), 2);
  EXPECT_EQ(rows("kto", make_mesh({{"dp", 2}}, 2)), 2);
  EXPECT_EQ(rows("sft", MeshAxes{}), 1);
  recipe.per_device_eval_batch_size = 1;
  EXPECT_EQ(rows("kto", MeshAxes{}), 1);
}

TEST(CutoffLen, IsAtMostAnEncodersPositionsUnlessItIsSet) {
  Recipe recipe;
  const auto length = [&](const Stage& stage, const json& fields) {
    json config = {{"vocab_size", 32},
                   {"hidden_size", 8},
                   {"intermediate_size", 8},
                   {"num_hidden_layers", 1},
                   {"num_attention_heads", 2}};
    config.update(fields);
    return cutoff_len_of(recipe, stage, config, "config.json");
  };
  const json bert = {{"model_type", "bert"}, {"max_position_embeddings", 128}};
  EXPECT_EQ(length(sft_stage(), bert), 2048);
  EXPECT_EQ(length(cls_stage(), bert), 128);
  EXPECT_EQ(length(cls_stage(), {{"model_type", "bert"}}), 512);  // Transformers' default
  EXPECT_EQ(length(cls_stage(), {{"model_type", "roberta"}, {"max_position_embeddings", 514}, {"pad_token_id", 1}}),
            512);
  EXPECT_EQ(length(cls_stage(), {{"model_type", "xlm-roberta"}, {"max_position_embeddings", 514}}), 512);
  EXPECT_EQ(length(cls_stage(), {{"model_type", "modernbert"}, {"max_position_embeddings", 256}}), 256);
  EXPECT_EQ(length(cls_stage(), {{"model_type", "llama"}, {"max_position_embeddings", 512}}), 2048);
  recipe.places.set("cutoff_len", "recipe.yaml:1");
  EXPECT_EQ(length(cls_stage(), bert), 2048);
}

TEST(Problems, HaveTheNamesOfTheKey) {
  std::vector<std::string> names;
  for (const Problem problem : {Problem::kSingleLabel, Problem::kMultiLabel, Problem::kRegression}) {
    names.emplace_back(name_of(problem));
    EXPECT_EQ(problem_named(names.back()), problem);
  }
  const auto& values = find_key("problem_type")->values;
  EXPECT_EQ(names, (std::vector<std::string>{values.begin(), values.end()}));
  EXPECT_EQ(problem_named(""), std::nullopt);
}

TEST(SettledLabels, AreReadFromTheRowsOnlyWhenTheyMustBe) {
  const TempFolder folder;
  Recipe recipe;
  recipe.stage = "cls";
  recipe.dataset = {folder
                        .write("a.jsonl", R"({"text": "a", "label": "x"}
{"text": "a", "label": "y"}
)")
                        .string()};
  const LabelSet all = *settled_labels(recipe, cls_stage(), {}, json::object(), "config.json");
  EXPECT_EQ(all.id2label, (std::vector<std::string>{"x", "y"}));
  recipe.num_labels = 2;
  EXPECT_EQ(settled_labels(recipe, cls_stage(), {}, json::object(), "config.json")->id2label, all.id2label);
  EXPECT_EQ(settled_labels(recipe, cls_stage(), {}, json::object(), "config.json", ReadLabels::kIfUnnamed)->id2label,
            default_labels(2));
  EXPECT_FALSE(settled_labels(recipe, sft_stage(), {}, json::object(), "config.json").has_value());
}

}  // namespace
}  // namespace fettle
