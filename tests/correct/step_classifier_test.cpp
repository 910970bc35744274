// Compares classifiers with Transformers and PEFT, and a reward model with TRL (tests/reference/classifiers.py):
// logits, and the losses and gradient norms of 20 steps.
#include <gtest/gtest.h>

#include "class_rows.h"
#include "optim/schedule.h"
#include "preference_rows.h"
#include "step/run_step.h"

namespace fettle {
namespace {

using Json = nlohmann::json;

double largest_difference(const Value& got, const Json& wanted_rows) {
  double largest = 0;
  size_t i = 0;
  for (const Json& row : wanted_rows)
    for (const Json& wanted : row) largest = std::max(largest, std::abs(got.elements.at(i++) - wanted.get<double>()));
  EXPECT_GT(i, 0u);
  return largest;
}

struct Case {
  const char *model, *problem, *type;
};

class ClassifierParity : public testing::TestWithParam<Case> {};

TEST_P(ClassifierParity, TwentySteps) {
  const auto& [model, problem, type] = GetParam();
  const Json& wanted = classifiers_json()[model][type][problem];
  ClassRun run(class_recipe(model, problem, type));
  const Schedule schedule{"cosine", 5, 20};
  const double rate = std::string(type) == "full" ? 5e-4 : 2e-3;
  std::vector<double> losses, norms;
  for (int64_t step = 0; step < 20; ++step) {
    const StepOutcome outcome = run.advance(rate * schedule.multiplier(step));
    losses.push_back(outcome.loss);
    norms.push_back(outcome.grad_norm);
  }
  expect_equal_lists(losses, wanted["loss"], 1e-4, "loss");
  expect_equal_lists(norms, wanted["grad_norm"], 1e-3, "norm");
  double largest = 0;
  for (size_t i = 0; i < losses.size(); ++i)
    largest = std::max(largest, std::abs(losses[i] / wanted["loss"][i].get<double>() - 1));
  std::printf("%s %s %s: largest relative difference of a loss %.2g\n", model, problem, type, largest);
}

std::string name_of(const testing::TestParamInfo<Case>& test) {
  return std::string(test.param.model) + "_" + test.param.problem + "_" + test.param.type;
}

std::vector<Case> every_case() {
  std::vector<Case> out;
  for (const char* model : {"bert", "roberta", "modernbert", "modernbert_mean"})
    for (const char* problem : {kSingle, kMulti, kRegression})
      for (const char* tuning : {"lora", "full"}) out.push_back({model, problem, tuning});
  out.insert(out.end(), {{"llama_classifier", kSingle, "lora"},
                         {"llama_classifier", kSingle, "full"},
                         {"llama_classifier", kMulti, "lora"},
                         {"llama_classifier", kRegression, "full"}});
  return out;
}

INSTANTIATE_TEST_SUITE_P(Transformers, ClassifierParity, testing::ValuesIn(every_case()), name_of);

class Classifier : public testing::TestWithParam<const char*> {};

TEST_P(Classifier, LogitsAndFiller) {
  ClassRun run(class_recipe(GetParam(), kSingle, "full"));
  const std::map<std::string, Value> got = run.evaluate(class_batch(kSingle, 0, 1, 8, 2));
  const double largest = largest_difference(got.at("logits"), classifiers_json()[GetParam()]["logits"]);
  EXPECT_LT(largest, 1e-4);
  std::printf("%s: largest difference of a logit %.2g\n", GetParam(), largest);
  EXPECT_EQ(got.at("tokens").elements, (std::vector<double>{1, 1, 1, 1, 1, 1, 0, 0}));
  EXPECT_EQ(got.at("loss").elements[7], 0);
}

INSTANTIATE_TEST_SUITE_P(Models, Classifier,
                         testing::Values("bert", "roberta", "modernbert", "modernbert_mean", "llama_classifier"),
                         [](const auto& test) { return std::string(test.param); });

TEST(RewardModel, TwentyStepsBesideTrl) {
  const Json& wanted = classifiers_json()["reward"];
  Recipe recipe = reference_recipe("llama");
  recipe.stage = "rm";
  recipe.gradient_accumulation_steps = 2;
  recipe.adapter_name_or_path = {(reference_model("llama") / "reward_init").string()};
  const Schedule schedule{"cosine", 5, 20};
  const TrainResult result = train(recipe, {.steps = 20,
                                            .rate_at = [&](int64_t step) { return 2e-3 * schedule.multiplier(step); },
                                            .rows = preference_pairs()});
  expect_equal_lists(result.losses, wanted["loss"], 1e-4, "loss");
  expect_equal_lists(result.norms, wanted["grad_norm"], 1e-3, "norm");
  for (const char* name : {"accuracy", "margin", "mean_reward"})
    for (size_t i = 0; i < result.losses.size(); ++i)
      EXPECT_NEAR(result.metrics.at(name).at(i), wanted[name][i].get<double>(), 1e-3) << name << ' ' << i;
  double largest = 0;
  for (size_t i = 0; i < result.losses.size(); ++i)
    largest = std::max(largest, std::abs(result.losses[i] / wanted["loss"][i].get<double>() - 1));
  std::printf("reward: largest relative difference of a loss %.2g\n", largest);
}

}  // namespace
}  // namespace fettle
