// Tests weights in 8-bit floats with scale factors: every code, partial blocks at the edges, one factor per row, and
// one per weight.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "checkpoint/repository.h"
#include "checkpoint/safetensors_writer.h"
#include "models/quantization_config.h"
#include "reference_models.h"
#include "temp_folder.h"

namespace fettle {
namespace {

// Returns the value of an e4m3 code: a sign, 4 bits of exponent with bias 7, 3 bits of mantissa.
double value_of(int code) {
  const int exponent = code >> 3 & 15, mantissa = code & 7;
  const double size = exponent == 0 ? mantissa / 8.0 / 64 : (1 + mantissa / 8.0) * std::pow(2, exponent - 7);
  return code < 128 ? size : -size;
}

// A model folder with one weight, "a.weight".
class Float8Weight {
 public:
  Float8Weight(const nlohmann::json& quantisation, const Dims& dims, const std::string& factors, const Dims& grid) {
    write_text(folder_ / "config.json",
               nlohmann::json{{"dtype", "float32"}, {"quantization_config", quantisation}}.dump());
    std::vector<uint8_t> codes(static_cast<size_t>(product(dims)));
    for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint8_t>(i % 127 + (i % 2) * 128);
    std::vector<float> scales(static_cast<size_t>(product(grid)));
    for (size_t i = 0; i < scales.size(); ++i) scales[i] = 0.25F + 0.37F * static_cast<float>(i);
    SafetensorsWriter writer(folder_ / "model.safetensors", {{"a.weight", {DType::kF8E4M3FN, dims}},
                                                             {"a.weight" + factors, {DType::kF32, grid}},
                                                             {"a.activation_scale", {DType::kF32, {1}}}});
    writer.write("a.weight", std::as_bytes(std::span(codes)));
    writer.write("a.weight" + factors, std::as_bytes(std::span(scales)));
    writer.write("a.activation_scale", std::vector<std::byte>(4));
    writer.finish();
    const ModelRepository repository = ModelRepository::open(folder_.path());
    EXPECT_EQ(repository.names(), std::vector<std::string>{"a.weight"});
    const StoredTensor stored = repository.find("a.weight");
    EXPECT_EQ(stored.entry->shape, (Shape{DType::kF32, dims}));
    const HostArray read = stored.file->read(*stored.entry);
    values.assign(read.as<float>().begin(), read.as<float>().end());
    for (size_t i = 0; i < codes.size(); ++i) quantised.push_back(static_cast<float>(value_of(codes[i])));
    factor = scales;
  }

  std::vector<float> values, quantised, factor;

 private:
  TempFolder folder_;
};

TEST(Float8, BlocksThatEndEarly) {
  const Float8Weight weight({{"quant_method", "fp8"}, {"weight_block_size", {4, 16}}}, {10, 40}, "_scale_inv", {3, 3});
  for (size_t row = 0; row < 10; ++row)
    for (size_t column = 0; column < 40; ++column)
      EXPECT_EQ(weight.values[row * 40 + column],
                weight.quantised[row * 40 + column] * weight.factor[row / 4 * 3 + column / 16])
          << row << " " << column;
}

TEST(Float8, AllExpertsInOneTensor) {
  const Float8Weight weight({{"quant_method", "fp8"}, {"weight_block_size", {4, 16}}}, {2, 6, 20}, "_scale_inv",
                            {2, 2, 2});
  for (size_t i = 0; i < 240; ++i)
    EXPECT_EQ(weight.values[i],
              weight.quantised[i] * weight.factor[(i / 120 * 2 + i % 120 / 20 / 4) * 2 + i % 20 / 16]);
}

TEST(Float8, OneFactorForAWeight) {
  for (const Dims& one : {Dims{}, Dims{1}, Dims{1, 1}}) {
    const Float8Weight weight(
        {{"quant_method", "fp8"}, {"weight_block_size", nullptr}, {"activation_scheme", "static"}}, {6, 50},
        "_scale_inv", one);
    for (size_t i = 0; i < 300; ++i) EXPECT_EQ(weight.values[i], weight.quantised[i] * 0.25F);
  }
}

TEST(Float8, AutoFp8HasOneFactorForAWeight) {
  const nlohmann::json quantisation{
      {"quant_method", "fp8"}, {"activation_scheme", "static"}, {"ignored_layers", {"lm_head"}}};
  for (const Dims& one : {Dims{}, Dims{1}}) {
    const Float8Weight weight(quantisation, {6, 50}, "_scale", one);
    for (size_t i = 0; i < 300; ++i) EXPECT_EQ(weight.values[i], weight.quantised[i] * 0.25F);
  }
  const auto storage = std::get<Float8Storage>(stored_form({{"quantization_config", quantisation}}, "config.json"));
  EXPECT_TRUE(any_names(storage.excluded, "lm_head"));
  EXPECT_FALSE(any_names(storage.excluded, "model.layers.0.mlp.up_proj"));
}

TEST(Float8, CompressedTensorsByRowAndByBlock) {
  auto config = [](const nlohmann::json& more) {
    nlohmann::json weights{{"num_bits", 8}, {"type", "float"}, {"symmetric", true}};
    weights.update(more);
    return nlohmann::json{{"quant_method", "compressed-tensors"},
                          {"format", "float-quantized"},
                          {"config_groups", {{"group_0", {{"targets", {"Linear"}}, {"weights", weights}}}}}};
  };
  const Float8Weight by_row(config({{"strategy", "channel"}}), {6, 50}, "_scale", {6, 1});
  for (size_t i = 0; i < 300; ++i) EXPECT_EQ(by_row.values[i], by_row.quantised[i] * by_row.factor[i / 50]);
  const Float8Weight by_block(config({{"strategy", "block"}, {"block_structure", {3, 25}}}), {6, 50}, "_scale", {2, 2});
  for (size_t i = 0; i < 300; ++i)
    EXPECT_EQ(by_block.values[i], by_block.quantised[i] * by_block.factor[i / 150 * 2 + i % 50 / 25]);
}

// Reading a box of a weight gives the same values as this part of the whole weight.
TEST(Float8, PartsOfAWeight) {
  const ModelRepository repository = ModelRepository::open(reference_model("qwen3_fp8"));
  const StoredTensor stored = repository.find("model.layers.0.mlp.gate_proj.weight");
  const HostArray whole = stored.file->read(*stored.entry);
  const Dims dims = stored.entry->shape.dims;
  const Box box{{120, 7}, {20, 50}};
  std::vector<float> part(1000);
  stored.file->read_slice(*stored.entry, box, DType::kF32, reinterpret_cast<std::byte*>(part.data()));
  for (int64_t row = 0; row < 20; ++row)
    for (int64_t column = 0; column < 50; ++column)
      EXPECT_EQ(part[static_cast<size_t>(row * 50 + column)], whole.as<float>()[(120 + row) * dims[1] + 7 + column]);
}

}  // namespace
}  // namespace fettle
