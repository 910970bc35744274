#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "config/recipe.h"
#include "data_fixtures.h"
#include "run/labels.h"
#include "stages/stages.h"

namespace fettle {
namespace {

using nlohmann::json;

struct LabelKeys : ::testing::Test {
  TempFolder folder;
  Recipe recipe;

  LabelKeys() {
    recipe.stage = "cls";
    recipe.dataset = {folder
                          .write("a.jsonl", R"({"text": "a", "label": 0}
{"text": "a", "label": 1}
)")
                          .string()};
  }
  void expect(const std::string& part, const json& config = json::object()) {
    try {
      settled_labels(recipe, cls_stage(), {}, config, "config.json");
      ADD_FAILURE() << "no error; wanted: " << part;
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  }
};

TEST_F(LabelKeys, ContradictEachOther) {
  recipe.id2label = {"x", "x"};
  expect("id2label has 'x' twice");
  recipe.id2label = {"x", "y"};
  recipe.num_labels = 3;
  expect("num_labels is 3, but id2label names 2");
}

TEST_F(LabelKeys, AreRefusedForEncoders) {
  recipe.template_name = "llama3";
  expect("describes an encoder, which reads plain texts", {{"model_type", "bert"}, {"max_position_embeddings", 8}});
}

TEST_F(LabelKeys, MustMatchTheModelsLabels) {
  const json taught = {{"architectures", {"BertForSequenceClassification"}}, {"id2label", {{"0", "x"}, {"1", "y"}}}};
  recipe.num_labels = 5;
  recipe.places.set("num_labels", "recipe.yaml:3");
  expect("recipe.yaml:3: num_labels asks for 5 labels, but config.json describes a classifier with 2", taught);
  // A model that is trained from scratch has no trained head.
  recipe.train_from_scratch = true;
  EXPECT_EQ(settled_labels(recipe, cls_stage(), {}, taught, "config.json")->size(), 5);
}

}  // namespace
}  // namespace fettle
