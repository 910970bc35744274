// Tests for every family that QLoRA has the loss and the gradients of LoRA on a checkpoint with the dequantised
// weights.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "adapters/quantised.h"
#include "block_values.h"
#include "checkpoint/load.h"
#include "checkpoint/model_writer.h"
#include "families.h"
#include "resolve_run.h"
#include "temp_folder.h"
#include "training.h"

namespace fettle {
namespace {

constexpr Quantisation kFormat{Quantisation::Type::kNf4, true};

// Writes the checkpoint of the model with the values that its weights have in NF4. Each matrix has its own blocks; a
// tensor [E, .., ..] of E experts has E matrices.
void write_dequantised(const std::filesystem::path& model, const std::filesystem::path& folder) {
  const ModelRepository repository = ModelRepository::open(model);
  const Model parsed = make_model(repository.config(), "config.json");
  std::map<std::string, Dims> quantised;  // by name in the files: the dims of the parameter's tensor
  for (const Param& param : parsed.params)
    if (is_quantised(param, kFormat, false))
      for (int64_t i = 0; i < param.stored_count(); ++i)
        quantised[repository.find(param.stored_name(i)).entry->name] = param.stored_dims();
  std::filesystem::create_directories(folder);
  nlohmann::json config = repository.config();
  config.erase("quantization_config");
  write_text(folder / "config.json", config.dump());
  NamedShapes shapes;
  for (const std::string& name : repository.names())
    shapes.emplace_back(name, repository.find(name).entry->shape.with_dtype(DType::kF32));
  ModelWriter writer(folder, shapes, int64_t{1} << 30);
  for (const auto& [name, shape] : shapes) {
    const StoredTensor stored = repository.find(name);
    HostArray values = stored.file->read(*stored.entry).to(DType::kF32);
    if (const auto found = quantised.find(name); found != quantised.end()) {
      const std::span<float> all = values.as<float>();
      const size_t matrices = found->second.size() == 3 ? static_cast<size_t>(found->second[0]) : 1;
      const size_t each = all.size() / matrices;
      const std::vector<float> before(all.begin(), all.end());
      for (size_t i = 0; i < matrices; ++i) through_codes(kFormat, all.subspan(i * each, each), found->second.back());
      EXPECT_FALSE(std::ranges::equal(all, before)) << name;
    }
    writer.write(name, {values.data(), static_cast<size_t>(values.bytes())});
  }
  writer.finish();
  EXPECT_FALSE(quantised.empty());
}

class QloraOfFamily : public testing::TestWithParam<std::string> {};

TEST_P(QloraOfFamily, HasTheGradientsOfTheDequantisedModel) {
  const std::filesystem::path model = reference_model(GetParam());
  // If the model has a recorded adapter of its experts, this test uses it.
  std::string adapter = "adapter_final";
  for (const char* variant : {"variants/all_linear_final", "variants/experts_final"})
    if (std::filesystem::exists(model / variant)) adapter = variant;
  TempFolder folder;
  write_dequantised(model, folder.path());
  Recipe recipe = reference_recipe(GetParam());
  recipe.per_device_train_batch_size = 2;
  recipe.adapter_name_or_path = {(model / adapter).string()};
  recipe.quantization_bit = 4;
  const TrainResult got = train(recipe, {.steps = 1});
  recipe.quantization_bit.reset();
  recipe.model_name_or_path = folder.path().string();
  const TrainResult floats = train(recipe, {.steps = 1});
  expect_equal_lists(got.losses, floats.losses, 1e-6, "loss");
  expect_equal_lists(got.norms, floats.norms, 1e-5, "norm");
  expect_equal_gradients(got, floats, 1e-4);
}

// One family of each kind of block and of stored weight.
const std::vector<std::string> kBlocks{"gpt2",     "phi3",      "mixtral",  "gpt_oss",   "llama4",        "deepseek_v2",
                                       "lfm2_moe", "qwen3_fp8", "granite4", "falcon_h1", "nemotron_h_moe"};

// Returns the other families whose checkpoints do not store the weights in 4 bits.
std::vector<std::string> other_families() {
  std::vector<std::string> out;
  for (const std::string& family : kFamilies) {
    const std::string file = read_text(reference_model(family) / "config.json");
    const bool four_bits = file.find("quantization_config") != std::string::npos;
    if (!four_bits && std::ranges::find(kBlocks, family) == kBlocks.end()) out.push_back(family);
  }
  return out;
}

INSTANTIATE_TEST_SUITE_P(Blocks, QloraOfFamily, testing::ValuesIn(kBlocks),
                         [](const auto& info) { return info.param; });
INSTANTIATE_TEST_SUITE_P(OtherFamilies, QloraOfFamily, testing::ValuesIn(other_families()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace fettle
