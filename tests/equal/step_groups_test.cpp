// Tests that LoRA on a checkpoint of integers with scales (GPTQ, AWQ, compressed-tensors) equals LoRA on a checkpoint
// with the dequantised weights, on any mesh. The weights stay integers on the devices.
#include <gtest/gtest.h>

#include "checkpoint/model_writer.h"
#include "resolve_run.h"
#include "temp_folder.h"
#include "training.h"

namespace fettle {
namespace {

using Words = std::vector<std::string>;
namespace fs = std::filesystem;

// Writes the values of the model's weights as f32.
void write_dequantised(const fs::path& model, const fs::path& folder) {
  const ModelRepository repository = ModelRepository::open(model);
  nlohmann::json config = repository.config();
  config.erase("quantization_config");
  fs::create_directories(folder);
  write_text(folder / "config.json", config.dump());
  NamedShapes shapes;
  for (const std::string& name : repository.names())
    shapes.emplace_back(name, repository.find(name).entry->shape.with_dtype(DType::kF32));
  ModelWriter writer(folder, shapes, int64_t{1} << 30);
  for (const auto& [name, shape] : shapes) {
    const StoredTensor stored = repository.find(name);
    HostArray values(shape);
    stored.file->read_slice(*stored.entry, Box::whole(shape.dims), DType::kF32, values.data());
    writer.write(name, {values.data(), static_cast<size_t>(values.bytes())});
  }
  writer.finish();
}

class Groups : public testing::TestWithParam<const char*> {
 protected:
  static Recipe recipe(const fs::path& model, const Words& more = {}) {
    Words words{"model_name_or_path=" + model.string(), "plugin=cpu", "lora_rank=4", "lora_dropout=0.1"};
    words.insert(words.end(), more.begin(), more.end());
    return read_recipe("", words);
  }
  const fs::path model_ = reference_model(GetParam());
  const TrainOptions options_{.steps = 4, .rate = 5e-3};
};

TEST_P(Groups, EqualTheDequantisedModel) {
  TempFolder folder;
  write_dequantised(model_, folder / "floats");
  for (const Words& keys : {Words{}, Words{"use_dora=true"}, Words{"gradient_checkpointing=none"}}) {
    if (!keys.empty() && keys[0] == "use_dora=true" && std::string(GetParam()) == "qwen3_moe_packed") continue;
    const TrainResult wanted = train(recipe(folder / "floats", keys), options_);
    const TrainResult got = train(recipe(model_, keys), options_);
    expect_equal_lists(got.losses, wanted.losses, 1e-6, "loss");
    expect_equal_lists(got.norms, wanted.norms, 1e-5, "norm");
  }
  // Full tuning reads the values, without a rounding.
  const TrainResult wanted = train(recipe(folder / "floats", {"finetuning_type=full"}), options_);
  const TrainResult got = train(recipe(model_, {"finetuning_type=full"}), options_);
  EXPECT_EQ(got.losses, wanted.losses);
}

TEST_P(Groups, EightDevicesEqualOne) {
  const TrainResult one = train(recipe(model_, {"per_device_train_batch_size=8"}), options_);
  std::vector<std::pair<std::string, int>> meshes{{"{fsdp: 4, tp: 2}", 2}, {"{fsdp: 8}", 1}};
  if (std::string(GetParam()) == "qwen3_moe_packed") meshes.emplace_back("{fsdp: 2, ep: 4}", 4);
  for (const auto& [mesh, rows] : meshes) {
    const TrainResult eight =
        train(recipe(model_, {"mesh=" + mesh, "per_device_train_batch_size=" + std::to_string(rows)}), options_);
    expect_equal_lists(eight.losses, one.losses, 1e-5, mesh);
    expect_equal_lists(eight.norms, one.norms, 1e-4, mesh);
  }
}

// The linear layers stay integers with LoRA, and are floats with full tuning.
TEST_P(Groups, StayIntegersWithLora) {
  const ModelRepository repository = ModelRepository::open(model_);
  const auto run = make_run(recipe(model_), repository.config(), "config.json", 1);
  size_t grouped = 0;
  for (const Param& param : run.model.params) grouped += param.role == Role::kLinear || param.of_experts() ? 1 : 0;
  EXPECT_EQ(run.quantised.size(), grouped);
  const auto full = make_run(recipe(model_, {"finetuning_type=full"}), repository.config(), "config.json", 1);
  EXPECT_TRUE(full.quantised.empty());
}

INSTANTIATE_TEST_SUITE_P(Formats, Groups, testing::Values("qwen3_gptq", "qwen2_awq", "qwen3_moe_packed"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace fettle
