#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/copy_files.h"
#include "checkpoint/model_writer.h"
#include "checkpoint/repository.h"
#include "temp_folder.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

std::string open_error(const fs::path& folder) {
  return user_error([&] { ModelRepository::open(folder); });
}

// A model folder with config.json and handmade shards.
class BadModel : public testing::Test {
 protected:
  BadModel() { write_text(folder_ / "config.json", "{}"); }
  void write_shard(const std::string& file, const std::string& tensor) {
    SafetensorsWriter writer(folder_ / file, {{tensor, {DType::kU8, {1}}}});
    writer.write(tensor, std::vector<std::byte>(1));
    writer.finish();
  }
  void write_index(const std::string& map) {
    write_text(folder_ / "model.safetensors.index.json", "{\"weight_map\":" + map + "}");
  }
  std::string error() { return open_error(folder_.path()); }
  TempFolder folder_;
};

TEST(ModelFolder, Missing) {
  EXPECT_THAT(open_error("./no/such"),
              HasSubstr("the model folder './no/such' does not exist; check model_name_or_path (names on the hub are"));
}

TEST(ModelFolder, IsAFile) {
  TempFolder folder;
  write_text(folder / "model.safetensors", "");
  EXPECT_THAT(open_error(folder / "model.safetensors"), HasSubstr("is a file; set model_name_or_path to the folder"));
}

TEST(ModelFolder, WithoutConfig) {
  TempFolder folder;
  EXPECT_THAT(open_error(folder.path()), HasSubstr("config.json is missing"));
  write_text(folder / "adapter_config.json", "{}");
  EXPECT_THAT(open_error(folder.path()), HasSubstr("is an adapter, not a model; set adapter_name_or_path to it"));
}

TEST_F(BadModel, BrokenConfigGivesLineAndColumn) {
  write_text(folder_ / "config.json", "{\n  \"a\": 1,\n  \"b\": oops\n}\n");
  EXPECT_THAT(error(), HasSubstr("config.json: is not valid JSON: syntax error at line 3, column 8"));
  write_text(folder_ / "config.json", "");
  EXPECT_THAT(error(), HasSubstr("config.json: is not valid JSON: the text ends too early"));
  write_text(folder_ / "config.json", "[]");
  EXPECT_THAT(error(), HasSubstr("contains a JSON array, wanted an object"));
  write_text(folder_ / "config.json", "{}");
  write_text(folder_ / "generation_config.json", "{");
  EXPECT_THAT(error(), HasSubstr("generation_config.json: is not valid JSON: the text ends too early"));
}

TEST_F(BadModel, NoWeights) {
  EXPECT_THAT(error(), AllOf(HasSubstr("has no weights"), HasSubstr("train_from_scratch")));
  write_text(folder_ / "model.gguf", "");
  EXPECT_THAT(error(), HasSubstr("GGUF"));
  write_shard("model-00001-of-00002.safetensors", "a");
  fs::remove(folder_ / "model.gguf");
  EXPECT_THAT(error(), HasSubstr("shards but no model.safetensors.index.json"));
}

// Trainers may write the base model's config.json beside the adapter.
TEST_F(BadModel, AnAdapterWithAConfig) {
  write_text(folder_ / "adapter_config.json", "{}");
  EXPECT_THAT(error(), HasSubstr("is an adapter, not a model; set adapter_name_or_path to it"));
}

TEST_F(BadModel, ShardMissing) {
  write_shard("1.safetensors", "a");
  write_index(R"({"a":"1.safetensors","b":"2.safetensors"})");
  EXPECT_THAT(error(), HasSubstr("the shard 2.safetensors is missing"));
}

TEST_F(BadModel, ShardBroken) {
  write_text(folder_ / "1.safetensors", "123");
  write_index(R"({"a":"1.safetensors"})");
  EXPECT_THAT(error(), AllOf(HasSubstr("1.safetensors"), HasSubstr("it has 3 bytes")));
}

TEST_F(BadModel, TensorNotWhereTheIndexSays) {
  write_shard("1.safetensors", "a");
  write_shard("2.safetensors", "b");
  write_index(R"({"a":"1.safetensors","b":"2.safetensors","c":"2.safetensors"})");
  EXPECT_THAT(error(), HasSubstr("'c' should be in 2.safetensors, but that file does not have it"));
  write_index(R"({"a":"2.safetensors","b":"1.safetensors"})");
  EXPECT_THAT(error(), HasSubstr("'a' should be in 2.safetensors"));
}

TEST_F(BadModel, TensorTwice) {
  write_shard("1.safetensors", "a");
  write_shard("2.safetensors", "a");
  write_index(R"({"a":"1.safetensors","b":"2.safetensors"})");
  EXPECT_THAT(error(), AllOf(HasSubstr("both "), HasSubstr("1.safetensors and "),
                             HasSubstr("2.safetensors have the tensor 'a'")));
}

TEST_F(BadModel, MalformedIndex) {
  write_text(folder_ / "model.safetensors.index.json", "{}");
  EXPECT_THAT(error(), HasSubstr("has no object 'weight_map'"));
  write_index("[]");
  EXPECT_THAT(error(), HasSubstr("has no object 'weight_map'"));
  write_index(R"({"a":1})");
  EXPECT_THAT(error(), HasSubstr("weight_map: the value of 'a' is not a file name; download the file again"));
  write_index(R"({"a":"../1.safetensors"})");
  EXPECT_THAT(error(), HasSubstr("wanted the name of a file in the same folder"));
  write_index("{");
  EXPECT_THAT(error(), HasSubstr("model.safetensors.index.json: is not valid JSON: the text ends too early"));
}

TEST_F(BadModel, UnknownTensorNamesNearOnes) {
  write_shard("model.safetensors", "transformer.h.0.attn.weight");
  const ModelRepository model = ModelRepository::open(folder_.path());
  EXPECT_THAT(user_error([&] { model.find("h.0.attn.weight"); }),
              AllOf(HasSubstr("no tensor 'h.0.attn.weight' among its 1"), HasSubstr("transformer.h.0.attn.weight")));
}

// A weight in 8-bit floats is refused if its scale factors are missing or have a wrong shape or dtype, or if
// config.json has wrong block sizes.
TEST_F(BadModel, WeightsInEightBitFloats) {
  auto write = [&](const std::string& quantisation, const std::vector<std::pair<std::string, Shape>>& tensors) {
    write_text(folder_ / "config.json", R"({"quantization_config": )" + quantisation + "}");
    SafetensorsWriter writer(folder_ / "model.safetensors", tensors);
    for (const auto& [name, shape] : tensors) writer.write(name, std::vector<std::byte>(shape.bytes()));
    writer.finish();
  };
  const Shape codes{DType::kF8E4M3FN, {200, 130}};
  const std::string fp8 = R"({"quant_method": "fp8", "weight_block_size": [128, 128]})";
  write(fp8, {{"a.weight", codes}});
  EXPECT_THAT(error(), AllOf(HasSubstr("'a.weight' is in 8-bit floats"), HasSubstr("'a.weight_scale_inv' is missing")));
  write(fp8, {{"a.weight", codes}, {"a.weight_scale_inv", {DType::kF32, {2, 1}}}});
  EXPECT_THAT(error(), AllOf(HasSubstr("'a.weight_scale_inv'"), HasSubstr("wanted floats [2, 2]"),
                             HasSubstr("each 128 x 128 block"), HasSubstr("[200, 130]")));
  write(fp8, {{"a.weight", codes}, {"a.weight_scale_inv", {DType::kU8, {2, 2}}}});
  EXPECT_THAT(error(), HasSubstr("wanted floats"));
  write(R"({"quant_method": "fp8", "weight_block_size": [128]})", {{"a.weight", codes}});
  EXPECT_THAT(error(), AllOf(HasSubstr("weight_block_size"), HasSubstr("two positive integers")));
}

TEST_F(BadModel, CopyToAMissingFolder) {
  EXPECT_THAT(user_error([&] { copy_model_files(folder_.path(), folder_ / "none"); }), HasSubstr("cannot copy"));
  EXPECT_THAT(user_error([&] { copy_model_files(folder_ / "none", folder_.path()); }), HasSubstr("cannot read"));
}

TEST(ModelWriterDisk, TooLittleSpaceGivesBothFigures) {
  TempFolder folder;
  const int64_t bytes = int64_t{1} << 60;
  EXPECT_THAT(([&] {
                ModelWriter(folder.path(), {{"w", {DType::kU8, {bytes}}}}, int64_t{1} << 40);
              }),
              testing::ThrowsMessage<DoesNotFit>(
                  AllOf(HasSubstr("the model needs 1152921504.61 GB of disk space, but"), HasSubstr("are free"))));
  EXPECT_TRUE(list_tree(folder.path()).empty());
}

}  // namespace
}  // namespace fettle
