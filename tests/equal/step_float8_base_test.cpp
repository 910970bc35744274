// Tests that LoRA on a checkpoint in 8-bit floats with factors equals LoRA on a checkpoint with the dequantised
// weights, on any mesh. The weights stay 8-bit floats on the devices.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>

#include "base/arrays/e4m3.h"
#include "base/error.h"
#include "model_copies.h"
#include "paths.h"
#include "resolve_run.h"
#include "temp_folder.h"
#include "training.h"

namespace fettle {
namespace {

using Words = std::vector<std::string>;
namespace fs = std::filesystem;

struct Blocks {
  int64_t rows, columns;  // columns 0: a factor for each row, as compressed-tensors stores it
};

nlohmann::json config_of(const Blocks& blocks, const std::vector<std::string>& left_out) {
  if (blocks.columns > 0)
    return {{"quant_method", "fp8"},
            {"weight_block_size", {blocks.rows, blocks.columns}},
            {"modules_to_not_convert", left_out}};
  const nlohmann::json weights{{"num_bits", 8}, {"type", "float"}, {"symmetric", true}, {"strategy", "channel"}};
  return {{"quant_method", "compressed-tensors"},
          {"format", "float-quantized"},
          {"ignore", left_out},
          {"config_groups", {{"group_0", {{"targets", {"Linear"}}, {"weights", weights}}}}}};
}

// Adds a weight [n, k] in 8-bit floats, and its factors.
void add_float8(NamedArrays& out, const std::string& module, int64_t n, int64_t k, const Blocks& blocks,
                const std::function<float(int64_t output, int64_t input)>& value) {
  const int64_t rows = blocks.columns > 0 ? blocks.rows : 1, columns = blocks.columns > 0 ? blocks.columns : k;
  const int64_t across = (k + columns - 1) / columns;
  HostArray codes(Shape{DType::kF8E4M3FN, {n, k}}), factors(Shape{DType::kF32, {(n + rows - 1) / rows, across}});
  const std::span<float> all = factors.as<float>();
  std::ranges::fill(all, 0.0F);
  auto factor = [&](int64_t row, int64_t column) -> float& {
    return all[static_cast<size_t>(row / rows * across + column / columns)];
  };
  for (int64_t row = 0; row < n; ++row)
    for (int64_t i = 0; i < k; ++i) factor(row, i) = std::max(factor(row, i), std::abs(value(row, i)) / kLargestE4m3);
  for (int64_t row = 0; row < n; ++row)
    for (int64_t i = 0; i < k; ++i)
      codes.data()[row * k + i] = static_cast<std::byte>(e4m3_code(value(row, i) / factor(row, i)));
  out.emplace_back(module + ".weight", std::move(codes));
  out.emplace_back(module + (blocks.columns > 0 ? ".weight_scale_inv" : ".weight_scale"), std::move(factors));
}

// Writes the model with its linear layers and experts in 8-bit floats, except the modules in `left_out`. The experts of
// a layer that are in one tensor become a module each.
void write_float8(const fs::path& model, const fs::path& folder, Blocks blocks,
                  const std::vector<std::string>& left_out = {}) {
  const AddWeight add = [&](NamedArrays& out, const std::string& module, int64_t n, int64_t k, const auto& value) {
    add_float8(out, module, n, k, blocks, value);
  };
  const NamedArrays tensors = with_stored_weights(model, add, [&](const std::string& module) {
    const bool in_layers =
        module.find("model.layers.") != std::string::npos || module.find("language_model.layers.") != std::string::npos;
    return in_layers && (module.ends_with("_proj") || module.ends_with("_proj_with_mqa")) &&
           std::ranges::find(left_out, module) == left_out.end();
  });
  nlohmann::json config = ModelRepository::open(model).config();
  config["quantization_config"] = config_of(blocks, left_out);
  write_model(folder, config, tensors);
}

Recipe recipe_of(const fs::path& model, const Words& more = {}) {
  Words words{"model_name_or_path=" + model.string(), "plugin=cpu", "lora_rank=4", "lora_dropout=0"};
  words.insert(words.end(), more.begin(), more.end());
  return read_recipe("", words);
}

// Returns the number of layers in which each weight is in 8-bit floats.
std::map<std::string, int64_t> layers_in_8_bits(const Run& run) {
  std::map<std::string, int64_t> out;
  for (const QuantisedWeight& weight : run.quantised) {
    EXPECT_EQ(weight.format.type, Quantisation::Type::kFloat8);
    EXPECT_EQ(*weight.parts[0].dtype, DType::kU8);
    out[weight.base.hf_name] += weight.base.layers.count();
  }
  return out;
}

struct Case {
  std::string name, model;
  Blocks blocks;
  std::vector<std::pair<std::string, int>> meshes;  // with the rows of a device
  std::vector<std::string> left_out = {};           // ends of the names of linear layers that stay floats
};

class Float8Base : public testing::TestWithParam<Case> {};

TEST_P(Float8Base, EqualsTheDequantisedModelOnAnyMesh) {
  TempFolder folder;
  write_float8(reference_model(GetParam().model), folder / "float8", GetParam().blocks, GetParam().left_out);
  write_as_floats(folder / "float8", folder / "floats");
  const auto run = make_run(recipe_of(folder / "float8"), ModelRepository::open(folder / "float8").config(), "c", 1);
  std::map<std::string, int64_t> wanted;
  for (const Param& param : run.model.params) {
    const bool floats = std::ranges::any_of(
        GetParam().left_out, [&](const std::string& end) { return param.hf_name.ends_with(end + ".weight"); });
    if (!floats && (param.role == Role::kLinear || param.has_experts())) wanted[param.hf_name] += param.layers.count();
  }
  EXPECT_EQ(layers_in_8_bits(run), wanted);
  const TrainOptions options{.steps = 3, .rate = 5e-3};
  const Words rows{"per_device_train_batch_size=8"};
  const TrainResult floats = train(recipe_of(folder / "floats", rows), options),
                    one = train(recipe_of(folder / "float8", rows), options);
  expect_equal_lists(one.losses, floats.losses, 1e-6, "loss");
  expect_equal_lists(one.norms, floats.norms, 1e-5, "norm");
  for (const auto& [mesh, each] : GetParam().meshes) {
    const Words words{"mesh=" + mesh, "per_device_train_batch_size=" + std::to_string(each)};
    const TrainResult eight = train(recipe_of(folder / "float8", words), options);
    expect_equal_lists(eight.losses, one.losses, 1e-5, mesh);
    expect_equal_lists(eight.norms, one.norms, 1e-4, mesh);
  }
}

// Tests blocks that do not divide the dims or the devices' parts, blocks larger than a dim, and one factor for each
// row.
INSTANTIATE_TEST_SUITE_P(
    Models, Float8Base,
    testing::Values(
        Case{"deepseek_v3", "deepseek_v3", {24, 40}, {{"{fsdp: 2, ep: 4}", 4}, {"{fsdp: 2, ep: 2, tp: 2}", 4}}},
        Case{"qwen3_moe", "qwen3_moe", {128, 16}, {{"{ep: 8}", 8}}},
        Case{"qwen3", "qwen3", {1, 0}, {{"{fsdp: 4, tp: 2}", 2}}},
        Case{"qwen3_high_blocks", "qwen3", {128, 16}, {{"{fsdp: 8}", 1}, {"{fsdp: 4, tp: 2}", 2}}},
        Case{"phi3", "phi3", {16, 16}, {{"{fsdp: 4, tp: 2}", 2}}},
        Case{"gemma4_moe", "gemma4_moe", {16, 16}, {{"{fsdp: 2, ep: 2, tp: 2}", 4}}},
        Case{"qwen3_5_moe",
             "qwen3_5_moe",
             {128, 128},
             {{"{fsdp: 2, ep: 2, tp: 2}", 4}},
             {"in_proj_qkv", "in_proj_z", "in_proj_a", "in_proj_b", "shared_expert_gate"}}),
    [](const auto& info) { return info.param.name; });

TEST(Float8BaseVariants, EqualTheDequantisedModel) {
  TempFolder folder;
  const fs::path model = reference_model("qwen3_fp8");
  write_as_floats(model, folder / "floats");
  const TrainOptions options{.steps = 3, .rate = 5e-3};
  for (const Words& keys : {Words{"use_dora=true"}, Words{"gradient_checkpointing=none"}}) {
    const TrainResult wanted = train(recipe_of(folder / "floats", keys), options),
                      got = train(recipe_of(model, keys), options);
    expect_equal_lists(got.losses, wanted.losses, 1e-6, keys[0]);
    expect_equal_lists(got.norms, wanted.norms, 1e-5, keys[0]);
  }
  // Full tuning reads the dequantised values and does not round them.
  const Words full{"finetuning_type=full"};
  EXPECT_EQ(train(recipe_of(model, full), options).losses, train(recipe_of(folder / "floats", full), options).losses);
}

// These runs have 16-bit weights on the device.
TEST(Float8BaseVariants, SomeRunsKeepNoWeightsIn8Bits) {
  const fs::path model = reference_model("qwen3_fp8");
  const nlohmann::json config = ModelRepository::open(model).config();
  const RunTarget target{.capability = "9.0"};
  EXPECT_FALSE(make_run(recipe_of(model), config, "c", target).quantised.empty());
  for (const Words& keys : {Words{"fp8=true", "bf16=true"}, Words{"stage=dpo", "ref_model=x"}, Words{"pissa_init=true"},
                            Words{"finetuning_type=full"}})
    EXPECT_TRUE(make_run(recipe_of(model, keys), config, "c", target).quantised.empty()) << keys[0];
  // Only training multiplies 8-bit floats. Inference has no reference model.
  auto keeps = [&](const Words& keys, Purpose purpose) {
    return !make_run(recipe_of(model, keys), config, "c", target, purpose).quantised.empty();
  };
  const Words fp8{"fp8=true", "bf16=true"}, ref_model{"stage=dpo", "ref_model=x"};
  EXPECT_TRUE(keeps(fp8, Purpose::kInference));
  EXPECT_TRUE(keeps(fp8, Purpose::kEvaluation));
  EXPECT_TRUE(keeps(ref_model, Purpose::kInference));
  EXPECT_FALSE(keeps(ref_model, Purpose::kEvaluation));
}

// If config.json names single modules or states several formats, only the files tell how a weight is stored. The
// weights are floats on the device.
TEST(Float8BaseVariants, SeveralFormatsAreFloats) {
  TempFolder folder;
  write_float8(reference_model("qwen3"), folder / "float8", {1, 0});
  write_as_floats(folder / "float8", folder / "floats");
  const TrainOptions options{.steps = 1};
  const std::vector<double> wanted = train(recipe_of(folder / "floats"), options).losses;
  nlohmann::json config = ModelRepository::open(folder / "float8").config();
  const nlohmann::json one = config["quantization_config"];
  nlohmann::json named = one, several = one;
  named["config_groups"]["group_0"]["targets"] = nlohmann::json::array({"re:.*_proj"});
  several["config_groups"]["group_1"] = one["config_groups"]["group_0"];
  several["config_groups"]["group_1"]["weights"]["block_structure"] = {16, 16};
  for (const nlohmann::json& quantisation : {named, several}) {
    config["quantization_config"] = quantisation;
    write_text(folder / "float8" / "config.json", config.dump());
    EXPECT_TRUE(make_run(recipe_of(folder / "float8"), config, "c", 1).quantised.empty());
    EXPECT_EQ(train(recipe_of(folder / "float8"), options).losses, wanted);
  }
}

// In the checkpoint, one layer's q_proj is not in 8-bit floats. The other layer's stays in 8-bit floats.
TEST(Float8BaseVariants, OnlyTheLayersThatAreLeftOutAreFloats) {
  TempFolder folder;
  const std::string left = "model.layers.0.self_attn.q_proj";
  write_float8(reference_model("qwen3"), folder / "float8", {16, 16}, {left});
  write_as_floats(folder / "float8", folder / "floats");
  const auto run = make_run(recipe_of(folder / "float8"), ModelRepository::open(folder / "float8").config(), "c", 1);
  const std::map<std::string, int64_t> layers = layers_in_8_bits(run);
  EXPECT_EQ(layers.size(), 7u);
  for (const auto& [name, count] : layers) EXPECT_EQ(count, name.find("q_proj") == std::string::npos ? 2 : 1) << name;
  // The random start of an adapter depends on how its stacks are divided, so both runs start from the same adapter.
  const Words start{"adapter_name_or_path=" + (reference_model("qwen3") / "adapter_init").string()};
  const TrainOptions options{.steps = 3, .rate = 5e-3};
  expect_equal_lists(train(recipe_of(folder / "float8", start), options).losses,
                     train(recipe_of(folder / "floats", start), options).losses, 1e-6, "loss");
}

// If config.json does not list a module that the files store in floats, or names other blocks, an error says so.
TEST(Float8BaseVariants, AConfigThatDoesNotFitTheFilesIsRefused) {
  TempFolder folder;
  const std::string left = "model.layers.0.self_attn.q_proj";
  write_float8(reference_model("qwen3"), folder / "float8", {16, 16}, {left});
  auto message = [&](const nlohmann::json& quantisation) -> std::string {
    nlohmann::json config = ModelRepository::open(reference_model("qwen3")).config();
    config["quantization_config"] = quantisation;
    write_text(folder / "float8" / "config.json", config.dump());
    try {
      train(recipe_of(folder / "float8"), {.steps = 1});
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(message(config_of({16, 16}, {})),
              testing::AllOf(testing::HasSubstr(left + ".weight"), testing::HasSubstr("modules_to_not_convert")));
  write_float8(reference_model("qwen3"), folder / "float8", {1, 0});
  nlohmann::json in_blocks = config_of({1, 0}, {});
  in_blocks["config_groups"]["group_0"]["weights"]["block_structure"] = {16, 16};
  EXPECT_THAT(message(in_blocks), testing::AllOf(testing::HasSubstr("'model.layers.0.self_attn.q_proj.weight_scale'"),
                                                 testing::HasSubstr("says: 8-bit floats with a factor for 16 x 16")));
}

// The parts of DeepSeek V3's weights on eight devices, with blocks of 128 x 128.
TEST(Float8BaseVariants, PartsOfDeepSeekV3) {
  nlohmann::json config = nlohmann::json::parse(read_text(source_folder() / "examples/models/deepseek-v3/config.json"));
  config["quantization_config"] = config_of({128, 128}, {});
  auto parts = [&](const std::string& mesh, const std::string& end) -> std::vector<Dims> {
    const auto run = make_run(read_recipe("", {"model_name_or_path=x", "plugin=cpu", "mesh=" + mesh}), config, "c", 8);
    for (const QuantisedWeight& weight : run.quantised)
      if (weight.base.hf_name.ends_with(end)) return {weight.parts[0].dims, weight.parts[1].dims};
    return {};
  };
  const std::string gate = "experts.{}.gate_proj.weight", down = "experts.{}.down_proj.weight",
                    latent = "kv_a_proj_with_mqa.weight";
  for (const char* mesh : {"{ep: 8}", "{ep: 4, tp: 2}"}) {
    EXPECT_EQ(parts(mesh, gate), (std::vector<Dims>{{256, 2048, 7168}, {256, 16, 56}})) << mesh;
    EXPECT_EQ(parts(mesh, down), (std::vector<Dims>{{256, 7168, 2048}, {256, 56, 16}})) << mesh;
  }
  // 576 rows are 4.5 blocks, so a block is cut in two.
  EXPECT_EQ(parts("{ep: 8}", latent), (std::vector<Dims>{{576, 7168}, {9, 56}}));
}

// One block covers all 128 rows of k_proj, and fsdp splits these rows. Each device has all factors, even if fsdp
// divides the number of blocks in a row.
TEST(Float8BaseVariants, FactorsOfBlocksWithAllRowsAreNotSplit) {
  using Split = std::vector<std::vector<std::string>>;
  nlohmann::json config = ModelRepository::open(reference_model("qwen3")).config();
  config["head_dim"] = 64;
  config["quantization_config"] = config_of({128, 128}, {});
  for (const int64_t hidden : {896, 1024}) {
    config["hidden_size"] = hidden;
    const auto run =
        make_run(read_recipe("", {"model_name_or_path=x", "plugin=cpu", "mesh={fsdp: 2}"}), config, "c", 2);
    int64_t found = 0;
    for (const QuantisedWeight& weight : run.quantised) {
      const Param &codes = weight.parts[0], &factors = weight.parts[1];
      EXPECT_NO_THROW(run.partition(factors)) << factors.hf_name;
      if (!weight.base.hf_name.ends_with("k_proj.weight")) continue;
      ++found;
      EXPECT_EQ(codes.dims, (Dims{128, hidden}));
      EXPECT_EQ(factors.dims, (Dims{1, hidden / 128}));
      EXPECT_EQ(run.partition(codes).dims, (Split{{}, {"fsdp"}, {}}));
      EXPECT_EQ(run.partition(factors).dims, (Split{{}, {}, {}}));
    }
    EXPECT_EQ(found, 1);
  }
}

// If one block covers all rows of o_proj, fsdp splits the rows of the codes only, and tp splits their columns. Each
// device's columns are whole blocks.
TEST(Float8BaseVariants, ColumnsOfFactorsDoNotTakeTheMeshAxisOfTheRows) {
  nlohmann::json config = ModelRepository::open(reference_model("qwen3")).config();
  config["quantization_config"] = config_of({128, 16}, {});
  const auto run =
      make_run(read_recipe("", {"model_name_or_path=x", "plugin=cpu", "mesh={fsdp: 4, tp: 2}"}), config, "c", 8);
  for (const QuantisedWeight& weight : run.quantised) {
    EXPECT_NO_THROW(run.partition(weight.parts[1])) << weight.base.hf_name;
    EXPECT_EQ(weight.parts[1].dims, (Dims{1, weight.parts[0].dims[1] / 16})) << weight.base.hf_name;
  }
  EXPECT_EQ(run.quantised.size(), 7u);
}

}  // namespace
}  // namespace fettle
