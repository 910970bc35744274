// Compares twenty QLoRA steps with recorded steps of Transformers, PEFT and bitsandbytes
// (tests/reference/quantised.py). The codes are made while loading, or are in the checkpoint.
#include <gtest/gtest.h>

#include "checkpoint/load.h"
#include "optim/schedule.h"
#include "paths.h"
#include "training.h"

namespace fettle {
namespace {

using Json = nlohmann::json;

struct Case {
  const char* format;  // the format's name in quantised.json
  std::vector<std::string> keys;
  bool stored;
  double bound;  // relative bound for losses
};

class Qlora : public testing::TestWithParam<Case> {};

TEST_P(Qlora, TwentySteps) {
  const Json recorded =
      Json::parse(std::ifstream(source_folder() / "tests/reference/quantised.json")).at(GetParam().format);
  const std::filesystem::path model = reference_model("llama");
  std::vector<std::string> words = GetParam().keys;
  words.insert(words.end(),
               {"model_name_or_path=" + (GetParam().stored ? model / "quantised" / GetParam().format : model).string(),
                "adapter_name_or_path=" + (model / "adapter_init").string(), "plugin=cpu", "weight_decay=0.01",
                "max_grad_norm=0.5", "per_device_train_batch_size=2", "gradient_accumulation_steps=2"});
  const Schedule schedule{"cosine", 5, 20};
  const TrainResult result = train(
      read_recipe("", words), {.steps = 20, .rate_at = [&](int64_t step) { return 2e-3 * schedule.multiplier(step); }});
  expect_equal_lists(result.losses, recorded["loss"], GetParam().bound, "loss");
  expect_equal_lists(result.norms, recorded["grad_norm"], 10 * GetParam().bound, "norm");
  for (const auto& [key, wanted] : recorded["final"].items()) {
    const std::string name = key.substr(std::string("base_model.model.").size());
    const size_t at = std::string("model.layers.").size(), dot = name.find('.', at);
    const int64_t layer = std::stoll(name.substr(at, dot - at));
    const Value& stack = result.trained.at("model.layers.{}" + name.substr(dot));
    const int64_t n = wanted["count"];
    double square = 0;
    for (int64_t i = 0; i < n; ++i) square += std::pow(stack.elements[layer * n + i], 2);
    EXPECT_NEAR(std::sqrt(square), wanted["norm"].get<double>(), 2e-3 * wanted["norm"].get<double>()) << key;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Formats, Qlora,
    testing::Values(
        Case{"nf4", {"quantization_bit=4"}, false, 1e-4}, Case{"nf4", {}, true, 1e-4},
        Case{"fp4", {"load_in_4bit=true", "bnb_4bit_quant_type=fp4", "double_quantization=false"}, false, 1e-4},
        Case{"fp4", {}, true, 1e-4}, Case{"int8", {"quantization_bit=8"}, false, 1e-3}, Case{"int8", {}, true, 1e-4}),
    [](const auto& info) { return std::string(info.param.format) + (info.param.stored ? "_stored" : "_made"); });

}  // namespace
}  // namespace fettle
