// Tests the errors of weights that are stored as integers with scales.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/quantised/group_codes.h"
#include "checkpoint/repository.h"
#include "checkpoint/safetensors_writer.h"
#include "temp_folder.h"

namespace fettle {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Json = nlohmann::json;

const Json kGptq{{"quant_method", "gptq"}, {"bits", 4}, {"group_size", 16}};
const Json kAwq{{"quant_method", "awq"}, {"bits", 4}, {"group_size", 16}};

class BadGroups : public testing::Test {
 protected:
  std::string error(const Json& quantisation, const NamedShapes& tensors) {
    write_text(folder_ / "config.json", Json{{"quantization_config", quantisation}}.dump());
    SafetensorsWriter writer(folder_ / "model.safetensors", tensors);
    for (const auto& [name, shape] : tensors)
      writer.write(name, std::vector<std::byte>(static_cast<size_t>(shape.bytes()), std::byte{255}));
    writer.finish();
    return user_error([&] {
      const ModelRepository repository = ModelRepository::open(folder_.path());
      const StoredTensor stored = repository.find("a.weight");
      stored.file->read(*stored.entry);
    });
  }
  std::string config_error(Json quantisation, const Json& more) {
    quantisation.update(more);
    return error(quantisation, {{"b", {DType::kF32, {1}}}});
  }
  // Returns the tensors of a weight [32, 64] with changes: a shape without dims removes the tensor.
  static NamedShapes gptq(const std::map<std::string, Shape>& changes) {
    std::map<std::string, Shape> tensors{{"a.qweight", {DType::kI32, {8, 32}}},
                                         {"a.qzeros", {DType::kI32, {4, 4}}},
                                         {"a.scales", {DType::kF16, {4, 32}}}};
    for (const auto& [name, shape] : changes) tensors.insert_or_assign(name, shape);
    std::erase_if(tensors, [](const auto& named) { return named.second.dims.empty(); });
    return {tensors.begin(), tensors.end()};
  }
  TempFolder folder_;
};

TEST_F(BadGroups, VariantsThatAreNotImplemented) {
  EXPECT_THAT(config_error(kGptq, {{"bits", 5}}), AllOf(HasSubstr("config.json"), HasSubstr("bits is 5"),
                                                        HasSubstr("2, 3, 4 or 8"), HasSubstr("original")));
  EXPECT_THAT(config_error(kGptq, {{"bits", nullptr}}), HasSubstr("bits is null"));
  EXPECT_THAT(config_error(kGptq, {{"bits", "4"}}), HasSubstr("wanted an integer"));
  EXPECT_THAT(config_error(kGptq, {{"group_size", 0}}), HasSubstr("group_size is 0"));
  EXPECT_THAT(config_error(kGptq, {{"group_size", INT64_MAX}}), HasSubstr("group_size is 9223372036854775807"));
  EXPECT_THAT(config_error(kGptq, {{"desc_act", 1}}), HasSubstr("desc_act is 1"));
  EXPECT_THAT(config_error(kGptq, {{"checkpoint_format", "marlin"}}), HasSubstr("gptq or gptq_v2"));
  EXPECT_THAT(config_error(kGptq, {{"is_marlin_format", true}}), HasSubstr("is_marlin_format"));
  EXPECT_THAT(config_error(kGptq, {{"pack_dtype", "int8"}}), HasSubstr("pack_dtype"));
  EXPECT_THAT(config_error(kGptq, {{"dynamic", {{".*down_proj", {{"bits", 8}}}}}}), HasSubstr("dynamic"));
  EXPECT_THAT(config_error(kAwq, {{"dynamic", {{".*down_proj", {{"bits", 8}}}}}}), HasSubstr("dynamic"));
  EXPECT_THAT(config_error(kAwq, {{"bits", 8}}), HasSubstr("bits is 8"));
  EXPECT_THAT(config_error(kAwq, {{"version", "gemv_fast"}}), AllOf(HasSubstr("version"), HasSubstr("gemm or gemv")));
  EXPECT_THAT(config_error(kAwq, {{"backend", "llm-awq"}}), HasSubstr("backend"));
  EXPECT_THAT(config_error(kAwq, {{"modules_to_not_convert", "lm_head"}}), HasSubstr("a list of names"));
  const Json weights{{"num_bits", 4}, {"type", "int"}, {"group_size", 16}};
  auto compressed = [&](const Json& changes, const Json& more) {
    Json changed = weights;
    changed.update(changes);
    Json config{{"quant_method", "compressed-tensors"},
                {"format", "pack-quantized"},
                {"config_groups", {{"group_0", {{"weights", changed}}}}}};
    config.update(more);
    return config_error(config, Json::object());
  };
  EXPECT_THAT(compressed(Json::object(), {{"format", "int-quantized"}}), HasSubstr("pack-quantized"));
  EXPECT_THAT(compressed({{"num_bits", 3}}, Json::object()), HasSubstr("num_bits is 3"));
  EXPECT_THAT(compressed(Json::object(), {{"transform_config", {{"config_groups", {{"a", 1}}}}}}),
              HasSubstr("transform_config"));
  EXPECT_THAT(compressed(Json::object(),
                         {{"config_groups", {{"group_0", {{"weights", weights}, {"targets", {"re:.*mlp.*"}}}}}}}),
              HasSubstr("targets"));
  EXPECT_THAT(compressed({{"strategy", "tensor"}}, Json::object()), HasSubstr("group or channel"));
  EXPECT_THAT(compressed({{"actorder", "random"}}, Json::object()), HasSubstr("actorder is \"random\""));
  EXPECT_THAT(
      compressed(Json::object(),
                 {{"config_groups", {{"group_0", {{"weights", weights}}}, {"group_1", {{"weights", weights}}}}}}),
      HasSubstr("one group"));
  EXPECT_THAT(
      compressed(Json::object(),
                 {{"config_groups", {{"group_0", {{"weights", weights}, {"input_activations", {{"num_bits", 8}}}}}}}}),
      HasSubstr("input_activations"));
}

TEST_F(BadGroups, AwqWithScaledActivations) {
  EXPECT_THAT(error(kAwq, {{"h.0.mlp.act.scales", {DType::kF16, {32}}}}),
              AllOf(HasSubstr("'h.0.mlp.act.scales'"), HasSubstr("AWQ with scaled activations is not implemented"),
                    HasSubstr("quantization_bit: 4")));
}

TEST_F(BadGroups, TensorsThatDoNotFit) {
  EXPECT_THAT(error(kGptq, gptq({{"a.qweight", {DType::kF32, {8, 32}}}})), HasSubstr("a matrix of packed i32"));
  EXPECT_THAT(error(kGptq, gptq({{"a.qweight", {DType::kI32, {8, 0}}}})), HasSubstr("a matrix of packed i32"));
  EXPECT_THAT(error(kGptq, gptq({{"a.scales", {DType::kF16, {}}}})), HasSubstr("'a.scales' is missing"));
  EXPECT_THAT(error(kGptq, gptq({{"a.scales", {DType::kF16, {3, 32}}}})),
              AllOf(HasSubstr("'a.scales' is f16[3,32]"), HasSubstr("wanted f16[4,32]")));
  EXPECT_THAT(error(kGptq, gptq({{"a.scales", {DType::kI32, {4, 32}}}})), HasSubstr("wanted floats"));
  EXPECT_THAT(error(kGptq, gptq({{"a.qzeros", {DType::kI32, {}}}})), HasSubstr("'a.qzeros' is missing"));
  EXPECT_THAT(error(kGptq, gptq({{"a.qzeros", {DType::kI32, {4, 5}}}})), HasSubstr("wanted i32[4,4]"));
  EXPECT_THAT(error(kGptq, gptq({{"a.g_idx", {DType::kI32, {63}}}})), HasSubstr("wanted i32[64]"));
  EXPECT_THAT(error(kGptq, gptq({{"a.g_idx", {DType::kI32, {64}}}})),
              AllOf(HasSubstr("'a.g_idx' has the group -1"), HasSubstr("wanted 0 to 3")));
  Json any_order = kGptq;
  any_order["desc_act"] = true;
  EXPECT_THAT(error(any_order, gptq({})), HasSubstr("'a.g_idx' is missing"));
  Json three = kGptq;
  three["bits"] = 3;
  EXPECT_THAT(error(three, gptq({})), HasSubstr("a multiple of 3 words"));
  EXPECT_THAT(error(kGptq, gptq({{"a.weight", {DType::kF32, {1}}}})), HasSubstr("has both 'a.weight'"));
  const NamedShapes packed{{"a.weight_packed", {DType::kI32, {4, 2}}}, {"a.weight_scale", {DType::kF16, {4, 1}}}};
  const Json weights{{"num_bits", 4}, {"type", "int"}, {"group_size", 16}};
  const Json compressed{{"quant_method", "compressed-tensors"},
                        {"format", "pack-quantized"},
                        {"config_groups", {{"group_0", {{"weights", weights}}}}}};
  EXPECT_THAT(error(compressed, packed), HasSubstr("'a.weight_shape' is missing"));
  NamedShapes shaped = packed;
  shaped.emplace_back("a.weight_shape", Shape{DType::kI64, {2}});  // the test writes the values -1, -1
  EXPECT_THAT(error(compressed, shaped), HasSubstr("the packed codes of a weight [-1, -1]"));
}

}  // namespace
}  // namespace fettle
