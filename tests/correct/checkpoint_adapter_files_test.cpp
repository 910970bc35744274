#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "checkpoint/peft/adapter_files.h"
#include "temp_folder.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
const fs::path kReference = fs::path(FETTLE_SOURCE_DIR) / "tests/reference/checkpoint";
constexpr AdapterSupport kAll{true, true};

TEST(AdapterFiles, ReadsWhatPeftWrote) {
  const AdapterFolder adapter = read_adapter(kReference / "adapter");
  EXPECT_EQ(adapter.config.r, 4);
  EXPECT_EQ(adapter.config.lora_alpha, 8);
  EXPECT_EQ(adapter.config.lora_dropout, 0.05);
  EXPECT_EQ(adapter.config.base_model_name_or_path, "some/base");
  EXPECT_THAT(adapter.config.target_modules, testing::UnorderedElementsAre("q_proj", "down_proj"));
  EXPECT_EQ(adapter.tensors.size(), 8u);
  const TensorEntry* a = adapter.find("model.layers.0.self_attn.q_proj", AdapterPart::kLoraA);
  ASSERT_NE(a, nullptr);
  EXPECT_EQ(a->shape, (Shape{DType::kF32, {4, 8}}));
  EXPECT_EQ(a->name, "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight");
  EXPECT_EQ(adapter.find("model.layers.1.self_attn.q_proj", AdapterPart::kLoraB)->shape.dims, (Dims{8, 2}));
  EXPECT_EQ(adapter.find("model.layers.0.self_attn.q_proj", AdapterPart::kMagnitude), nullptr);
  EXPECT_EQ(adapter.find("model.layers.0.self_attn.k_proj", AdapterPart::kLoraA), nullptr);
}

TEST(AdapterFiles, ReadsDoraAndSavedModules) {
  const AdapterFolder adapter = read_adapter(kReference / "adapter_dora", kAll);
  EXPECT_TRUE(adapter.config.use_dora);
  EXPECT_TRUE(adapter.config.use_rslora);
  EXPECT_EQ(adapter.config.lora_alpha, 3.5);
  EXPECT_THAT(adapter.config.modules_to_save, testing::ElementsAre("lm_head"));
  EXPECT_EQ(adapter.find("model.layers.1.self_attn.v_proj", AdapterPart::kMagnitude)->shape.dims, (Dims{4}));
  EXPECT_EQ(adapter.find("lm_head.weight", AdapterPart::kSaved)->shape.dims, (Dims{16, 8}));
}

TEST(AdapterFiles, RankAndAlphaByPattern) {
  AdapterConfig config = read_adapter_config(kReference / "adapter");
  EXPECT_EQ(config.rank("model.layers.1.self_attn.q_proj"), 2);
  EXPECT_EQ(config.rank("model.layers.11.self_attn.q_proj"), 4);
  EXPECT_EQ(config.alpha("model.layers.0.mlp.down_proj"), 12);
  EXPECT_EQ(config.alpha("model.layers.0.mlp.sdown_proj"), 8);
  EXPECT_EQ(config.scale("model.layers.1.self_attn.q_proj"), 8.0 / 2);
  EXPECT_EQ(config.scale("model.layers.0.mlp.down_proj"), 12.0 / 4);
  config.use_rslora = true;
  EXPECT_DOUBLE_EQ(config.scale("model.layers.1.self_attn.q_proj"), 8.0 / std::sqrt(2.0));
  config.rank_pattern = {{"layers\\.[0-9]+\\..*_proj", 3}, {"q_proj", 5}};
  EXPECT_EQ(config.rank("model.layers.7.self_attn.q_proj"), 3);
  EXPECT_EQ(config.rank("encoder.q_proj"), 5);
}

// Reads an adapter and writes it again.
void copy_adapter(const fs::path& from, const fs::path& to) {
  const AdapterFolder adapter = read_adapter(from, kAll);
  NamedShapes shapes;
  for (const AdapterTensor& tensor : adapter.tensors)
    shapes.emplace_back(adapter_key(tensor.module, tensor.part), tensor.entry->shape);
  SafetensorsWriter writer = begin_adapter(to, adapter.config, shapes);
  for (const AdapterTensor& tensor : adapter.tensors)
    adapter.file.with_bytes(*tensor.entry,
                            [&](auto bytes) { writer.write(adapter_key(tensor.module, tensor.part), bytes); });
  writer.finish();
}

TEST(AdapterFiles, CopyHasPeftsTensorBytesAndItsConfig) {
  for (const char* name : {"adapter", "adapter_dora"}) {
    TempFolder folder;
    copy_adapter(kReference / name, folder.path());
    EXPECT_EQ(read_text(folder / "adapter_model.safetensors"),
              read_text(kReference / name / "adapter_model.safetensors"))
        << name;
    const Json ours = Json::parse(read_text(folder / "adapter_config.json"));
    Json theirs = Json::parse(read_text(kReference / name / "adapter_config.json"));
    std::sort(theirs["target_modules"].begin(), theirs["target_modules"].end());
    for (const auto& [field, value] : ours.items()) EXPECT_EQ(value, theirs.at(field)) << name << " " << field;
  }
}

TEST(AdapterFiles, ConfigHasPeftsLayout) {
  AdapterConfig config;
  config.base_model_name_or_path = "models/b\u00e4r";
  config.target_modules = {"v_proj", "q_proj"};
  config.rank_pattern = {{"q_proj", 4}};
  config.alpha_pattern = {{"q_proj", 2.5}};
  EXPECT_EQ(to_json(config), R"({
  "alpha_pattern": {
    "q_proj": 2.5
  },
  "auto_mapping": null,
  "base_model_name_or_path": "models/b\u00e4r",
  "bias": "none",
  "fan_in_fan_out": false,
  "inference_mode": true,
  "init_lora_weights": true,
  "layers_pattern": null,
  "layers_to_transform": null,
  "lora_alpha": 16,
  "lora_dropout": 0.0,
  "modules_to_save": null,
  "peft_type": "LORA",
  "r": 8,
  "rank_pattern": {
    "q_proj": 4
  },
  "revision": null,
  "target_modules": [
    "q_proj",
    "v_proj"
  ],
  "task_type": "CAUSAL_LM",
  "use_dora": false,
  "use_rslora": false
})");
}

TEST(AdapterFiles, ModuleSelectionAndPatternAreKept) {
  TempFolder folder;
  write_text(folder / "adapter_config.json",
             R"({"peft_type":"LORA","r":2,"target_modules":"all-linear","exclude_modules":["lm_head"],
                 "layers_to_transform":[0,1],"layers_pattern":"layers","task_type":null,"base_model_name_or_path":null})");
  const AdapterConfig config = read_adapter_config(folder.path());
  EXPECT_EQ(config.target_pattern, "all-linear");
  EXPECT_EQ(config.lora_alpha, 8);  // PEFT's default
  const Json again = Json::parse(to_json(config));
  EXPECT_EQ(again["target_modules"], "all-linear");
  EXPECT_EQ(again["exclude_modules"], Json::array({"lm_head"}));
  EXPECT_EQ(again["layers_to_transform"], Json::array({0, 1}));
  EXPECT_EQ(again["layers_pattern"], "layers");
}

TEST(AdapterFiles, OldAndNewFieldsWithoutEffectAreAccepted) {
  TempFolder folder;
  write_text(folder / "adapter_config.json",
             R"({"peft_type":"LORA","r":2,"target_modules":["q"],"enable_lora":null,"merge_weights":false,
                 "init_lora_weights":"gaussian","loftq_config":{},"megatron_core":"megatron.core","some_new_thing":null,
                 "other":[],"auto_mapping":{"base_model_class":"X"},"revision":"main","peft_version":"9"})");
  EXPECT_EQ(read_adapter_config(folder.path()).r, 2);
}

TEST(AdapterFiles, KeysArePathsWithPrefixAndSuffix) {
  EXPECT_EQ(adapter_key("transformer.h.0.attn.c_attn", AdapterPart::kLoraA),
            "base_model.model.transformer.h.0.attn.c_attn.lora_A.weight");
  EXPECT_EQ(adapter_key("m", AdapterPart::kLoraB), "base_model.model.m.lora_B.weight");
  EXPECT_EQ(adapter_key("m", AdapterPart::kMagnitude), "base_model.model.m.lora_magnitude_vector");
  EXPECT_EQ(adapter_key("score.weight", AdapterPart::kSaved), "base_model.model.score.weight");
}

}  // namespace
}  // namespace fettle
