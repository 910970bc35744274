// Twenty steps with each variant of LoRA, freeze-tuning and low precision beside Transformers + PEFT
// (tests/reference/methods.py): losses, gradient norms and what was trained.
#include <gtest/gtest.h>

#include <set>

#include "checkpoint/load.h"
#include "optim/schedule.h"
#include "training.h"

namespace fettle {
namespace {

using Json = nlohmann::json;

struct Method {
  const char* name;
  double bound;  // of losses, relative
};

std::string text_of(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

Recipe recipe_of(const Json& method) {
  const std::filesystem::path model = reference_model(method.value("family", "llama"));
  std::vector<std::string> words{"model_name_or_path=" + model.string(),
                                 "plugin=cpu",
                                 "weight_decay=0.01",
                                 "max_grad_norm=0.5",
                                 "per_device_train_batch_size=2",
                                 "gradient_accumulation_steps=2"};
  for (const auto& [key, value] : method["recipe"].items()) words.push_back(key + "=" + text_of(value));
  Recipe recipe = read_recipe("", words);
  if (method.contains("start"))
    for (const Json& folder : method["start"].is_array() ? method["start"] : Json::array({method["start"]}))
      recipe.adapter_name_or_path.push_back((model / folder.get<std::string>()).string());
  return recipe;
}

class MethodParity : public testing::TestWithParam<Method> {};

TEST_P(MethodParity, TwentySteps) {
  const Json recorded =
      Json::parse(std::ifstream(std::string(FETTLE_SOURCE_DIR) + "/tests/reference/methods.json"))[GetParam().name];
  Recipe recipe = recipe_of(recorded);
  const std::string name = GetParam().name;
  if (name.ends_with("fp16")) recipe.fp16 = true;
  if (name.ends_with("bf16")) recipe.bf16 = true;
  const Schedule schedule{"cosine", 5, 20};
  const double rate = recorded.value("learning_rate", recipe.finetuning_type == "lora" ? 2e-3 : 5e-4);
  const TrainResult result =
      train(recipe, {.steps = 20, .rate_at = [&](int64_t step) { return rate * schedule.multiplier(step); }});
  expect_equal_lists(result.losses, recorded["loss"], GetParam().bound, "loss");
  expect_equal_lists(result.norms, recorded["grad_norm"], 10 * GetParam().bound, "norm");
  double largest = 0;
  for (size_t i = 0; i < result.losses.size(); ++i)
    largest = std::max(largest, std::abs(result.losses[i] / recorded["loss"][i].get<double>() - 1));
  std::printf("%s: largest relative difference of a loss %.2g\n", GetParam().name, largest);
  if (!recorded.contains("final")) return;

  std::set<std::string> seen;
  for (const auto& [key, wanted] : recorded["final"].items()) {
    const std::string prefix = "base_model.model.", plain = key.starts_with(prefix) ? key.substr(prefix.size()) : key;
    for (const auto& [row, part] : result.layers)
      for (size_t i = 0; i < part.size(); ++i) {
        if (name_of_layer(row, part[i]) != plain) continue;
        seen.insert(key);
        const std::vector<double>& all = result.trained.at(row).elements;
        const size_t n = all.size() / part.size();
        double square = 0;
        for (size_t e = 0; e < n; ++e) square += all[i * n + e] * all[i * n + e];
        EXPECT_NEAR(std::sqrt(square), wanted["norm"].get<double>(), 1e-3 * wanted["norm"].get<double>()) << key;
        for (size_t e = 0; e < wanted["first"].size(); ++e)
          EXPECT_NEAR(all[i * n + e], wanted["first"][e].get<double>(), 1e-3) << key << ' ' << e;
      }
  }
  EXPECT_EQ(seen.size(), recorded["final"].size());
}

INSTANTIATE_TEST_SUITE_P(Methods, MethodParity,
                         testing::Values(Method{"lora_fp16", 2e-2}, Method{"full_fp16", 2e-2},
                                         Method{"full_bf16", 2e-2}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace fettle
