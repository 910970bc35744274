// Tests adapters that cannot be merged before the start.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "made_adapter.h"
#include "temp_folder.h"
#include "training.h"

namespace fettle {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class MergedAdapterError : public testing::Test {
 protected:
  std::string refused(Recipe recipe) {
    recipe.adapter_name_or_path = {(folder_ / "a1").string()};
    recipe.create_new_adapter = true;
    recipe.lora_target = {"q_proj"};
    return user_error([&] { train(recipe, {.steps = 1}); });
  }
  Model llama_ = make_model(nlohmann::json::parse(read_text(reference_model("llama") / "config.json")), "config.json");
  TempFolder folder_;
};

TEST_F(MergedAdapterError, ValuesThatAreNotFiniteAreReportedBeforeTheStart) {
  make_adapter(folder_ / "a1", llama_, {.rank = 4, .modules = {"mlp.down_proj"}}, 1,
               [](const std::string&, HostArray& array) { array.as<float>()[0] = 1e4f; });
  Recipe recipe = reference_recipe("llama");
  EXPECT_EQ(refused(recipe), "no error");
  recipe.fp16 = true;
  EXPECT_THAT(refused(recipe), AllOf(HasSubstr("a1/adapter_model.safetensors"), HasSubstr("mlp.down_proj"),
                                     HasSubstr("float16"), HasSubstr("bf16: true")));
}

TEST_F(MergedAdapterError, AModuleSavedOnSomeLayersOnly) {
  make_adapter(folder_ / "whole", llama_, {.rank = 4, .modules = {"self_attn.v_proj"}, .saved = {"down_proj"}}, 1);
  const SafetensorsFile whole = SafetensorsFile::open(folder_ / "whole/adapter_model.safetensors");
  NamedShapes shapes;
  for (const TensorEntry& entry : whole.entries())
    if (entry.name != "base_model.model.model.layers.1.mlp.down_proj.weight")
      shapes.emplace_back(entry.name, entry.shape);
  std::filesystem::create_directories(folder_ / "a1");
  SafetensorsWriter writer =
      begin_adapter(folder_ / "a1", read_adapter_config(folder_ / "whole", {.modules_to_save = true}), shapes);
  for (const auto& [name, shape] : shapes)
    whole.with_bytes(*whole.find(name), [&, &name = name](auto bytes) { writer.write(name, bytes); });
  writer.finish();
  EXPECT_THAT(refused(reference_recipe("llama")),
              AllOf(HasSubstr("'model.layers.1.mlp.down_proj.weight'"), HasSubstr("missing")));
}

}  // namespace
}  // namespace fettle
