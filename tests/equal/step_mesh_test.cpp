// Tests that training on eight devices equals training on one, for many meshes: full tuning and LoRA, accumulation,
// dropout.
#include <gtest/gtest.h>

#include "mesh_recipes.h"
#include "temp_folder.h"

namespace fettle {
namespace {

constexpr int64_t kRows = 8;  // rows of a micro-batch, over all devices

Recipe recipe_of(const Mesh& mesh, const std::string& type, const std::string& model = "llama") {
  Recipe recipe = mesh_recipe(mesh, type, model, kRows, 2);
  // Only llama gets noise. In gated delta nets, noise makes rounding errors exceed the bound within three steps.
  if (model == "llama") recipe.neftune_noise_alpha = 1;
  return recipe;
}

class MeshTest : public testing::TestWithParam<Mesh> {};

TEST_P(MeshTest, FullTuningEqualsOneDevice) {
  const TrainOptions options{.steps = 5, .rate = 5e-4};
  expect_equal(train(recipe_of(GetParam(), "full"), options), train(recipe_of({}, "full"), options),
               name_of(GetParam()));
}

TEST_P(MeshTest, LoraWithDropoutEqualsOneDevice) {
  const TrainOptions options{.steps = 5, .rate = 5e-3};
  expect_equal(train(recipe_of(GetParam(), "lora"), options), train(recipe_of({}, "lora"), options),
               name_of(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Meshes, MeshTest,
                         testing::Values(Mesh{{"dp", 8}}, Mesh{{"fsdp", 8}}, Mesh{{"fsdp", 4}, {"tp", 2}},
                                         Mesh{{"dp", 2}, {"fsdp", 2}, {"tp", 2}}, Mesh{{"fsdp", 2}, {"sp", 4}}),
                         [](const auto& info) { return name_of(info.param); });

// The packed rows are long enough for attention in blocks. The meshes have several axes.
TEST(Mesh, OtherFamiliesPackedInBlocksEqualOneDevice) {
  const std::vector<std::pair<std::string, Mesh>> runs{{"gpt2", {{"dp", 2}, {"tp", 2}, {"sp", 2}}},
                                                       {"mistral", {{"fsdp", 2}, {"tp", 2}, {"sp", 2}}}};
  for (const auto& [model, mesh] : runs) {
    Recipe one = recipe_of({}, "full", model), eight = recipe_of(mesh, "full", model);
    for (Recipe* recipe : {&one, &eight}) {
      recipe->per_device_train_batch_size /= 4;
      recipe->gradient_accumulation_steps = 1;
    }
    const TrainOptions options{.steps = 2, .rate = 5e-4, .length = 1024, .packing = true};
    expect_equal(train(eight, options), train(one, options), model + " " + name_of(mesh));
  }
}

// Returns the text of the recipe's step on eight devices.
std::string step_text(const Recipe& recipe) {
  const ModelRepository repository = ModelRepository::open(recipe.model_name_or_path);
  return build_train_step(make_run(recipe, repository.config(), "config.json", 8), 40).text();
}

// The hidden state between layers is split over tp, with and without recomputation.
TEST(Mesh, HiddenStateSplitOverTpEqualsOneDevice) {
  const TrainOptions options{.steps = 3, .rate = 5e-4};
  for (const auto& [model, remat] : {std::pair{"llama", "none"}, {"llama", "full"}, {"gpt2", "full"}}) {
    Recipe eight = recipe_of({{"fsdp", 2}, {"sp", 2}, {"tp", 2}}, "full", model);
    eight.gradient_checkpointing = remat;
    const std::string whole = step_text(eight);
    eight.sharding = {{"act_embed", "tp"}};
    EXPECT_NE(step_text(eight), whole);
    expect_equal(train(eight, options), train(recipe_of({}, "full", model), options), model);
  }
}

// With gradient_checkpointing: 50%, the first of two loops over layers saves only the inputs of the layers. The second
// loop saves the results of matrix products, except attention's scores.
TEST(Mesh, PartsOfTheLayersComputedAgainEqualOneDevice) {
  const Mesh mesh{{"fsdp", 2}, {"tp", 2}, {"sp", 2}};
  Recipe one = recipe_of({}, "full"), eight = recipe_of(mesh, "full");
  one.gradient_checkpointing = "none";
  eight.gradient_checkpointing = "50%";
  const TrainOptions options{.steps = 3, .rate = 5e-4};
  expect_equal(train(eight, options), train(one, options), "50%");
}

struct FamilyMesh {
  std::string model, type;
  Mesh mesh;
};

class FamilyMeshTest : public testing::TestWithParam<FamilyMesh> {};

// The meshes split weights, rows, heads, MLPs, vocabularies, experts and positions, most of these at the same time.
// LoRA weights are split like their base weights.
TEST_P(FamilyMeshTest, EightDevicesEqualOne) {
  const auto& [model, type, mesh] = GetParam();
  const TrainOptions options{.steps = 3, .rate = type == "full" ? 5e-4 : 5e-3};
  expect_equal(train(recipe_of(mesh, type, model), options), train(recipe_of({}, type, model), options), model);
}

// In the last case, tp has 4 devices for 2 key heads, so two devices share each key head.
INSTANTIATE_TEST_SUITE_P(Families, FamilyMeshTest,
                         testing::Values(FamilyMesh{"gpt2", "full", {{"fsdp", 4}, {"tp", 2}}},
                                         FamilyMesh{"mixtral", "full", {{"ep", 8}}},
                                         FamilyMesh{"mixtral", "full", {{"ep", 4}, {"tp", 2}}},
                                         FamilyMesh{"qwen3_moe", "full", {{"fsdp", 2}, {"ep", 4}}},
                                         FamilyMesh{"qwen3_moe", "lora", {{"ep", 8}}},
                                         FamilyMesh{"gpt2", "lora", {{"fsdp", 2}, {"sp", 2}, {"tp", 2}}},
                                         FamilyMesh{"llama2", "lora", {{"fsdp", 2}, {"sp", 2}, {"tp", 2}}},
                                         FamilyMesh{"mistral", "lora", {{"dp", 2}, {"fsdp", 2}, {"tp", 2}}},
                                         FamilyMesh{"qwen2", "full", {{"fsdp", 2}, {"sp", 2}, {"tp", 2}}},
                                         FamilyMesh{"qwen2", "lora", {{"fsdp", 4}, {"tp", 2}}},
                                         FamilyMesh{"qwen3", "full", {{"fsdp", 2}, {"sp", 2}, {"tp", 2}}},
                                         FamilyMesh{"qwen3", "lora", {{"dp", 2}, {"fsdp", 2}, {"tp", 2}}},
                                         FamilyMesh{"gemma2", "lora", {{"fsdp", 2}, {"sp", 2}, {"tp", 2}}},
                                         FamilyMesh{"gemma3", "full", {{"fsdp", 2}, {"sp", 2}, {"tp", 2}}},
                                         FamilyMesh{"phi3", "full", {{"fsdp", 2}, {"sp", 2}, {"tp", 2}}},
                                         FamilyMesh{"phi3", "lora", {{"fsdp", 4}, {"tp", 2}}},
                                         FamilyMesh{"starcoder2", "full", {{"fsdp", 4}, {"tp", 2}}},
                                         FamilyMesh{"gpt_bigcode", "full", {{"fsdp", 2}, {"sp", 2}, {"tp", 2}}},
                                         FamilyMesh{"baichuan7b", "lora", {{"fsdp", 2}, {"sp", 2}, {"tp", 2}}},
                                         FamilyMesh{"baichuan13b", "full", {{"fsdp", 4}, {"tp", 2}}},
                                         FamilyMesh{"gpt_oss", "full", {{"ep", 4}, {"tp", 2}}},
                                         FamilyMesh{"gpt_oss_mxfp4", "lora", {{"fsdp", 2}, {"ep", 4}}},
                                         FamilyMesh{"qwen3_5_text", "full", {{"fsdp", 2}, {"sp", 2}, {"tp", 2}}},
                                         FamilyMesh{"qwen3_5", "lora", {{"dp", 2}, {"fsdp", 2}, {"tp", 2}}},
                                         FamilyMesh{"olmo3", "full", {{"fsdp", 4}, {"tp", 2}}},
                                         FamilyMesh{"mistral3", "lora", {{"fsdp", 2}, {"sp", 2}, {"tp", 2}}},
                                         FamilyMesh{"glm4", "lora", {{"fsdp", 4}, {"tp", 2}}},
                                         FamilyMesh{"cohere2", "full", {{"fsdp", 2}, {"sp", 2}, {"tp", 2}}},
                                         FamilyMesh{"qwen2_moe", "lora", {{"ep", 4}, {"tp", 2}}},
                                         FamilyMesh{"glm4_moe", "full", {{"fsdp", 2}, {"ep", 2}, {"tp", 2}}},
                                         FamilyMesh{"qwen3_next", "lora", {{"ep", 4}, {"tp", 2}}},
                                         FamilyMesh{"qwen3_5_moe", "full", {{"ep", 4}, {"tp", 2}}},
                                         FamilyMesh{"gemma4", "full", {{"fsdp", 2}, {"sp", 2}, {"tp", 2}}},
                                         FamilyMesh{"gemma4_moe", "full", {{"ep", 4}, {"tp", 2}}},
                                         FamilyMesh{"gemma4_e2b", "full", {{"fsdp", 2}, {"sp", 2}, {"tp", 2}}},
                                         FamilyMesh{"gemma4_e2b", "lora", {{"dp", 2}, {"fsdp", 2}, {"tp", 2}}},
                                         FamilyMesh{"deepseek_v3", "lora", {{"fsdp", 2}, {"sp", 2}, {"tp", 2}}},
                                         FamilyMesh{"llama4", "full", {{"ep", 4}, {"tp", 2}}},
                                         FamilyMesh{"lfm2", "full", {{"fsdp", 2}, {"sp", 2}, {"tp", 2}}},
                                         FamilyMesh{"lfm2_moe", "lora", {{"ep", 4}, {"tp", 2}}},
                                         FamilyMesh{"granite4", "full", {{"fsdp", 2}, {"ep", 2}, {"tp", 2}}},
                                         FamilyMesh{"falcon_h1", "full", {{"dp", 2}, {"sp", 2}, {"tp", 2}}},
                                         FamilyMesh{"nemotron_h", "lora", {{"dp", 2}, {"sp", 2}, {"tp", 2}}},
                                         FamilyMesh{"nemotron_h_moe", "full", {{"ep", 4}, {"tp", 2}}},
                                         FamilyMesh{"phi", "full", {{"fsdp", 2}, {"sp", 2}, {"tp", 2}}},
                                         FamilyMesh{"phi_normed", "lora", {{"fsdp", 4}, {"tp", 2}}},
                                         FamilyMesh{"ministral3", "full", {{"fsdp", 4}, {"tp", 2}}},
                                         FamilyMesh{"gemma3_wrapped", "lora", {{"fsdp", 4}, {"tp", 2}}},
                                         FamilyMesh{"gemma4_unified", "lora", {{"fsdp", 4}, {"tp", 2}}},
                                         FamilyMesh{"gemma", "full", {{"fsdp", 2}, {"sp", 2}, {"tp", 2}}},
                                         FamilyMesh{"olmo2", "lora", {{"fsdp", 2}, {"sp", 2}, {"tp", 2}}},
                                         FamilyMesh{"smollm3", "full", {{"fsdp", 4}, {"tp", 2}}},
                                         FamilyMesh{"exaone4", "lora", {{"fsdp", 2}, {"sp", 2}, {"tp", 2}}},
                                         FamilyMesh{"granite", "lora", {{"fsdp", 2}, {"sp", 2}, {"tp", 2}}},
                                         FamilyMesh{"seed_oss", "full", {{"fsdp", 2}, {"sp", 2}, {"tp", 2}}},
                                         FamilyMesh{"ernie4_5", "lora", {{"dp", 2}, {"fsdp", 2}, {"tp", 2}}},
                                         FamilyMesh{"glm", "full", {{"fsdp", 4}, {"tp", 2}}},
                                         FamilyMesh{"gpt_neox", "full", {{"fsdp", 2}, {"sp", 2}, {"tp", 2}}},
                                         FamilyMesh{"deepseek_v2", "full", {{"fsdp", 2}, {"ep", 2}, {"tp", 2}}},
                                         FamilyMesh{"glm4_moe_lite", "lora", {{"ep", 4}, {"tp", 2}}},
                                         FamilyMesh{"minimax_m2", "full", {{"ep", 4}, {"tp", 2}}},
                                         FamilyMesh{"ernie4_5_moe", "full", {{"fsdp", 2}, {"ep", 2}, {"tp", 2}}},
                                         FamilyMesh{"granitemoe", "lora", {{"fsdp", 2}, {"ep", 2}, {"tp", 2}}},
                                         FamilyMesh{"moonlight", "lora", {{"fsdp", 2}, {"ep", 2}, {"tp", 2}}},
                                         FamilyMesh{"nemotron_h_nano", "full", {{"dp", 2}, {"ep", 2}, {"tp", 2}}},
                                         FamilyMesh{"llama4_scout", "full", {{"fsdp", 2}, {"ep", 2}, {"tp", 2}}},
                                         FamilyMesh{"llama", "lora", {{"fsdp", 2}, {"tp", 4}}}),
                         [](const auto& info) {
                           return info.param.model + "_" + info.param.type + "_" + name_of(info.param.mesh);
                         });

// 257 is not divisible by 2 or 4. Neither is GPT-2's real vocabulary size, 50257.
TEST(Mesh, AVocabularyThatDoesNotDivideStaysWhole) {
  TempFolder folder;
  nlohmann::json config = nlohmann::json::parse(read_text(reference_model("gpt2") / "config.json"));
  config["vocab_size"] = 257;
  write_text(folder / "config.json", config.dump());
  std::filesystem::copy(reference_model("gpt2") / "model.safetensors", folder / "model.safetensors");
  Recipe one = recipe_of({}, "full", "gpt2"), four = recipe_of({{"fsdp", 2}, {"tp", 2}}, "full", "gpt2");
  for (Recipe* recipe : {&one, &four}) {
    recipe->model_name_or_path = folder.path().string();
    recipe->train_from_scratch = true;
  }
  expect_equal(train(four, {.rate = 5e-4}), train(one, {.rate = 5e-4}), "vocabulary of 257");
}

}  // namespace
}  // namespace fettle
