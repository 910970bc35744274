// Tests that QLoRA equals training on a checkpoint with the dequantised weights, on any mesh and with any
// rematerialisation.
#include <gtest/gtest.h>

#include "block_values.h"
#include "checkpoint/load.h"
#include "checkpoint/model_writer.h"
#include "resolve_run.h"
#include "temp_folder.h"
#include "training.h"

namespace fettle {
namespace {

using Words = std::vector<std::string>;

// Returns a config whose weight rows have 2 or 5 blocks. 2 blocks can be split over two devices, 5 blocks cannot.
nlohmann::json wide_config() {
  nlohmann::json config = nlohmann::json::parse(std::ifstream(reference_model("llama") / "config.json"));
  config.update({{"hidden_size", 128},
                 {"intermediate_size", 320},
                 {"num_attention_heads", 8},
                 {"num_key_value_heads", 4},
                 {"head_dim", 16}});
  return config;
}

// Writes a model with random weights. `change` modifies the weights of linear layers.
void write_model(const std::filesystem::path& folder, const std::function<void(std::span<float>, int64_t)>& change) {
  write_text(folder / "config.json", wide_config().dump());
  const Model model = make_model(wide_config(), "config.json");
  NamedShapes shapes;
  for (const Param& param : model.params)
    for (int64_t i = 0; i < param.layer_count(); ++i)
      shapes.emplace_back(name_of_layer(param.hf_name, i), Shape{DType::kF32, param.dims});
  ModelWriter writer(folder, shapes, int64_t{1} << 30);
  uint32_t seed = 1;
  for (const Param& param : model.params)
    for (int64_t i = 0; i < param.layer_count(); ++i) {
      const double size = param.dims.size() == 1 ? 1 : 0.2;
      HostArray values =
          to_array(random_value({DType::kF32, param.dims}, seed++, param.dims.size() == 1 ? 0.5 : -size, size));
      if (param.role == Role::kLinear) change(values.as<float>(), param.dims.back());
      writer.write(name_of_layer(param.hf_name, i), {values.data(), static_cast<size_t>(values.bytes())});
    }
  writer.finish();
}

struct Case {
  const char* name;
  Words keys;
  Quantisation format;
  bool dora = false;
};

class QuantisedBase : public testing::TestWithParam<Case> {
 protected:
  static Recipe recipe(const std::filesystem::path& model, const Words& keys, const Words& more = {}) {
    Words words{"model_name_or_path=" + model.string(), "plugin=cpu", "lora_rank=4", "lora_dropout=0.1"};
    words.insert(words.end(), keys.begin(), keys.end());
    words.insert(words.end(), more.begin(), more.end());
    return read_recipe("", words);
  }
  const TrainOptions options_{.steps = 4, .rate = 5e-3};
};

TEST_P(QuantisedBase, EqualsTheDequantisedModel) {
  TempFolder folder;
  write_model(folder / "original", [](std::span<float>, int64_t) {});
  write_model(folder / "dequantised",
              [](std::span<float> values, int64_t columns) { through_codes(GetParam().format, values, columns); });
  const Words plain = GetParam().dora ? Words{"use_dora=true"} : Words{};
  const TrainResult wanted = train(recipe(folder / "dequantised", plain), options_);
  const TrainResult got = train(recipe(folder / "original", GetParam().keys), options_);
  expect_equal_lists(got.losses, wanted.losses, 1e-6, "loss");
  expect_equal_lists(got.norms, wanted.norms, 1e-5, "norm");
  const TrainResult saved =
      train(recipe(folder / "original", GetParam().keys, {"gradient_checkpointing=none"}), options_);
  expect_equal_lists(saved.losses, wanted.losses, 1e-6, "loss, all saved");
}

TEST_P(QuantisedBase, EightDevicesEqualOne) {
  TempFolder folder;
  write_model(folder.path(), [](std::span<float>, int64_t) {});
  const TrainResult one = train(recipe(folder.path(), GetParam().keys, {"per_device_train_batch_size=8"}), options_);
  std::vector<std::pair<std::string, int>> meshes{{"{fsdp: 4, tp: 2}", 2}};
  if (std::string(GetParam().name) == "nf4") meshes.insert(meshes.end(), {{"{fsdp: 8}", 1}, {"{dp: 2, tp: 4}", 4}});
  for (const auto& [mesh, rows] : meshes) {
    const TrainResult eight = train(
        recipe(folder.path(), GetParam().keys, {"mesh=" + mesh, "per_device_train_batch_size=" + std::to_string(rows)}),
        options_);
    expect_equal_lists(eight.losses, one.losses, 1e-5, mesh);
    expect_equal_lists(eight.norms, one.norms, 1e-4, mesh);
  }
}

using enum Quantisation::Type;
INSTANTIATE_TEST_SUITE_P(
    Formats, QuantisedBase,
    testing::Values(Case{"nf4", {"quantization_bit=4"}, {kNf4, true}},
                    Case{"nf4_plain", {"quantization_bit=4", "double_quantization=false"}, {kNf4, false}},
                    Case{"fp4", {"quantization_bit=4", "quantization_type=fp4"}, {kFp4, true}},
                    Case{"int8", {"quantization_bit=8"}, {kInt8, false}},
                    Case{"nf4_dora", {"quantization_bit=4", "use_dora=true"}, {kNf4, true}, true}),
    [](const auto& info) { return std::string(info.param.name); });

// No float array of the step contains a linear weight of all layers, even if all activations are saved for the backward
// loop.
TEST(QuantisedBase, NothingOfTheStepHoldsAllWeights) {
  Recipe recipe = reference_recipe("llama");
  recipe.quantization_bit = 4;
  recipe.gradient_checkpointing = "none";
  const auto run = make_run(recipe, wide_config(), "config.json", 1);
  Program program = build_train_step(run, 8);
  for (int32_t id = 0; id < program.block().size(); ++id)
    for (const Shape& shape : program.block().node(id).results)
      for (const QuantisedWeight& weight : run.quantised) {
        Dims stack = weight.base.dims;
        stack.insert(stack.begin(), run.model.config.num_hidden_layers);
        EXPECT_FALSE(is_float(shape.dtype) && shape.dims == stack) << weight.base.hf_name;
      }
}

// Calls `visit` for each shape of the block and of the blocks of its loops.
void for_each_shape(const Block& block, const std::function<void(const Shape&)>& visit) {
  for (int32_t id = 0; id < block.size(); ++id) {
    for (const Shape& shape : block.node(id).results) visit(shape);
    if (const Loop* loop = block.node(id).loop()) for_each_shape(*loop->body, visit);
  }
}

// No float array of the step is as large as the weights of all experts of a layer.
TEST(QuantisedBase, NothingOfTheStepHoldsAllExpertsOfALayer) {
  nlohmann::json config = nlohmann::json::parse(read_text(reference_model("qwen3_moe") / "config.json"));
  config["num_local_experts"] = config["num_experts"] = 64;
  config["moe_intermediate_size"] = 128;
  Recipe recipe = reference_recipe("qwen3_moe");
  recipe.quantization_bit = 4;
  Program program = build_train_step(make_run(recipe, config, "config.json", 1), 8);
  for_each_shape(program.block(), [&](const Shape& shape) {
    EXPECT_FALSE(is_float(shape.dtype) && product(shape.dims) >= 64 * 128 * 64) << shape.to_string();
  });
}

}  // namespace
}  // namespace fettle
