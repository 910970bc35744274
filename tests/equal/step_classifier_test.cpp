// Tests that a classifier's steps depend neither on the mesh nor on padding.
#include <gtest/gtest.h>

#include "class_rows.h"
#include "step/run_step.h"

namespace fettle {
namespace {

Recipe on_eight(Recipe recipe) {
  recipe.per_device_train_batch_size = 1;
  recipe.mesh = {{"fsdp", 4}, {"tp", 2}};
  return recipe;
}

class Encoder : public testing::TestWithParam<const char*> {};

TEST_P(Encoder, EightDevicesTrainAsOne) {
  std::vector<double> losses[2], norms[2];
  for (int eight : {0, 1}) {
    const Recipe recipe = class_recipe(GetParam(), kSingle, "lora");
    ClassRun run(eight == 1 ? on_eight(recipe) : recipe);
    for (int step = 0; step < 3; ++step) {
      const StepOutcome outcome = run.advance(2e-3);
      losses[eight].push_back(outcome.loss);
      norms[eight].push_back(outcome.grad_norm);
    }
  }
  expect_equal_lists(losses[1], losses[0], 1e-5, "loss");
  expect_equal_lists(norms[1], norms[0], 1e-4, "norm");
}

TEST(Classifier, EightDevicesReadTheLastToken) {
  const Recipe recipe = class_recipe("llama_classifier", kSingle, "lora");
  const Batch batch = class_batch(kSingle, 0, 1, 4);
  const Value one = ClassRun(recipe).evaluate(batch).at("logits"),
              eight = ClassRun(on_eight(recipe)).evaluate(batch).at("logits");
  for (size_t i = 0; i < one.elements.size(); ++i) EXPECT_NEAR(eight.elements[i], one.elements[i], 1e-5) << i;
}

TEST_P(Encoder, LongerRowsAndFillerChangeNothing) {
  ClassRun run(class_recipe(GetParam(), kMulti, "full"));
  const Value short_rows = run.evaluate(class_batch(kMulti, 0, 1, 4)).at("logits");
  const Value long_rows = run.evaluate(class_batch(kMulti, 0, 1, 8, 4, 56)).at("logits");
  for (size_t i = 0; i < short_rows.elements.size(); ++i)
    EXPECT_NEAR(long_rows.elements[i], short_rows.elements[i], 1e-5) << i;
}

INSTANTIATE_TEST_SUITE_P(Models, Encoder, testing::Values("bert", "modernbert", "modernbert_mean"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace fettle
