// Compares twenty steps of each preference loss with recorded steps of TRL (tests/reference/preferences.py): losses,
// gradient norms and logged metrics.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "optim/schedule.h"
#include "paths.h"
#include "preference_rows.h"
#include "resolve_run.h"
#include "stages/stages.h"
#include "temp_folder.h"

namespace fettle {
namespace {

using Json = nlohmann::json;

Json recorded(const std::string& name) {
  return Json::parse(std::ifstream(source_folder() / "tests/reference/preferences.json"))[name];
}

// Runs the recipe and the steps of the record, with the keys `more` added.
TrainResult twenty_steps(const Json& wanted, std::vector<std::string> more = {}) {
  std::vector<std::string> words{"model_name_or_path=" + reference_model("llama").string(), "plugin=cpu", "stage=dpo",
                                 "weight_decay=0.01", "max_grad_norm=0.5"};
  for (const auto& [key, value] : wanted["recipe"].items())
    words.push_back(key + "=" + (value.is_string() ? value.get<std::string>() : value.dump()));
  words.insert(words.end(), more.begin(), more.end());
  Recipe recipe = read_recipe("", words);
  const bool rated = recipe.stage == "kto";
  recipe.per_device_train_batch_size = rated ? 4 : 1;
  recipe.gradient_accumulation_steps = rated ? 1 : 2;
  if (wanted.contains("start"))
    recipe.adapter_name_or_path = {(reference_model("llama") / wanted["start"].get<std::string>()).string()};
  const Schedule schedule{"cosine", 5, 20};
  const double rate = wanted.value("learning_rate", 2e-3);
  return train(recipe, {.steps = 20,
                        .rate_at = [&](int64_t step) { return rate * schedule.multiplier(step); },
                        .rows = rated ? rated_replies() : preference_pairs()});
}

class PreferenceParity : public testing::TestWithParam<const char*> {};

TEST_P(PreferenceParity, TwentySteps) {
  const Json wanted = recorded(GetParam());
  const TrainResult result = twenty_steps(wanted);
  expect_equal_lists(result.losses, wanted["loss"], 1e-4, "loss");
  expect_equal_lists(result.norms, wanted["grad_norm"], 1e-3, "norm");
  double largest = 0;
  for (size_t i = 0; i < result.losses.size(); ++i)
    largest = std::max(largest, std::abs(result.losses[i] / wanted["loss"][i].get<double>() - 1));
  std::printf("%s: largest relative difference of a loss %.2g\n", GetParam(), largest);
  for (const auto& [name, values] : wanted.items()) {
    if (!name.starts_with("rewards/") && !name.starts_with("logps/") && name != "kl") continue;
    ASSERT_TRUE(result.metrics.contains(name)) << name;
    ASSERT_EQ(result.metrics.at(name).size(), values.size()) << name;
    for (size_t i = 0; i < values.size(); ++i)
      EXPECT_NEAR(result.metrics.at(name)[i], values[i].get<double>(), 1e-3 * (1 + std::abs(values[i].get<double>())))
          << name << ' ' << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Trl, PreferenceParity,
                         testing::Values("sigmoid", "sigmoid_again", "sigmoid_full", "hinge", "ipo", "smoothed", "own",
                                         "orpo", "simpo", "robust", "exo_pair", "nca_pair", "bco_pair", "sppo_hard",
                                         "apo_zero", "apo_down", "discopop", "sigmoid_norm", "kto"),
                         [](const auto& test) { return std::string(test.param); });

class PreferencePrecision : public testing::TestWithParam<const char*> {};

TEST_P(PreferencePrecision, IsNearFloat32) {
  for (const char* loss : {"sigmoid", "kto"}) {
    const Json wanted = recorded(loss);
    const std::vector<double> got = twenty_steps(wanted, {GetParam()}).losses, f32 = wanted["loss"];
    double apart = 0, sum = 0;
    for (size_t i = 0; i < f32.size(); ++i) apart += std::abs(got[i] - f32[i]), sum += f32[i];
    const double bound = GetParam() == std::string("bf16=true") ? 3e-2 : 2e-2;
    EXPECT_LT(apart / sum, bound)
        << loss << ": one step's loss has the rounding error of one difference; the mean evens it out";
    std::printf("%s %s: losses apart by %.2g of their mean\n", GetParam(), loss, apart / sum);
  }
}

INSTANTIATE_TEST_SUITE_P(Dtypes, PreferencePrecision, testing::Values("bf16=true", "fp16=true"),
                         [](const auto& test) { return std::string(test.param).substr(0, 4); });

Recipe pair_recipe() {
  Recipe recipe = reference_recipe("llama");
  recipe.stage = "dpo";
  recipe.pref_beta = 0.5;
  return recipe;
}

Run job_of(const Recipe& recipe) {
  return make_run(recipe, ModelRepository::open(recipe.model_name_or_path).config(), "config.json", 1);
}

TEST(PreferenceReference, CostsNothingWithANewAdapter) {
  Recipe recipe = pair_recipe();
  EXPECT_TRUE(job_of(recipe).reference.params.empty());
  // An adapter that is trained further has an effect from the start. Rewards are measured relative to the model with
  // this adapter.
  recipe.adapter_name_or_path = {(reference_model("llama") / "adapter_final").string()};
  EXPECT_EQ(job_of(recipe).reference.params.size(), job_of(recipe).trained.size());
  recipe.pref_loss = "orpo";
  EXPECT_TRUE(job_of(recipe).reference.params.empty());
}

TEST(PreferenceReference, MayBeANamedModel) {
  Recipe recipe = pair_recipe();
  const std::vector<Example> rows = preference_pairs();
  const TrainResult own = train(recipe, {.rows = rows});
  recipe.ref_model = recipe.model_name_or_path;
  const TrainResult named = train(recipe, {.rows = rows});
  expect_equal_lists(named.losses, own.losses, 1e-6, "loss");
  const TempFolder folder;
  const std::filesystem::path other_model = folder / "other";  // a model with the same settings, but other values
  std::filesystem::copy(reference_model("mistral"), other_model);
  std::filesystem::copy_file(reference_model("llama") / "config.json", other_model / "config.json",
                             std::filesystem::copy_options::overwrite_existing);
  recipe.ref_model = other_model.string();
  const TrainResult other = train(recipe, {.rows = rows});
  EXPECT_GT(std::abs(other.losses[0] - own.losses[0]), 1e-3);
}

TEST(PreferenceMetrics, AreMeansOfTheirOwnRows) {
  const KeyValues keys{Recipe()};
  const Stage& kto = stage_named("kto", "recipe");
  const std::vector<float> sums{3, 1, 6, -2, 0, -30, -20, 0, 8};
  EXPECT_THAT(kto.metrics(keys, sums),
              testing::ElementsAre(testing::Pair("kl", 2.0), testing::Pair("logps/chosen", -10.0),
                                   testing::Pair("logps/rejected", -20.0), testing::Pair("rewards/chosen", 2.0),
                                   testing::Pair("rewards/margins", 4.0), testing::Pair("rewards/rejected", -2.0)));
  // A step without a rejected reply has no metrics about rejected replies.
  EXPECT_FALSE(kto.metrics(keys, std::vector<float>{4, 0, 6, 0, 0, -30, 0, 0, 8}).contains("rewards/margins"));
}

}  // namespace
}  // namespace fettle
