// Tests exports in 8-bit floats and 4-bit integers: each written weight is the nearest code times its factor, all other
// tensors are unchanged, and config.json says how to read them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/arrays/e4m3.h"
#include "base/files/json_file.h"
#include "checkpoint/repository.h"
#include "checkpoint/safetensors.h"
#include "config/recipe.h"
#include "export/export.h"
#include "model_copies.h"
#include "reference_models.h"
#include "temp_folder.h"

namespace fettle {
namespace {

using testing::HasSubstr;

class CompressedExports : public testing::TestWithParam<std::string> {
 protected:
  ExportReport run(const std::string& model, const std::string& to, const std::string& scheme,
                   const std::string& dtype = "") {
    Recipe recipe;
    recipe.plugin = "cpu";
    recipe.model_name_or_path = reference_model(model).string();
    if (const auto adapter = reference_model(model) / "adapter_final"; exists(adapter))
      recipe.adapter_name_or_path = {adapter.string()};
    recipe.export_dir = (folder_ / to).string();
    recipe.export_quantization = scheme;
    recipe.export_dtype = dtype;
    return run_export(Request(recipe, Command::kExport));
  }
  TempFolder folder_;
};

std::vector<float> values_of(const ModelRepository& model, const std::string& name) {
  const StoredTensor stored = model.find(name);
  const HostArray values = stored.file->read(*stored.entry).to(DType::kF32);
  return {values.as<float>().begin(), values.as<float>().end()};
}

float as_bf16(float value) {
  return HostArray::from<float>({DType::kF32, {1}}, {value}).to(DType::kBF16).to(DType::kF32).as<float>()[0];
}

// Returns the product of an 8-bit float and `factor` that is nearest to `value`. Tries all codes.
float nearest(float value, float factor) {
  float best = 0, least = std::numeric_limits<float>::infinity();
  for (const float code : e4m3_values())
    if (const float gap = std::abs(code - value / factor); gap < least) least = gap, best = code;
  return best * factor;
}

// The same merged weights are also exported in float32. Each 8-bit float must be the code that is nearest to its
// float32 value. The weights of qwen3_fp8 have more than 128 rows and columns, so they have several blocks.
TEST_P(CompressedExports, WeightsAreTheNearestCodes) {
  const bool blocks = GetParam() == "fp8_block";
  const std::string model = blocks ? "qwen3_fp8" : "llama";
  run(model, "plain", "", "float32");
  const ExportReport report = run(model, "coded", GetParam(), "bfloat16");
  const ModelRepository plain = ModelRepository::open(folder_ / "plain"),
                        coded = ModelRepository::open(folder_ / "coded");
  EXPECT_EQ(plain.names(), coded.names());
  int64_t linear = 0, ties = 0;
  for (const std::string& name : plain.names()) {
    SCOPED_TRACE(name);
    const Dims dims = plain.find(name).entry->shape.dims;
    const std::vector<float> wanted = values_of(plain, name), found = values_of(coded, name);
    ASSERT_EQ(found.size(), wanted.size());
    if (!name.ends_with("_proj.weight")) {
      for (size_t i = 0; i < wanted.size(); ++i) ASSERT_EQ(found[i], as_bf16(wanted[i]));
      continue;
    }
    ++linear;
    const int64_t down = blocks ? 128 : 1, across = blocks ? 128 : dims[1];
    for (int64_t top = 0; top < dims[0]; top += down)
      for (int64_t left = 0; left < dims[1]; left += across) {
        float largest = 0;
        const auto each = [&](auto&& visit) {
          for (int64_t row = top; row < std::min(top + down, dims[0]); ++row)
            for (int64_t column = left; column < std::min(left + across, dims[1]); ++column)
              visit(static_cast<size_t>(row * dims[1] + column));
        };
        each([&](size_t i) { largest = std::max(largest, std::abs(wanted[i])); });
        const float factor = as_bf16(largest / kLargestE4m3);
        each([&](size_t i) {
          const float best = as_bf16(nearest(wanted[i], factor));
          // If two codes are equally near, either of them may have been chosen.
          const bool tie = found[i] != best &&
                           std::abs(std::abs(found[i] - wanted[i]) - std::abs(best - wanted[i])) < 0.01F * factor;
          ties += tie;
          EXPECT_TRUE(found[i] == best || tie) << i << ": " << found[i] << ", wanted " << best;
        });
      }
  }
  EXPECT_EQ(linear, 2 * 7);
  EXPECT_LT(ties, 20);
  if (report.merged) {
    EXPECT_EQ(report.merged_tensors, linear);
  }
  ASSERT_TRUE(report.coded);
  EXPECT_GT(report.coded->error, 1e-3);
  EXPECT_LT(report.coded->error, 0.1);
  EXPECT_THAT(format_export(report), HasSubstr("linear layers stored as "));
}

TEST_P(CompressedExports, ConfigSaysHowToReadThem) {
  run("llama", "coded", GetParam());
  const nlohmann::json config = read_json_file(folder_ / "coded/config.json")["quantization_config"];
  EXPECT_EQ(config["quant_method"], "compressed-tensors");
  EXPECT_EQ(config["format"], "float-quantized");
  EXPECT_EQ(config["ignore"], nlohmann::json::array({"lm_head"}));
  const nlohmann::json& group = config["config_groups"]["group_0"];
  EXPECT_EQ(group["weights"]["strategy"], GetParam() == "fp8_block" ? "block" : "channel");
  EXPECT_EQ(group["input_activations"]["dynamic"], true);
  const SafetensorsFile file = SafetensorsFile::open(folder_ / "coded/model.safetensors");
  int64_t codes = 0, factors = 0;
  for (const TensorEntry& entry : file.entries()) {
    codes += entry.shape.dtype == DType::kF8E4M3FN;
    factors += entry.name.ends_with(".weight_scale");
  }
  EXPECT_EQ(codes, 14);
  EXPECT_EQ(factors, 14);
}

// The groups have 32 values, because larger groups do not divide all of the weights, which have 64 and 96 inputs.
TEST_F(CompressedExports, IntegersAreTheNearestInTheirGroups) {
  run("llama", "plain", "", "float32");
  const ExportReport report = run("llama", "coded", "w4a16", "bfloat16");
  const ModelRepository plain = ModelRepository::open(folder_ / "plain");
  const SafetensorsFile file = SafetensorsFile::open(folder_ / "coded/model.safetensors");
  int64_t linear = 0;
  for (const std::string& name : plain.names()) {
    SCOPED_TRACE(name);
    const std::vector<float> wanted = values_of(plain, name);
    if (!name.ends_with("_proj.weight")) {
      const HostArray kept = file.read(*file.find(name)).to(DType::kF32);
      for (size_t i = 0; i < wanted.size(); ++i) ASSERT_EQ(kept.as<float>()[i], as_bf16(wanted[i]));
      continue;
    }
    ++linear;
    const Dims dims = plain.find(name).entry->shape.dims;
    const HostArray words = file.read(*file.find(name + "_packed")), shape = file.read(*file.find(name + "_shape"));
    const HostArray factors = file.read(*file.find(name + "_scale")).to(DType::kF32);
    ASSERT_EQ(words.shape(), (Shape{DType::kI32, {dims[0], dims[1] / 8}}));
    ASSERT_EQ(factors.shape().dims, (Dims{dims[0], dims[1] / 32}));
    EXPECT_EQ(Dims(shape.as<int64_t>().begin(), shape.as<int64_t>().end()), dims);
    for (size_t group = 0; group < wanted.size() / 32; ++group) {
      float largest = 0;
      for (size_t i = group * 32; i < group * 32 + 32; ++i) largest = std::max(largest, std::abs(wanted[i]));
      const float factor = as_bf16(largest / 7.5F);
      EXPECT_EQ(factors.as<float>()[group], factor);
      for (size_t i = group * 32; i < group * 32 + 32; ++i) {
        const auto word = static_cast<uint32_t>(words.as<int32_t>()[i / 8]);
        const int code = static_cast<int>(word >> (4 * (i % 8)) & 15) - 8;
        EXPECT_LE(std::abs(static_cast<float>(code) - std::clamp(wanted[i] / factor, -8.0F, 7.0F)), 0.5F) << i;
      }
    }
  }
  EXPECT_EQ(linear, 14);
  ASSERT_TRUE(report.coded) << "Fettle reads the folder";
  EXPECT_LT(report.coded->error, 0.5);
  const nlohmann::json config = read_json_file(folder_ / "coded/config.json")["quantization_config"];
  EXPECT_EQ(config["format"], "pack-quantized");
  EXPECT_EQ(config["config_groups"]["group_0"]["weights"]["group_size"], 32);
}

INSTANTIATE_TEST_SUITE_P(Schemes, CompressedExports, testing::Values("fp8_dynamic", "fp8_block"),
                         [](const auto& info) { return info.param; });

// In the checkpoint of this model, each weight of each expert is a tensor. The routers keep their dtype.
TEST_F(CompressedExports, ExpertsBecomeCodesAndRoutersDoNot) {
  Recipe recipe;
  recipe.plugin = "cpu";
  recipe.model_name_or_path = reference_model("mixtral").string();
  recipe.export_dir = (folder_ / "coded").string();
  recipe.export_quantization = "fp8_dynamic";
  const ExportReport report = run_export(Request(recipe, Command::kExport));
  EXPECT_FALSE(report.merged);
  ASSERT_TRUE(report.coded);
  EXPECT_LT(report.coded->error, 0.1);
  const nlohmann::json ignored = read_json_file(folder_ / "coded/config.json")["quantization_config"]["ignore"];
  EXPECT_THAT(
      ignored.get<std::vector<std::string>>(),
      testing::ElementsAre("lm_head", "model.layers.0.block_sparse_moe.gate", "model.layers.1.block_sparse_moe.gate"));
}

// The layers that predict tokens further ahead are left out, and config.json says so.
TEST_F(CompressedExports, LaterLayersAreLeftOut) {
  const std::vector<std::string> later = write_with_later_layers(folder_ / "base", "glm4_moe");
  Recipe recipe;
  recipe.plugin = "cpu";
  recipe.model_name_or_path = (folder_ / "base").string();
  recipe.export_dir = (folder_ / "coded").string();
  recipe.export_quantization = "fp8_dynamic";
  testing::internal::CaptureStderr();
  run_export(Request(recipe, Command::kExport));
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("leaves out the layers that predict tokens further"));
  EXPECT_EQ(read_json_file(folder_ / "base/config.json")["num_nextn_predict_layers"], 1);
  EXPECT_EQ(read_json_file(folder_ / "coded/config.json")["num_nextn_predict_layers"], 0);
  const ModelRepository coded = ModelRepository::open(folder_ / "coded");
  for (const std::string& name : later) EXPECT_FALSE(coded.contains(name)) << name;
}

}  // namespace
}  // namespace fettle
