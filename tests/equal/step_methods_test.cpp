// Tests that freeze-tuning and the variants of LoRA (DoRA, PiSSA, saved layers, experts) give the same results on eight
// devices as on one, and that training with PiSSA starts at the base.
#include <gtest/gtest.h>

#include "training.h"

namespace fettle {
namespace {

using Words = std::vector<std::string>;

struct MethodMesh : testing::TestWithParam<std::pair<const char*, Words>> {};

TEST_P(MethodMesh, EqualsOneDevice) {
  const auto& [name, keys] = GetParam();
  auto recipe = [&](const Words& more) {
    const std::string kind = name;
    const size_t at = kind.find("experts_of_");
    const std::filesystem::path model = reference_model(at == 0 ? kind.substr(11) : "llama");
    Words words{"model_name_or_path=" + model.string(), "plugin=cpu", "lora_rank=4"};
    words.insert(words.end(), keys.begin(), keys.end());
    words.insert(words.end(), more.begin(), more.end());
    return read_recipe("", words);
  };
  const TrainOptions options{.steps = 4, .rate = 2e-3};
  const TrainResult one = train(recipe({"per_device_train_batch_size=4"}), options);
  const bool ep = std::string(name).starts_with("experts_of_");
  // In the small Nemotron-H, in_proj has 262 = 2 * 131 outputs, which fsdp 2 x tp 2 cannot split.
  const std::string experts = std::string("mesh={") + (std::string(name).ends_with("nemotron_h_moe") ? "dp" : "fsdp");
  const TrainResult eight = train(ep ? recipe({"per_device_train_batch_size=2", experts + ": 2, ep: 2, tp: 2}"})
                                     : recipe({"per_device_train_batch_size=1", "mesh={fsdp: 4, tp: 2}"}),
                                  options);
  expect_equal_lists(eight.losses, one.losses, 1e-5, name);
  expect_equal_lists(eight.norms, one.norms, 1e-4, name);
}

INSTANTIATE_TEST_SUITE_P(
    Methods, MethodMesh,
    testing::Values(std::pair{"dora", Words{"use_dora=true", "lora_dropout=0.1"}},
                    std::pair{"saved_layers", Words{"additional_target=lm_head,norm", "layers_to_transform=1"}},
                    std::pair{"pissa", Words{"pissa_init=true", "pissa_iter=-1"}},
                    std::pair{"experts_of_mixtral", Words{"target_parameters=gate_up_proj,down_proj"}},
                    std::pair{"experts_of_gpt_oss", Words{"target_parameters=gate_up_proj,down_proj,router.weight"}},
                    std::pair{"experts_of_qwen3_5_moe", Words{"target_parameters=gate_up_proj,down_proj,gate.weight"}},
                    std::pair{"experts_of_nemotron_h_moe",
                              Words{"target_parameters=experts.up_proj,experts.down_proj"}},
                    std::pair{"freeze", Words{"finetuning_type=freeze", "freeze_trainable_layers=1",
                                              "freeze_extra_modules=embed_tokens"}}),
    [](const auto& info) { return std::string(info.param.first); });

// The base and the LoRA weights together equal the original base, also for a module with separate parts (GPT-2's
// c_attn).
TEST(Pissa, StartsAtTheBase) {
  for (const char* model : {"gpt2", "phi3"}) {
    Recipe recipe = reference_recipe(model);
    recipe.per_device_train_batch_size = 2;
    const double plain = train(recipe, {.steps = 1}).losses[0];
    recipe.pissa_init = true;
    recipe.pissa_iter = 4;
    EXPECT_NEAR(train(recipe, {.steps = 1}).losses[0], plain, 1e-5 * plain) << model;
  }
}

}  // namespace
}  // namespace fettle
