// Tests that a GGUF model has the same logits as a Hugging Face model with its dequantised weights and the original's
// config. So both models train and reply in the same way.
#include <gtest/gtest.h>

#include "base/files/json_file.h"
#include "checkpoint/model_writer.h"
#include "correct/generate_models.h"
#include "generate/decode.h"
#include "gguf_reference.h"

namespace fettle {
namespace {

class GgufLogits : public testing::TestWithParam<std::string> {};

// Writes a Hugging Face folder with this config and the repository's values as f32.
void write_dequantised(const ModelRepository& from, nlohmann::json config, const std::filesystem::path& folder) {
  config.erase("quantization_config");
  NamedShapes shapes;
  for (const std::string& name : from.names())
    shapes.emplace_back(name, from.find(name).entry->shape.with_dtype(DType::kF32));
  ModelWriter writer(folder, shapes, int64_t{1} << 40);
  for (const auto& [name, shape] : shapes) {
    HostArray values(shape);
    const StoredTensor stored = from.find(name);
    stored.file->read_slice(*stored.entry, Box::whole(shape.dims), DType::kF32, values.data());
    writer.write(name, {values.data(), static_cast<size_t>(values.bytes())});
  }
  writer.finish();
  write_json_file(folder / "config.json", config);
}

std::vector<float> logits_of(const std::filesystem::path& folder, std::span<const int32_t> ids) {
  Recipe recipe = reference_recipe("llama");
  recipe.model_name_or_path = folder.string();
  Loaded model(recipe);
  Generator generator(model.devices, model.run, model.state);
  return generator.logits(ids);
}

TEST_P(GgufLogits, AreThoseOfTheDequantisedWeights) {
  const TempFolder folder;
  const std::filesystem::path made = folder / "made", plain = folder / "plain";
  std::filesystem::copy(unpacked(kGgufFiles / "models" / (GetParam() + ".gguf")), made,
                        std::filesystem::copy_options::copy_symlinks | std::filesystem::copy_options::recursive);
  nlohmann::json config = read_json_file(made / "config.json");
  EXPECT_EQ(config["torch_dtype"], "bfloat16");
  config["torch_dtype"] = "float32";
  write_json_file(made / "config.json", config);
  std::filesystem::create_directory(plain);
  const nlohmann::json original = read_json_file(reference_model(GetParam()) / "config.json");
  // The file has the text model only.
  write_dequantised(ModelRepository::open(made), config_known_to_gguf(GetParam(), text_level(original)), plain);
  const std::vector<int32_t> ids = reference_of(GetParam())["sequences"]["40"];
  const std::vector<float> got = logits_of(made, ids), wanted = logits_of(plain, ids);
  EXPECT_EQ(largest_difference(got, wanted), 0);
}

INSTANTIATE_TEST_SUITE_P(Families, GgufLogits, testing::ValuesIn(kGgufFamilies),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace fettle
