#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/model_writer.h"
#include "checkpoint/repository.h"
#include "paths.h"
#include "temp_folder.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;
const fs::path kReference = source_folder() / "tests/reference/checkpoint";

// Returns the tensors of the recorded model in the order in which Transformers saved them: layer by layer.
NamedShapes in_model_order(const ModelRepository& model) {
  NamedShapes tensors;
  const auto add = [&](const std::string& name) { tensors.emplace_back(name, model.find(name).entry->shape); };
  add("model.embed_tokens.weight");
  for (const char* layer : {"model.layers.0.", "model.layers.1."})
    for (const char* part :
         {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj",
          "mlp.up_proj", "mlp.down_proj", "input_layernorm", "post_attention_layernorm"})
      add(std::string(layer) + part + ".weight");
  add("model.norm.weight");
  return tensors;
}

TEST(ModelWriter, ShardsAndIndexHaveTheBytesThatTheLibraryWrites) {
  TempFolder folder;
  const ModelRepository model = ModelRepository::open(kReference / "sharded");
  ModelWriter writer(folder.path(), in_model_order(model), 700);
  EXPECT_EQ(writer.shard_count(), 4u);
  EXPECT_EQ(writer.total_bytes(), 2256);
  for (const std::string& name : model.names()) {
    const StoredTensor tensor = model.find(name);
    tensor.file->with_bytes(*tensor.entry, [&](auto bytes) { writer.write(name, bytes); });
  }
  writer.finish();
  std::vector<std::string> files = list_tree(folder.path());
  EXPECT_EQ(files, weight_files(kReference / "sharded"));
  for (const std::string& file : files)
    EXPECT_EQ(read_text(folder / file), read_text(kReference / "sharded" / file)) << file;
}

std::vector<std::vector<std::string>> shards_of(const TempFolder& folder) {
  std::vector<std::vector<std::string>> shards;
  for (const std::string& file : list_tree(folder.path())) {
    if (!file.ends_with(".safetensors")) continue;
    shards.emplace_back();
    const SafetensorsFile shard = SafetensorsFile::open(folder / file);
    for (const TensorEntry& entry : shard.entries()) shards.back().push_back(entry.name);
  }
  return shards;
}

std::vector<std::vector<std::string>> shards_for(const std::vector<int64_t>& sizes, int64_t shard_bytes) {
  TempFolder folder;
  NamedShapes tensors;
  for (size_t i = 0; i < sizes.size(); ++i)
    tensors.emplace_back(std::string(1, static_cast<char>('a' + i)), Shape{DType::kU8, {sizes[i]}});
  ModelWriter writer(folder.path(), tensors, shard_bytes);
  for (const auto& [name, shape] : tensors)
    writer.write(name, std::vector<std::byte>(static_cast<size_t>(shape.bytes())));
  writer.finish();
  return shards_of(folder);
}

using Shards = std::vector<std::vector<std::string>>;

TEST(ModelWriter, FillsShardsInOrder) {
  EXPECT_EQ(shards_for({6, 6, 2, 6, 2, 2}, 10), (Shards{{"a"}, {"b", "c"}, {"d", "e", "f"}}));
  EXPECT_EQ(shards_for({5, 5}, 10), (Shards{{"a", "b"}}));
  EXPECT_EQ(shards_for({5, 6}, 10), (Shards{{"a"}, {"b"}}));
}

TEST(ModelWriter, LargeTensorHasItsOwnShard) {
  EXPECT_EQ(shards_for({3, 20, 3}, 10), (Shards{{"b"}, {"a", "c"}}));
  EXPECT_EQ(shards_for({20}, 10), (Shards{{"a"}}));
  EXPECT_EQ(shards_for({}, 10), (Shards{{}}));
}

TEST(ModelWriter, OneShardHasNoIndex) {
  TempFolder folder;
  ModelWriter writer(folder.path(), {{"w", {DType::kU8, {2}}}}, 10);
  writer.write("w", std::vector<std::byte>(1, std::byte{7}), 1);
  writer.write("w", std::vector<std::byte>(1, std::byte{6}), 0);
  writer.finish();
  EXPECT_THAT(list_tree(folder.path()), testing::ElementsAre("model.safetensors"));
  const SafetensorsFile file = SafetensorsFile::open(folder / "model.safetensors");
  const HostArray w = file.read(*file.find("w"));
  EXPECT_THAT(std::vector(w.data(), w.data() + w.bytes()), testing::ElementsAre(std::byte{6}, std::byte{7}));
}

TEST(ModelWriter, LeavesNothingWhenNotFinished) {
  TempFolder folder;
  {
    ModelWriter writer(folder.path(), {{"a", {DType::kU8, {9}}}, {"b", {DType::kU8, {9}}}}, 10);
    writer.write("a", std::vector<std::byte>(9));
    EXPECT_THROW(writer.write("c", std::vector<std::byte>(9)), InternalError);
    EXPECT_THROW(writer.finish(), InternalError);
  }
  EXPECT_THAT(shards_of(folder), testing::SizeIs(1));  // the shard that was complete
}

TEST(ModelWriter, NamesWeightFiles) {
  TempFolder folder;
  for (const char* name : {"model.safetensors", "model-00001-of-00002.safetensors", "pytorch_model.bin", "config.json",
                           "model.safetensors.index.json", "adapter_model.safetensors", "model-mine.safetensors"})
    write_text(folder / name, "");
  EXPECT_THAT(weight_files(folder.path()), testing::ElementsAre("model-00001-of-00002.safetensors", "model.safetensors",
                                                                "model.safetensors.index.json"));
}

}  // namespace
}  // namespace fettle
