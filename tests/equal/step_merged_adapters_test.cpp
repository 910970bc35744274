// Tests that adapters that are merged before the start take effect, whether the new run trains the merged weight, adds
// an adapter to it or freezes it.
#include <gtest/gtest.h>

#include "made_adapter.h"
#include "preference_rows.h"
#include "temp_folder.h"

namespace fettle {
namespace {

Model model_of(const std::string& name) {
  return make_model(nlohmann::json::parse(read_text(reference_model(name) / "config.json")), "config.json");
}

// Returns a recipe that merges adapters and adds a new adapter on q_proj. The new adapter has no effect at the start.
Recipe new_adapter(const std::string& model, std::vector<std::string> merged) {
  Recipe recipe = reference_recipe(model);
  recipe.adapter_name_or_path = std::move(merged);
  recipe.create_new_adapter = !recipe.adapter_name_or_path.empty();
  recipe.lora_target = {"q_proj"};
  return recipe;
}

double first_loss(Recipe recipe, std::vector<std::string> whole = {}) {
  recipe.additional_target = std::move(whole);
  return train(recipe, {.steps = 1}).losses[0];
}

TEST(MergedAdapters, AModuleTrainedWholeStartsMerged) {
  const TempFolder folder;
  for (const bool dora : {false, true}) {
    const std::string a1 = (folder / (dora ? "dora" : "plain")).string();
    make_adapter(a1, model_of("llama"), {.rank = 4, .modules = {"mlp.down_proj"}, .dora = dora}, 1);
    const double wanted = first_loss(new_adapter("llama", {a1}));
    EXPECT_GT(std::abs(first_loss(new_adapter("llama", {})) - wanted), 1e-4 * wanted);
    EXPECT_NEAR(first_loss(new_adapter("llama", {a1}), {"down_proj"}), wanted, 1e-6 * wanted) << dora;
  }
}

TEST(MergedAdapters, ExpertsTrainedWholeStartMerged) {
  const TempFolder folder;
  const std::string a1 = (folder / "a1").string();
  make_adapter(a1, model_of("mixtral"), {.rank = 4, .parameters = {kGateUpOfExperts, kDownOfExperts}}, 1);
  const double wanted = first_loss(new_adapter("mixtral", {a1}));
  EXPECT_GT(std::abs(first_loss(new_adapter("mixtral", {})) - wanted), 1e-4 * wanted);
  EXPECT_NEAR(first_loss(new_adapter("mixtral", {a1}), {"w1", "w2", "w3"}), wanted, 1e-6 * wanted);
}

TEST(MergedAdapters, AMasterInHostMemoryStartsMerged) {
  const TempFolder folder;
  const std::string a1 = (folder / "a1").string();
  make_adapter(a1, model_of("llama"), {.rank = 4, .modules = {"mlp.down_proj"}}, 1);
  Recipe recipe = new_adapter("llama", {a1});
  recipe.bf16 = true;
  const double wanted = first_loss(recipe, {"down_proj"});
  recipe.offload_optimizer = true;
  EXPECT_NEAR(first_loss(recipe, {"down_proj"}), wanted, 1e-6 * wanted);
}

TEST(MergedAdapters, LayersInHostMemoryStartMerged) {
  const TempFolder folder;
  const std::string a1 = (folder / "a1").string();
  make_adapter(a1, model_of("llama"), {.rank = 4, .modules = {"mlp.down_proj"}, .dora = true}, 1);
  Recipe recipe = new_adapter("llama", {a1});
  const double wanted = first_loss(recipe);
  recipe.offload_param = true;
  EXPECT_NEAR(first_loss(recipe), wanted, 1e-6 * wanted);
}

// Before the first step, the model equals its reference model.
TEST(MergedAdapters, TheReferenceIsMergedToo) {
  const TempFolder folder;
  const std::string a1 = (folder / "a1").string();
  make_adapter(a1, model_of("llama"), {.rank = 4, .modules = {"mlp.down_proj"}}, 1);
  Recipe recipe = new_adapter("llama", {a1});
  recipe.stage = "dpo";
  recipe.additional_target = {"down_proj"};
  EXPECT_NEAR(train(recipe, {.steps = 1, .rows = preference_pairs()}).losses[0], std::log(2.0), 1e-6);
}

}  // namespace
}  // namespace fettle
