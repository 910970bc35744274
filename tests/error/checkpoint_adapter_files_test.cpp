#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/peft/adapter_files.h"
#include "temp_folder.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

class BadAdapter : public testing::Test {
 protected:
  // Returns the error of reading adapter_config.json with these fields in addition to the required ones.
  std::string config_error(const std::string& fields, AdapterSupport support = {}) {
    write_text(folder_ / "adapter_config.json", R"({"peft_type":"LORA","r":2,"target_modules":["q"])" + fields + "}");
    return user_error([&] { read_adapter_config(folder_.path(), support); });
  }
  // Returns the error of reading an adapter with these tensors.
  std::string tensor_error(const NamedShapes& tensors, const std::string& fields = "") {
    EXPECT_EQ(config_error(fields, {true, true}), "no error");
    SafetensorsWriter writer(folder_ / "adapter_model.safetensors", tensors);
    for (const auto& [name, shape] : tensors)
      writer.write(name, std::vector<std::byte>(static_cast<size_t>(shape.bytes())));
    writer.finish();
    return user_error([&] { read_adapter(folder_.path(), {true, true}); });
  }
  TempFolder folder_;
};

TEST_F(BadAdapter, Missing) {
  EXPECT_THAT(user_error([&] { read_adapter(folder_ / "none"); }), HasSubstr("the adapter folder"));
  EXPECT_THAT(user_error([&] { read_adapter(folder_.path()); }), HasSubstr("adapter_config.json is missing"));
  EXPECT_EQ(config_error(""), "no error");
  EXPECT_THAT(user_error([&] { read_adapter(folder_.path()); }), HasSubstr("adapter_model.safetensors"));
  write_text(folder_ / "adapter_model.bin", "");
  EXPECT_THAT(user_error([&] { read_adapter(folder_.path()); }), HasSubstr("adapter_model.bin"));
}

TEST_F(BadAdapter, BrokenConfig) {
  write_text(folder_ / "adapter_config.json", "{\"r\": }");
  EXPECT_THAT(user_error([&] { read_adapter_config(folder_.path()); }),
              HasSubstr("adapter_config.json: is not valid JSON: syntax error at column 7"));
  write_text(folder_ / "adapter_config.json", "[]");
  EXPECT_THAT(user_error([&] { read_adapter_config(folder_.path()); }), HasSubstr("wanted an object"));
}

TEST_F(BadAdapter, OtherMethods) {
  write_text(folder_ / "adapter_config.json", R"({"peft_type":"IA3"})");
  EXPECT_THAT(user_error([&] { read_adapter_config(folder_.path()); }), HasSubstr("peft_type is \"IA3\""));
  write_text(folder_ / "adapter_config.json", "{}");
  EXPECT_THAT(user_error([&] { read_adapter_config(folder_.path()); }), HasSubstr("peft_type is missing"));
}

TEST_F(BadAdapter, FieldsThatChangeResultsAreNamed) {
  for (const char* field :
       {R"("bias":"all")", R"("bias":"lora_only")", R"("use_dora":true)", R"("modules_to_save":["lm_head"])",
        R"("init_lora_weights":"pissa")", R"("init_lora_weights":"pissa_niter_16")", R"("init_lora_weights":"olora")",
        R"("init_lora_weights":"loftq")", R"("layer_replication":[[0,4],[2,5]])", R"("lora_bias":true)",
        R"("alora_invocation_tokens":[1])", R"("trainable_token_indices":[5])", R"("target_parameters":["x"])",
        R"("use_qalora":true)", R"("megatron_config":{"a":1})", R"("arrow_config":{"top_k":1})",
        R"("some_new_thing":2)"}) {
    const std::string name(field + 1, std::string_view(field + 1).find('"'));
    EXPECT_THAT(config_error(std::string(",") + field),
                AllOf(HasSubstr("'" + name + "' is"), HasSubstr("cannot apply")))
        << field;
  }
  EXPECT_EQ(config_error(R"(,"use_dora":true,"modules_to_save":["lm_head"])", {true, true}), "no error");
}

TEST_F(BadAdapter, WrongTypes) {
  EXPECT_THAT(config_error(R"(,"lora_alpha":"16")"), HasSubstr("'lora_alpha' is \"16\", wanted a number"));
  EXPECT_THAT(config_error(R"(,"use_rslora":1)"), HasSubstr("'use_rslora' is 1, wanted true or false"));
  EXPECT_THAT(config_error(R"(,"modules_to_save":[1])"), HasSubstr("wanted a list of names"));
  EXPECT_THAT(config_error(R"(,"rank_pattern":{"q":"4"})"), HasSubstr("wanted an object whose values are numbers"));
  EXPECT_THAT(config_error(R"(,"rank_pattern":{"q":0})"), HasSubstr("'rank_pattern' has the rank 0 for 'q'"));
  EXPECT_THAT(config_error(R"(,"rank_pattern":[])"), HasSubstr("wanted an object"));
  write_text(folder_ / "adapter_config.json", R"({"peft_type":"LORA","r":-1})");
  EXPECT_THAT(user_error([&] { read_adapter_config(folder_.path()); }), HasSubstr("'r' is -1, wanted 1 or more"));
  write_text(folder_ / "adapter_config.json", R"({"peft_type":"LORA","r":2,"target_modules":7})");
  EXPECT_THAT(user_error([&] { read_adapter_config(folder_.path()); }), HasSubstr("wanted a list of names"));
}

TEST_F(BadAdapter, PatternIsNoExpression) {
  EXPECT_THAT(config_error(R"(,"rank_pattern":{"q(":4})"),
              HasSubstr((folder_ / "adapter_config.json").string() + ": 'rank_pattern' has the pattern 'q('"));
}

const Shape kA{DType::kF32, {2, 3}}, kB{DType::kF32, {5, 2}};
const std::string kKey = "base_model.model.q.";

TEST_F(BadAdapter, Tensors) {
  EXPECT_EQ(tensor_error({{kKey + "lora_A.weight", kA}, {kKey + "lora_B.weight", kB}}), "no error");
  EXPECT_THAT(tensor_error({{kKey + "lora_A.weight", kA}}), HasSubstr("'q' has no lora_B"));
  EXPECT_THAT(tensor_error({{kKey + "lora_B.weight", kB}}), HasSubstr("'q' has no lora_A"));
  EXPECT_THAT(tensor_error({}), HasSubstr("has no LoRA weights"));
  EXPECT_THAT(tensor_error({{"model.q.lora_A.weight", kA}}), HasSubstr("does not start with 'base_model.model.'"));
  EXPECT_THAT(tensor_error({{kKey + "lora_A.default.weight", kA}}),
              HasSubstr("neither a LoRA weight nor part of modules_to_save"));
  EXPECT_THAT(tensor_error({{"base_model.model.embed.lora_embedding_A", kA}}), HasSubstr("lora_embedding_A"));
  EXPECT_THAT(tensor_error({{kKey + "lora_A.weight", {DType::kI8, {2, 3}}}}), HasSubstr("is not a float tensor"));
  EXPECT_THAT(tensor_error({{kKey + "lora_A.weight", {DType::kF32, {4, 3}}}, {kKey + "lora_B.weight", kB}}),
              AllOf(HasSubstr("f32[4,3]"), HasSubstr("wanted [2, in] and [out, 2]")));
  EXPECT_THAT(tensor_error({{kKey + "lora_A.weight", {DType::kF32, {2, 3, 1}}}, {kKey + "lora_B.weight", kB}}),
              HasSubstr("f32[2,3,1]"));
}

TEST_F(BadAdapter, AModuleWithLoraWeightsThatIsAlsoSaved) {
  EXPECT_THAT(tensor_error({{kKey + "lora_A.weight", kA},
                            {kKey + "lora_B.weight", kB},
                            {"base_model.model.q.weight", {DType::kF32, {5, 3}}}},
                           R"(,"modules_to_save":["q"])"),
              AllOf(HasSubstr("'q' has LoRA weights and is also in modules_to_save"), HasSubstr("modules_to_save")));
}

TEST_F(BadAdapter, MagnitudesGoWithDora) {
  const NamedShapes plain{{kKey + "lora_A.weight", kA}, {kKey + "lora_B.weight", kB}};
  NamedShapes dora = plain;
  dora.emplace_back(kKey + "lora_magnitude_vector", Shape{DType::kF32, {5}});
  EXPECT_EQ(tensor_error(dora, R"(,"use_dora":true)"), "no error");
  EXPECT_THAT(tensor_error(plain, R"(,"use_dora":true)"),
              HasSubstr("has no lora_magnitude_vector but use_dora is true"));
  EXPECT_THAT(tensor_error(dora), HasSubstr("has a lora_magnitude_vector but use_dora is false"));
  dora.back().second.dims = {4};
  EXPECT_THAT(tensor_error(dora, R"(,"use_dora":true)"), HasSubstr("lora_magnitude_vector f32[4], wanted [5]"));
}

TEST_F(BadAdapter, UnwritablePlace) {
  EXPECT_THAT(user_error([&] { begin_adapter(folder_ / "none", {}, {}); }), HasSubstr("cannot write"));
}

}  // namespace
}  // namespace fettle
