// Tests that freeze-tuning and the variants of LoRA (DoRA, PiSSA, saved layers, experts) give the same results on eight
// devices as on one, that training with PiSSA starts at the base, and how a linear layer outside of the layers starts.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

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

// Starts LoRA of rank 4 on the linear layer outside of Gemma 4's layers. The arrays of this linear layer have no dim
// for layers. Returns them by names such as "trained/lora_A.weight". The checkpoint's weight is "weight".
std::map<std::string, Value> start_outside(const Words& keys) {
  const std::string module = "model.language_model.per_layer_model_projection.";
  Words words{"model_name_or_path=" + reference_model("gemma4_e2b").string(), "plugin=cpu", "lora_rank=4",
              "lora_target=per_layer_model_projection"};
  words.insert(words.end(), keys.begin(), keys.end());
  const Recipe recipe = read_recipe("", words);
  const ModelRepository repository = ModelRepository::open(recipe.model_name_or_path);
  const auto run = make_run(recipe, repository.config(), "config.json", 1);
  const TrainState state = load_state(cpu_devices(), run, repository, false);
  const StoredTensor weight = repository.find(module + "weight");
  std::map<std::string, Value> out{{"weight", to_value(weight.file->read(*weight.entry).to(DType::kF32))}};
  for (const auto& [name, buffer] : state.buffers)
    if (const size_t at = name.find(module); at != std::string::npos)
      out[name.substr(0, at) + name.substr(at + module.size())] = to_value(buffer.download());
  return out;
}

// Row r of A and column r of B are singular vectors of the weight. The norm of each is the square root of the singular
// value divided by LoRA's scale.
TEST(Pissa, StartsALinearLayerOutsideOfTheLayers) {
  const std::map<std::string, Value> arrays = start_outside({"pissa_init=true", "pissa_iter=-1"});
  const Value &weight = arrays.at("weight"), &rest = arrays.at("frozen/weight");
  const Value &a = arrays.at("trained/lora_A.weight"), &b = arrays.at("trained/lora_B.weight");
  constexpr int64_t kRank = 4;
  constexpr double kScale = 2;  // the default of lora_alpha is twice the rank
  const int64_t out = weight.shape.dims[0], in = weight.shape.dims[1];
  ASSERT_EQ(rest.shape, weight.shape);
  ASSERT_EQ(a.shape.dims, (Dims{kRank, in}));
  ASSERT_EQ(b.shape.dims, (Dims{out, kRank}));
  EXPECT_EQ(arrays.at("start/lora_A.weight").elements, a.elements);
  EXPECT_EQ(arrays.at("start/lora_B.weight").elements, b.elements);
  double square = 0;  // the sum of the squares of all singular values
  for (int64_t o = 0; o < out; ++o)
    for (int64_t i = 0; i < in; ++i) {
      const double w = weight.elements[o * in + i];
      double sum = rest.elements[o * in + i];
      for (int64_t r = 0; r < kRank; ++r) sum += kScale * b.elements[o * kRank + r] * a.elements[r * in + i];
      ASSERT_NEAR(sum, w, 1e-6) << o << ' ' << i;
      square += w * w;
    }
  for (int64_t r = 0; r < kRank; ++r) {
    double value = 0;  // the singular value
    for (int64_t i = 0; i < in; ++i) value += kScale * a.elements[r * in + i] * a.elements[r * in + i];
    EXPECT_GT(value * value, square / static_cast<double>(in)) << r << ": not one of the leading singular values";
    const double bound = 1e-4 * value * std::sqrt(value / kScale);
    for (int64_t o = 0; o < out; ++o) {
      double sum = 0;
      for (int64_t i = 0; i < in; ++i) sum += weight.elements[o * in + i] * a.elements[r * in + i];
      ASSERT_NEAR(sum, value * b.elements[o * kRank + r], bound) << r << ' ' << o;
    }
    for (int64_t i = 0; i < in; ++i) {
      double sum = 0;
      for (int64_t o = 0; o < out; ++o) sum += weight.elements[o * in + i] * b.elements[o * kRank + r];
      ASSERT_NEAR(sum, value * a.elements[r * in + i], bound) << r << ' ' << i;
    }
  }
}

// Each magnitude is the norm of a row of the weight.
TEST(Dora, StartsALinearLayerOutsideOfTheLayers) {
  const std::map<std::string, Value> arrays = start_outside({"use_dora=true"});
  const Value &weight = arrays.at("weight"), &magnitudes = arrays.at("trained/lora_magnitude_vector");
  const int64_t out = weight.shape.dims[0], in = weight.shape.dims[1];
  ASSERT_EQ(magnitudes.shape.dims, Dims{out});
  for (int64_t o = 0; o < out; ++o) {
    double square = 0;
    for (int64_t i = 0; i < in; ++i) square += weight.elements[o * in + i] * weight.elements[o * in + i];
    EXPECT_NEAR(magnitudes.elements[o], std::sqrt(square), 1e-5 * std::sqrt(square)) << o;
  }
}

}  // namespace
}  // namespace fettle
