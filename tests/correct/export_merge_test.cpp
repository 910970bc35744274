// Tests the export. Merged weights and logits are compared with PEFT's, which are recorded. Also tests shards, dtypes,
// and that the base does not change.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "checkpoint/load.h"
#include "checkpoint/model_writer.h"
#include "checkpoint/peft/adapter_files.h"
#include "export/export.h"
#include "families.h"
#include "gguf_reference.h"
#include "graph/ops.h"
#include "model_copies.h"
#include "models/blocks/loss.h"
#include "paths.h"
#include "resolve_run.h"
#include "run/device_request.h"
#include "step/forward.h"
#include "step/state/train_state.h"
#include "temp_folder.h"

namespace fettle {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;
const fs::path kModels = source_folder() / "tests/reference/models";

Recipe export_recipe(const fs::path& model, const fs::path& to) {
  Recipe recipe;
  recipe.model_name_or_path = model.string();
  recipe.export_dir = to.string();
  recipe.plugin = "cpu";
  return recipe;
}

Recipe merge_recipe(const std::string& model, const fs::path& to) {
  Recipe recipe = export_recipe(kModels / model, to);
  recipe.adapter_name_or_path = {(kModels / model / "adapter_final").string()};
  return recipe;
}

Json read_json(const fs::path& file) {
  return Json::parse(read_text(file));
}

// Returns the dtype and the bytes of every tensor by name.
std::map<std::string, std::pair<DType, std::vector<std::byte>>> tensors(const fs::path& folder) {
  const ModelRepository repository = ModelRepository::open(folder);
  std::map<std::string, std::pair<DType, std::vector<std::byte>>> out;
  for (const std::string& name : repository.names()) {
    const StoredTensor stored = repository.find(name);
    stored.file->with_bytes(*stored.entry, [&](auto bytes) {
      out[name] = {stored.entry->shape.dtype, {bytes.begin(), bytes.end()}};
    });
  }
  return out;
}

HostArray logits_of(const fs::path& folder, const std::vector<int32_t>& ids) {
  const Recipe recipe = export_recipe(folder, "");
  Devices devices(device_request(recipe));
  const ModelRepository repository = ModelRepository::open(folder);
  const auto run = make_run(recipe, repository.config(), "config.json", 1, Purpose::kInference);
  const Shape shape{DType::kI32, {1, static_cast<int64_t>(ids.size())}};
  Program program;
  BuildScope scope(program.block());
  const Weights weights = add_weight_inputs(program, run);
  Forward f = make_forward(run, weights, {.adapted = false});
  f.tokens = program.input("tokens", shape);
  f.positions = broadcast_to(iota({DType::kI32, {shape.dims[1]}}, 0), shape.dims);
  f.segments = full(1, shape);
  program.output("logits", logits(f, run.model.family->forward(f), head_of(run.model, weights)));
  const Executable executable = devices.compile(program);
  TrainState state = load_state(devices, run, repository, false);
  DeviceBuffer tokens = replicate(devices, HostArray::from<int32_t>(shape, ids));
  Bindings inputs = state.bindings();
  inputs["tokens"] = &tokens;
  return run_program(executable, inputs).at("logits").download();
}

class Export : public testing::TestWithParam<std::string> {};

TEST_P(Export, MergedLogitsAreThoseOfTheAdapter) {
  const TempFolder folder;
  const ExportReport report = run_export(Request(merge_recipe(GetParam(), folder / "merged"), Command::kExport));
  const std::vector<int32_t> ids = read_json(kModels / GetParam() / "reference.json")["sequences"]["17"];
  const HostArray got = logits_of(folder / "merged", ids);
  const SafetensorsFile recorded = SafetensorsFile::open(kModels / GetParam() / "logits.safetensors");
  const HostArray wanted = recorded.read(*recorded.find("lora_logits_17"));
  double largest = 0;
  for (int64_t i = 0; i < wanted.shape().elements(); ++i)
    largest = std::max(largest, std::abs(static_cast<double>(got.as<float>()[i]) - wanted.as<float>()[i]));
  EXPECT_LT(largest, 1e-4);

  ASSERT_TRUE(report.logits);
  EXPECT_LT(report.logits->difference_from_adapter, 1e-4 * report.logits->scale);
  EXPECT_GT(report.logits->difference_from_base, 5e-3 * report.logits->scale);
  EXPECT_NEAR(report.logits->kept, 1, 1e-3);
  EXPECT_THAT(format_export(report), testing::HasSubstr("between merged model and base + adapter"));
}

INSTANTIATE_TEST_SUITE_P(Families, Export, testing::ValuesIn(kFamilies), [](const auto& info) { return info.param; });

struct AdapterOfExperts {
  const char* model;
  const char* adapter;
  int64_t tensors;  // number of the checkpoint's tensors that the merge changes
};

class MergedExperts : public testing::TestWithParam<AdapterOfExperts> {};

TEST_P(MergedExperts, AreThoseOfTheAdapter) {
  const auto& [model, adapter, tensors] = GetParam();
  const TempFolder folder;
  Recipe recipe = export_recipe(kModels / model, folder / "merged");
  recipe.adapter_name_or_path = {(kModels / model / "variants" / (adapter + std::string("_final"))).string()};
  const ExportReport report = run_export(Request(recipe, Command::kExport));
  EXPECT_EQ(report.merged_tensors, tensors);
  EXPECT_LT(report.logits->difference_from_adapter, 1e-4 * report.logits->scale);
  EXPECT_GT(report.logits->difference_from_base, 1e-2 * report.logits->scale);
  EXPECT_NEAR(report.logits->kept, 1, 1e-3);
}

// Some checkpoints have one tensor per expert. Others have one tensor for all experts, as [E, in, out] or as [E, out,
// in]. The LoRA weights of a fused gate_up have twice the rank.
const std::vector<AdapterOfExperts> kAdaptersOfExperts{
    {"mixtral", "experts", 2 * (8 * 3 + 2)},     // 2 layers: 8 experts of 3 weights, q_proj, v_proj
    {"gpt_oss", "experts", 2 * (2 + 1)},         // 2 layers: gate_up and down of all experts, q_proj
    {"qwen3_5_moe", "experts", 8 * 3 + 6},       // 8 layers: gate_up, down, router; 6 layers: out_proj
    {"glm4_moe", "all_linear", 2 * 25 + 3 * 4},  // 2 layers: 8 experts of 3, router; 3 layers: attention
    {"nemotron_h_moe", "experts", 3 * 17 + 1},   // 3 layers: 8 experts of 2 weights, router; 1 layer: q_proj
    {"lfm2_moe", "experts", 3 * 25 + 1},         // 3 layers: 8 experts of 3 weights, router; 1 layer: q_proj
    {"llama4", "experts", 2 * 2 + 4},            // 2 layers: gate_up and down; 4 layers: q_proj
    {"granite4", "experts", 5 * 3 + 1},          // 5 layers: gate_up, down, router; 1 layer: q_proj
    {"deepseek_v2", "all_linear", 2 * (16 * 3 + 1) + 3 * 4},  // 2 layers: 16 experts, router; 3 layers: attention
    {"deepseek_v3", "all_linear", 2 * (16 * 3 + 1) + 3 * 5},
    {"glm4_moe_lite", "all_linear", 2 * (8 * 3 + 1) + 3 * 5},
    {"qwen2_moe", "all_linear", 2 * 4 + 3 * 4 + 3},  // the routed experts have no LoRA weights
    {"qwen3_next", "all_linear", 7 * (8 * 3 + 2) + 6 * 3 + 2 * 4},
    {"minimax_m2", "all_linear", 2 * (8 * 3 + 1 + 4)},
    {"ernie4_5_moe", "all_linear", 2 * (8 * 3 + 1) + 3 * 4},
    {"granitemoe", "experts", 2 * 3 + 2},
    {"gemma4_moe", "all_linear", 4 * 4 + 2 * 3 + 6 * 4},
    {"qwen2_moe", "experts", 2 * 25 + 3},        // 2 layers: 8 experts of 3 weights, router; 3 layers: q_proj
    {"gemma4_moe", "experts", 6 * (2 + 1 + 1)},  // 6 layers: gate_up, down, router, q_proj
    // PEFT's all-linear leaves the experts of these models without LoRA weights, except those of qwen3_moe and
    // mixtral.
    {"gpt_oss", "all_linear", 2 * 4},
    {"qwen3_5_moe", "all_linear", 6 * 5 + 8 * 4 + 2 * 4},
    {"qwen3_moe", "all_linear", 2 * (16 * 3 + 1 + 4)},
    {"mixtral", "all_linear", 2 * (8 * 3 + 1 + 4)},
    {"llama4", "all_linear", 2 * 3 + 2 * 3 + 4 * 4},
    {"granite4", "all_linear", 4 * 2 + 5 * 2 + 4},
    {"lfm2_moe", "all_linear", 3 * 2 + 3 + 4},
    {"nemotron_h_moe", "all_linear", 3 * 5 + 4},
    {"gemma4_e2b", "all_linear", 8 * 7 + 4 * 2 + 1}};  // keys and values of 4 layers; one outside of the layers

INSTANTIATE_TEST_SUITE_P(Adapters, MergedExperts, testing::ValuesIn(kAdaptersOfExperts),
                         [](const auto& info) { return info.param.model + std::string("_") + info.param.adapter; });

// A run rounds the weights of a GGUF file to bfloat16. The merge starts from the same rounded values, even if it writes
// float32.
TEST(ExportFiles, AdapterOfAGgufFileIsMergedIntoTheValuesOfTheRun) {
  const TempFolder folder;
  Recipe recipe = merge_recipe("llama", folder / "merged");
  recipe.model_name_or_path = unpacked(kGgufFiles / "models/llama.gguf").string();
  recipe.export_dtype = "float32";
  const ExportReport report = run_export(Request(recipe, Command::kExport));
  EXPECT_LT(report.logits->difference_from_adapter, 1e-4 * report.logits->scale);
  EXPECT_GT(report.logits->difference_from_base, 1e-2 * report.logits->scale);
  EXPECT_NEAR(report.logits->kept, 1, 1e-3);
}

struct BaseCase {
  std::string model;
  bool experts;  // the adapter has weights of the experts
};
class BaseIn4Bits : public testing::TestWithParam<BaseCase> {};

// The run decodes the codes on the device, the export decodes them on the host. Both must get the same values.
TEST_P(BaseIn4Bits, HasTheValuesOfTheRun) {
  const auto& [model, experts] = GetParam();
  const TempFolder folder;
  Recipe recipe = export_recipe(kModels / model, folder / "merged");
  recipe.adapter_name_or_path = {(kModels / model / (experts ? "variants/experts_final" : "adapter_final")).string()};
  recipe.quantization_bit = 4;
  const auto run = make_run(recipe, ModelRepository::open(kModels / model).config(), "config.json", 1);
  ASSERT_FALSE(run.quantised.empty());
  EXPECT_TRUE(!experts || std::ranges::any_of(run.quantised,
                                              [](const QuantisedWeight& weight) { return weight.base.has_experts(); }));
  const ExportReport report = run_export(Request(recipe, Command::kExport));
  EXPECT_LT(report.logits->difference_from_adapter, 1e-4 * report.logits->scale);
  EXPECT_GT(report.logits->difference_from_base, 1e-2 * report.logits->scale);
}

INSTANTIATE_TEST_SUITE_P(Models, BaseIn4Bits,
                         testing::Values(BaseCase{"mixtral", true}, BaseCase{"qwen3_5_moe", true},
                                         BaseCase{"gpt_oss", true}, BaseCase{"granite4", true},
                                         BaseCase{"llama4", false}, BaseCase{"lfm2", false},
                                         BaseCase{"falcon_h1", false}, BaseCase{"nemotron_h", false}),
                         [](const auto& info) { return info.param.model; });

class ChangedTensors : public testing::TestWithParam<std::string> {};

TEST_P(ChangedTensors, AreThoseOfTheAdapter) {
  const std::string model = GetParam();
  const TempFolder folder;
  const ExportReport report = run_export(Request(merge_recipe(model, folder / "merged"), Command::kExport));
  // The adapter's name of a module may differ from the checkpoint's name, but only in the part before "layers.".
  std::set<std::string> adapted;
  const std::string end = ".lora_A.weight";
  const SafetensorsFile adapter = SafetensorsFile::open(kModels / model / "adapter_final/adapter_model.safetensors");
  for (const TensorEntry& entry : adapter.entries())
    if (entry.name.ends_with(end)) {
      const std::string module = entry.name.substr(0, entry.name.size() - end.size());
      const size_t layers = module.find("layers.");
      adapted.insert(module.substr(layers != std::string::npos ? layers : module.rfind('.') + 1) + ".weight");
    }
  auto base = tensors(kModels / model), merged = tensors(folder / "merged");
  int64_t changed = 0, of_encoder = 0;
  for (const auto& [name, value] : base) {
    ASSERT_TRUE(merged.contains(name)) << name;
    const bool text = model == "llama" || name.find("language_model.") != std::string::npos;
    const size_t layers = name.find("layers.");
    const bool has_lora =
        text &&
        adapted.contains(name.substr(layers != std::string::npos ? layers : name.rfind('.', name.size() - 8) + 1));
    EXPECT_EQ(merged[name] != value, has_lora) << name;
    changed += has_lora;
    of_encoder += !text;
  }
  EXPECT_EQ(merged.size(), base.size());
  EXPECT_EQ(static_cast<size_t>(changed), adapted.size());
  EXPECT_EQ(report.merged_tensors, changed);
  EXPECT_EQ(of_encoder > 0, model != "llama");
  for (const char* file : {"config.json", "tokenizer.json", "generation_config.json"})
    EXPECT_EQ(read_text(folder / "merged" / file), read_text(kModels / model / file)) << file;
  EXPECT_FALSE(fs::exists(folder / "merged/adapter_config.json"));
}

// All except llama also have an encoder for images. Its layers have names like those of the text model.
INSTANTIATE_TEST_SUITE_P(Models, ChangedTensors,
                         testing::Values("llama", "gemma3_wrapped", "mistral3", "qwen3_5", "llama4", "gemma4_e2b"),
                         [](const auto& info) { return info.param; });

class LaterLayers : public testing::TestWithParam<std::string> {};

// Layers that predict tokens further ahead (MTP) are copied.
TEST_P(LaterLayers, KeepTheirBytes) {
  const std::string model = GetParam();
  const TempFolder folder;
  const std::vector<std::string> later = write_with_later_layers(folder / "base", model);
  Recipe recipe = merge_recipe(model, folder / "merged");
  recipe.model_name_or_path = (folder / "base").string();
  const ExportReport report = run_export(Request(recipe, Command::kExport));
  EXPECT_GT(report.merged_tensors, 0);
  EXPECT_GT(later.size(), 10u);
  expect_same_tensors(folder / "merged", folder / "base", later);
}

INSTANTIATE_TEST_SUITE_P(Models, LaterLayers,
                         testing::Values("qwen3_5", "qwen3_5_text", "qwen3_next", "deepseek_v3", "glm4_moe"),
                         [](const auto& info) { return info.param; });

TEST(ExportFiles, AllChatTemplatesGoAlong) {
  const TempFolder folder;
  fs::copy(kModels / "llama", folder / "base");
  const std::vector<std::string> files = {"chat_template.jinja", "additional_chat_templates/rag.jinja",
                                          "additional_chat_templates/tool_use.jinja"};
  for (const std::string& file : files) write_text(folder / "base" / file, "{{ messages }} " + file);
  Recipe recipe = export_recipe(folder / "base", folder / "merged");
  recipe.adapter_name_or_path = {(kModels / "llama/adapter_final").string()};
  run_export(Request(recipe, Command::kExport));
  for (const std::string& file : files) EXPECT_EQ(read_text(folder / "merged" / file), "{{ messages }} " + file);
}

TEST(ExportFiles, TheBaseAloneKeepsItsBytes) {
  const TempFolder folder;
  for (const char* model : {"llama", "gpt2", "phi3"}) {
    const ExportReport report = run_export(Request(export_recipe(kModels / model, folder / model), Command::kExport));
    EXPECT_EQ(tensors(folder / model), tensors(kModels / model));
    EXPECT_EQ(read_text(folder / model / "model.safetensors"), read_text(kModels / model / "model.safetensors"));
    EXPECT_FALSE(report.merged);
    EXPECT_EQ(report.files, 1u);
  }
}

// PyTorch files (one or two per model) become safetensors files with the same values.
TEST(ExportFiles, BinBecomesSafetensors) {
  const TempFolder folder;
  for (const char* model : {"baichuan7b", "baichuan13b"}) {
    run_export(Request(export_recipe(kModels / model, folder / model), Command::kExport));
    EXPECT_TRUE(fs::exists(folder / model / "model.safetensors"));
    EXPECT_FALSE(fs::exists(folder / model / "pytorch_model.bin.index.json"));
    EXPECT_EQ(tensors(folder / model), tensors(kModels / model));
  }
}

TEST(ExportFiles, ShardsHaveAnIndex) {
  const TempFolder folder;
  Recipe recipe = merge_recipe("llama", folder / "sharded");
  recipe.export_size = 1e-4;  // 100 kB
  const ExportReport report = run_export(Request(recipe, Command::kExport));
  EXPECT_GT(report.files, 2u);
  EXPECT_FALSE(fs::exists(folder / "sharded/model.safetensors"));
  const Json index = read_json(folder / "sharded/model.safetensors.index.json");
  EXPECT_EQ(index["weight_map"].size(), tensors(kModels / "llama").size());
  EXPECT_EQ(index["metadata"]["total_size"], report.bytes);
  recipe.export_dir = (folder / "whole").string();
  recipe.export_size = 5;
  run_export(Request(recipe, Command::kExport));
  EXPECT_EQ(tensors(folder / "sharded"), tensors(folder / "whole"));

  // Exports the shards again, into one file.
  run_export(Request(export_recipe(folder / "sharded", folder / "joined"), Command::kExport));
  EXPECT_EQ(read_text(folder / "joined/model.safetensors"), read_text(folder / "whole/model.safetensors"));
}

// Qwen 3.5 states the dtype only in text_config.
TEST(ExportFiles, DtypeOfTheTextModelOnly) {
  const TempFolder folder;
  copy_model(folder / "model", "gemma3_wrapped");
  Json config = read_json(folder / "model/config.json");
  config.erase("dtype");
  write_text(folder / "model/config.json", config.dump());
  Recipe recipe = export_recipe(folder / "model", folder / "out");
  recipe.export_dtype = "float16";
  run_export(Request(recipe, Command::kExport));
  const Json written = read_json(folder / "out/config.json");
  EXPECT_EQ(written["text_config"]["dtype"], "float16");
  EXPECT_EQ(written["vision_config"]["dtype"], "float16");
  EXPECT_FALSE(written.contains("torch_dtype") || written.contains("dtype"));
  EXPECT_EQ(make_model(written, "config.json").config.dtype, DType::kF16);
}

TEST(ExportFiles, DtypeChangesWeightsAndConfig) {
  const TempFolder folder;
  Recipe recipe = merge_recipe("llama", folder / "bf16");
  recipe.export_dtype = "bfloat16";
  const ExportReport report = run_export(Request(recipe, Command::kExport));
  EXPECT_EQ(read_json(folder / "bf16/config.json")["dtype"], "bfloat16");
  EXPECT_FALSE(read_json(folder / "bf16/config.json").contains("torch_dtype"));
  recipe.export_dir = (folder / "f32").string();
  recipe.export_dtype = "";
  run_export(Request(recipe, Command::kExport));
  const ModelRepository low = ModelRepository::open(folder / "bf16"), full = ModelRepository::open(folder / "f32");
  for (const std::string& name : full.names()) {
    const StoredTensor x = low.find(name), y = full.find(name);
    ASSERT_EQ(x.entry->shape.dtype, DType::kBF16);
    const HostArray wanted = y.file->read(*y.entry).to(DType::kBF16), got = x.file->read(*x.entry);
    EXPECT_EQ(std::memcmp(got.data(), wanted.data(), wanted.bytes()), 0) << name << ": rounded more than once";
  }
  EXPECT_LT(report.logits->difference_from_adapter, report.logits->bound);
  EXPECT_GT(report.logits->difference_from_adapter, 0);
  EXPECT_NEAR(report.logits->bound, 5e-2 * report.logits->scale, 1e-9);
  EXPECT_NEAR(report.logits->kept, 1, 0.1);
}

TEST(ExportFiles, TheRecipesPrecisionDoesNotWeakenTheCheck) {
  const TempFolder folder;
  Recipe recipe = merge_recipe("llama", folder / "merged");
  recipe.bf16 = true;
  recipe.lora_dtype = "bfloat16";
  EXPECT_LT(run_export(Request(recipe, Command::kExport)).logits->difference_from_adapter, 1e-4);
}

// config.json may name a narrower dtype than that of the weights. The check must not round the weights that it reads.
TEST(ExportFiles, WeightsWiderThanTheConfigSays) {
  const TempFolder folder;
  fs::copy(kModels / "llama", folder / "model", fs::copy_options::recursive);
  Json config = read_json(folder / "model/config.json");
  config.erase("dtype");
  config["torch_dtype"] = "bfloat16";
  write_text(folder / "model/config.json", config.dump());
  Recipe recipe = merge_recipe("llama", folder / "merged");
  recipe.model_name_or_path = (folder / "model").string();
  const ExportReport report = run_export(Request(recipe, Command::kExport));
  EXPECT_LT(report.logits->difference_from_adapter, 1e-4);
  for (const auto& [name, tensor] : tensors(folder / "merged")) EXPECT_EQ(tensor.first, DType::kF32) << name;
}

// The export merges weights in blocks of 4 MiB (as f32). The weights of this model are larger than a block.
TEST(ExportFiles, LargeWeightsAreMergedBlockByBlock) {
  const TempFolder folder;
  Json config = read_json(kModels / "llama/config.json");
  config["intermediate_size"] = 20000;
  config["num_hidden_layers"] = 1;
  write_text(folder / "base/config.json", config.dump());
  const Model model = make_model(config, "config.json");
  uint32_t state = 1;
  auto random = [&](const Dims& dims, float size) {
    HostArray values({DType::kF32, dims});
    for (float& value : values.as<float>()) {
      state = state * 1664525u + 1013904223u;
      value = size * (static_cast<float>(state >> 8) / 8388608.0f - 1);
    }
    return values;
  };
  auto write = [](auto& writer, const std::string& name, const HostArray& values) {
    writer.write(name, {values.data(), static_cast<size_t>(values.bytes())});
  };
  NamedShapes shapes;
  for (const Param& param : model.params)
    shapes.emplace_back(name_of_layer(param.hf_name, 0), Shape{DType::kF32, param.dims});
  ModelWriter base(folder / "base", shapes, int64_t{1} << 30);
  for (const auto& [name, shape] : shapes) write(base, name, random(shape.dims, 0.05f));
  base.finish();

  fs::create_directories(folder / "adapter");
  const std::string mlp = "model.layers.0.mlp.";
  NamedShapes pairs;
  for (const auto& [module, in, out] : {std::tuple{"gate_proj", 64, 20000}, std::tuple{"down_proj", 20000, 64}}) {
    pairs.emplace_back(adapter_key(mlp + module, AdapterPart::kLoraA), Shape{DType::kF32, {4, in}});
    pairs.emplace_back(adapter_key(mlp + module, AdapterPart::kLoraB), Shape{DType::kF32, {out, 4}});
  }
  AdapterConfig options{.r = 4, .lora_alpha = 8, .target_modules = {"gate_proj", "down_proj"}};
  SafetensorsWriter adapter = begin_adapter(folder / "adapter", options, pairs);
  std::map<std::string, HostArray> parts;
  for (const auto& [name, shape] : pairs) write(adapter, name, parts[name] = random(shape.dims, 0.1f));
  adapter.finish();

  Recipe recipe = export_recipe(folder / "base", folder / "merged");
  recipe.adapter_name_or_path = {(folder / "adapter").string()};
  const ExportReport report = run_export(Request(recipe, Command::kExport));
  EXPECT_EQ(report.merged_tensors, 2);
  EXPECT_NEAR(report.logits->kept, 1, 1e-3);
  const ModelRepository before = ModelRepository::open(folder / "base"),
                        after = ModelRepository::open(folder / "merged");
  for (const char* module : {"gate_proj", "down_proj"}) {
    const StoredTensor was = before.find(mlp + module + ".weight"), is = after.find(mlp + module + ".weight");
    const HostArray w = was.file->read(*was.entry), got = is.file->read(*is.entry);
    const HostArray& a = parts[adapter_key(mlp + module, AdapterPart::kLoraA)];
    const HostArray& b = parts[adapter_key(mlp + module, AdapterPart::kLoraB)];
    const int64_t in = a.shape().dims[1];
    for (int64_t i = 0; i < w.shape().elements(); ++i) {
      double wanted = w.as<float>()[i];
      for (int64_t k = 0; k < 4; ++k) wanted += 2.0 * b.as<float>()[i / in * 4 + k] * a.as<float>()[k * in + i % in];
      ASSERT_NEAR(got.as<float>()[i], wanted, 1e-6) << module << " " << i;
    }
  }
}

TEST(ExportFiles, OlderConfigsKeepTheirSpelling) {
  const TempFolder folder;
  fs::create_directories(folder / "old");
  for (const char* file : {"model.safetensors", "tokenizer.json"})
    fs::copy_file(kModels / "llama" / file, folder / "old" / file);
  fs::copy_file(kModels / "llama/config_v4.json", folder / "old/config.json");
  Recipe recipe = export_recipe(folder / "old", folder / "out");
  recipe.export_dtype = "float16";
  run_export(Request(recipe, Command::kExport));
  EXPECT_EQ(read_json(folder / "out/config.json")["torch_dtype"], "float16");
  EXPECT_FALSE(read_json(folder / "out/config.json").contains("dtype"));
}

// Rounded to bfloat16, a router's correction would choose other experts. Full tuning keeps it in float32, too. Layers
// that predict tokens further ahead have corrections, too.
TEST(ExportFiles, TheCorrectionOfARouterStaysFloat32) {
  const TempFolder folder;
  const std::vector<std::string> later = write_with_later_layers(folder / "base", "deepseek_v3");
  EXPECT_TRUE(std::ranges::any_of(later, [](const auto& name) { return name.ends_with(".e_score_correction_bias"); }));
  Recipe recipe = export_recipe(folder / "base", folder / "out");
  recipe.export_dtype = "bfloat16";
  run_export(Request(recipe, Command::kExport));
  expect_same_tensors(folder / "out", folder / "base", later);
  const auto before = tensors(folder / "base"), after = tensors(folder / "out");
  size_t corrections = 0;
  for (const auto& [name, tensor] : after) {
    const bool correction = name.ends_with(".e_score_correction_bias");
    const bool kept = correction || std::ranges::find(later, name) != later.end();
    EXPECT_EQ(tensor.first, kept ? DType::kF32 : DType::kBF16) << name;
    if (correction) {
      EXPECT_EQ(tensor.second, before.at(name).second) << name;
    }
    corrections += correction;
  }
  EXPECT_GT(corrections, 0u);
}

// Transformers keeps the weights of ERNIE 4.5's routers in float32, too.
TEST(ExportFiles, TheRoutersOfErnieStayFloat32) {
  const TempFolder folder;
  Recipe recipe = export_recipe(kModels / "ernie4_5_moe", folder / "out");
  recipe.export_dtype = "bfloat16";
  run_export(Request(recipe, Command::kExport));
  const auto before = tensors(kModels / "ernie4_5_moe"), after = tensors(folder / "out");
  size_t routers = 0;
  for (const auto& [name, tensor] : after) {
    const bool router = name.ends_with(".mlp.gate.weight");
    EXPECT_EQ(tensor.first, router || name.ends_with(".e_score_correction_bias") ? DType::kF32 : DType::kBF16) << name;
    if (router) {
      EXPECT_EQ(tensor.second, before.at(name).second) << name;
    }
    routers += router;
  }
  EXPECT_EQ(routers, 2u);
}

// The adapter was trained with another chat template than that of the base.
TEST(ExportFiles, TheChatTemplateOfTheAdapterIsKept) {
  const TempFolder folder;
  fs::copy(kModels / "llama/adapter_final", folder / "adapter");
  write_text(folder / "adapter/chat_template.jinja", "{{ messages[0].content }}");
  Recipe recipe = merge_recipe("llama", folder / "merged");
  recipe.adapter_name_or_path = {(folder / "adapter").string()};
  run_export(Request(recipe, Command::kExport));
  EXPECT_EQ(read_text(folder / "merged/chat_template.jinja"), "{{ messages[0].content }}");
}

}  // namespace
}  // namespace fettle
