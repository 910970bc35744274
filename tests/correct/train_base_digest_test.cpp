// Tests how a checkpoint recognises its base. The digest covers all files that a run reads in addition to the
// checkpoint, but not their paths.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "bitsandbytes_models.h"
#include "checkpoint/model_writer.h"
#include "model_copies.h"
#include "resolve_run.h"
#include "temp_folder.h"
#include "train/checkpoints/base_digest.h"

namespace fettle {
namespace {

const std::string kDownProj = "model.layers.1.mlp.down_proj.weight";

class BaseDigest : public testing::Test {
 protected:
  BaseDigest() {
    recipe.model_name_or_path = copy_model(folder / "model");
    recipe.finetuning_type = "lora";
  }
  nlohmann::json identity() const {
    const ModelRepository repository = ModelRepository::open(recipe.model_name_or_path);
    nlohmann::json out = base_identity(make_run(recipe, repository.config(), "config.json", 1), repository);
    out.erase("paths");
    return out;
  }
  TempFolder folder;
  Recipe recipe = reference_recipe("llama");
};

TEST_F(BaseDigest, IsTheSameForCopiesAndOtherShards) {
  const nlohmann::json wanted = identity();
  EXPECT_EQ(wanted["adapters"], "none");
  EXPECT_EQ(wanted["ref_model"], "none");
  const std::string model = recipe.model_name_or_path;
  recipe.model_name_or_path = copy_model(folder / "copy");
  EXPECT_EQ(identity(), wanted);

  const SafetensorsFile whole = SafetensorsFile::open(folder / "model/model.safetensors");
  NamedShapes tensors;
  for (const TensorEntry& entry : whole.entries()) tensors.emplace_back(entry.name, entry.shape);
  std::filesystem::remove(folder / "copy/model.safetensors");
  ModelWriter writer(folder / "copy", tensors, 20000);
  for (const TensorEntry& entry : whole.entries())
    whole.with_bytes(entry, [&](std::span<const std::byte> bytes) { writer.write(entry.name, bytes); });
  writer.finish();
  ASSERT_GT(writer.shard_count(), 1u);
  EXPECT_EQ(identity(), wanted);
}

TEST_F(BaseDigest, OfFrozenWeightsChangesWithEachOfThem) {
  const nlohmann::json wanted = identity();
  recipe.model_name_or_path = copy_model(folder / "other");
  change_tensor(folder / "other/model.safetensors", kDownProj);
  EXPECT_EQ(identity()["config"], wanted["config"]);
  EXPECT_NE(identity()["weights"], wanted["weights"]);
}

// The tensor of each expert is sampled. The values of all experts together are not read.
TEST_F(BaseDigest, OfExpertsApartSamplesTheTensorOfEachExpert) {
  write_experts_apart(reference_model("qwen3_5_moe"), folder / "apart");
  recipe.model_name_or_path = (folder / "apart").string();
  const std::filesystem::path file = folder / "apart/model.safetensors";
  const std::string experts = "model.language_model.layers.0.mlp.experts.";
  nlohmann::json last = identity()["weights"];
  const TensorEntry up = *SafetensorsFile::open(file).find(experts + "5.up_proj.weight");
  ASSERT_EQ(up.bytes, 8192) << "the sample is the 4096 bytes in the middle";
  for (const auto& [at, is_sampled] : {std::pair{0, false}, {8188, false}, {4096, true}}) {
    std::fstream out(file, std::ios::in | std::ios::out | std::ios::binary);
    out.seekp(up.offset + at);
    out << std::string(4, '\1');
    out.close();
    const nlohmann::json now = identity()["weights"];
    EXPECT_EQ(now != last, is_sampled) << at;
    last = now;
  }
  for (const char* module : {"0.gate_proj", "5.up_proj", "7.down_proj"}) {
    change_tensor(file, experts + module + ".weight");
    const nlohmann::json now = identity()["weights"];
    EXPECT_NE(now, last) << module;
    last = now;
  }
}

// The values of such weights come from several stored tensors.
TEST_F(BaseDigest, OfWeightsInFewBitsHasAllTheirTensors) {
  const std::string mlp = "model.layers.0.mlp.", experts = mlp + "experts.", down = mlp + "down_proj.";
  const std::vector<std::pair<std::string, std::vector<std::string>>> models{
      {"gpt_oss_mxfp4", {experts + "down_proj_blocks", experts + "down_proj_scales", experts + "gate_up_proj_blocks"}},
      {"qwen3_fp8", {down + "weight", down + "weight_scale_inv"}},
      {"qwen3_gptq", {down + "qweight", down + "qzeros", down + "scales", down + "g_idx"}},
      {"qwen3_moe_packed", {experts + "3.up_proj.weight_packed", experts + "3.up_proj.weight_scale"}}};
  for (const auto& [model, tensors] : models) {
    recipe.model_name_or_path = copy_model(folder / model, model);
    nlohmann::json last = identity();
    for (const std::string& tensor : tensors) {
      change_byte(folder / model / "model.safetensors", tensor);
      const nlohmann::json now = identity();
      EXPECT_TRUE(now["weights"] != last["weights"] || now["weights_parts"] != last["weights_parts"]) << tensor;
      EXPECT_EQ(now["config"], last["config"]);
      last = now;
    }
  }
  EXPECT_EQ(identity(), identity());
}

TEST_F(BaseDigest, OfExpertsApartIn8BitFloatsHasTheirFactors) {
  const AddWeight add = [](NamedArrays& out, const std::string& module, int64_t n, int64_t k, const auto&) {
    out.emplace_back(module + ".weight", HostArray::zeros({DType::kF8E4M3FN, {n, k}}));
    out.emplace_back(module + ".weight_scale_inv", HostArray::zeros({DType::kF32, {(n + 15) / 16, (k + 15) / 16}}));
  };
  const std::filesystem::path model = reference_model("qwen3_5_moe");
  nlohmann::json config = ModelRepository::open(model).config();
  config["quantization_config"] = {{"quant_method", "fp8"}, {"weight_block_size", {16, 16}}};
  write_model(folder / "fp8", config, with_stored_weights(model, add, [](const std::string&) { return false; }));
  recipe.model_name_or_path = (folder / "fp8").string();
  const nlohmann::json wanted = identity();
  change_byte(folder / "fp8/model.safetensors", "model.language_model.layers.0.mlp.experts.3.up_proj.weight_scale_inv");
  EXPECT_EQ(identity()["weights"], wanted["weights"]);
  EXPECT_NE(identity()["weights_parts"], wanted["weights_parts"]);
}

TEST_F(BaseDigest, OfExpertsOfBitsandbytesHasTheirScales) {
  write_in_nf4(reference_model("qwen3_moe"), folder / "nf4", folder / "values");
  recipe.model_name_or_path = (folder / "nf4").string();
  const nlohmann::json wanted = identity();
  for (const char* part : {".absmax", ".nested_absmax"}) {
    const nlohmann::json last = identity();
    change_byte(folder / "nf4/model.safetensors", std::string("model.layers.0.mlp.experts.3.up_proj.weight") + part);
    EXPECT_EQ(identity()["weights"], wanted["weights"]) << part;
    EXPECT_NE(identity()["weights_parts"], last["weights_parts"]) << part;
  }
}

TEST_F(BaseDigest, OfAReferenceModelInFewBitsHasAllItsTensors) {
  recipe.model_name_or_path = copy_model(folder / "floats", "qwen3");
  recipe.finetuning_type = "full";
  recipe.stage = "dpo";
  recipe.ref_model = copy_model(folder / "fp8", "qwen3_fp8");
  const nlohmann::json wanted = identity();
  EXPECT_EQ(wanted["weights_parts"], "none");
  change_byte(folder / "fp8/model.safetensors", "model.layers.0.mlp.down_proj.weight_scale_inv");
  EXPECT_EQ(identity()["ref_model"], wanted["ref_model"]);
  EXPECT_NE(identity()["ref_model_parts"], wanted["ref_model_parts"]);
}

TEST_F(BaseDigest, OfConfigChangesWithFieldsThatAffectTheComputation) {
  const nlohmann::json wanted = identity();
  auto config = nlohmann::json::parse(read_text(folder / "model/config.json"));
  config.update({{"transformers_version", "9"}, {"_name_or_path", "elsewhere"}, {"rope_scaling", nullptr}});
  write_text(folder / "model/config.json", config.dump());
  EXPECT_EQ(identity(), wanted);
  config["rms_norm_eps"] = 0.25;
  write_text(folder / "model/config.json", config.dump());
  EXPECT_NE(identity()["config"], wanted["config"]);
}

TEST_F(BaseDigest, OfFullTuningHasWeightsOnlyWithAReferenceModel) {
  recipe.finetuning_type = "full";
  EXPECT_EQ(identity()["weights"], "none");
  recipe.stage = "dpo";
  const nlohmann::json own = identity();
  EXPECT_NE(own["weights"], "none");
  EXPECT_EQ(own["ref_model"], "none");

  recipe.ref_model = copy_model(folder / "reference");
  const nlohmann::json named = identity();
  EXPECT_EQ(named["weights"], "none");
  EXPECT_NE(named["ref_model"], "none");
  change_tensor(folder / "reference/model.safetensors", kDownProj);
  EXPECT_NE(identity()["ref_model"], named["ref_model"]);
}

TEST_F(BaseDigest, OfFreezeTuningHasTheFrozenLayersOnly) {
  recipe.finetuning_type = "freeze";
  recipe.freeze_trainable_layers = 1;  // trains only the last layer
  const nlohmann::json wanted = identity();
  EXPECT_NE(wanted["weights"], "none");
  change_tensor(folder / "model/model.safetensors", kDownProj);
  EXPECT_EQ(identity()["weights"], wanted["weights"]);
  change_tensor(folder / "model/model.safetensors", "model.layers.0.mlp.down_proj.weight");
  EXPECT_NE(identity()["weights"], wanted["weights"]);
}

TEST_F(BaseDigest, OfMergedAdaptersHasTheirWeightsAndScale) {
  const std::filesystem::path adapter = folder / "adapter";
  std::filesystem::copy(reference_model("llama") / "adapter_final", adapter);
  recipe.adapter_name_or_path = {adapter.string()};
  EXPECT_EQ(identity()["adapters"], "none") << "its weights are in the checkpoint";
  recipe.create_new_adapter = true;
  const nlohmann::json wanted = identity();
  EXPECT_NE(wanted["adapters"], "none");
  auto config = nlohmann::json::parse(read_text(adapter / "adapter_config.json"));
  config["base_model_name_or_path"] = "elsewhere";
  write_text(adapter / "adapter_config.json", config.dump());
  EXPECT_EQ(identity(), wanted);
  config["lora_alpha"] = 3;
  write_text(adapter / "adapter_config.json", config.dump());
  EXPECT_NE(identity()["adapters"], wanted["adapters"]);
}

}  // namespace
}  // namespace fettle
