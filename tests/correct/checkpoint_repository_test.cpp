#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "checkpoint/copy_files.h"
#include "checkpoint/load.h"
#include "checkpoint/model_writer.h"
#include "checkpoint/repository.h"
#include "paths.h"
#include "temp_folder.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;
const fs::path kReference = source_folder() / "tests/reference/checkpoint";
constexpr const char* kEmbedding = "model.embed_tokens.weight";

TEST(Repository, ShardsAreOneModel) {
  const ModelRepository model = ModelRepository::open(kReference / "sharded");
  EXPECT_EQ(model.config().at("model_type"), "llama");
  ASSERT_TRUE(model.generation_config().has_value());
  EXPECT_EQ(model.files().size(), 4u);
  EXPECT_EQ(model.names().size(), 20u);
  EXPECT_EQ(model.total_bytes(), 2256);
  EXPECT_TRUE(model.contains("model.norm.weight"));
  EXPECT_FALSE(model.contains("lm_head.weight"));
  const StoredTensor q = model.find("model.layers.1.self_attn.q_proj.weight");
  EXPECT_EQ(q.entry->shape, (Shape{DType::kBF16, {8, 8}}));
  EXPECT_EQ(q.file->path().filename(), "model-00003-of-00004.safetensors");
  EXPECT_TRUE(std::is_sorted(model.names().begin(), model.names().end()));
}

TEST(Repository, OneFileIsAModelAndIsPreferredToAnIndex) {
  TempFolder folder;
  write_text(folder / "config.json", "{}");
  write_text(folder / "model.safetensors.index.json", R"({"weight_map":{"gone":"gone.safetensors"}})");
  ModelWriter writer(folder.path(), {{"w", {DType::kI8, {3}}}}, 100);
  writer.write("w", std::vector<std::byte>(3));
  writer.finish();
  const ModelRepository model = ModelRepository::open(folder.path());
  EXPECT_THAT(model.names(), testing::ElementsAre("w"));
  EXPECT_FALSE(model.generation_config().has_value());
}

TEST(Repository, StaysValidWhenMoved) {
  ModelRepository model = ModelRepository::open(kReference / "sharded");
  auto address_of_norm = [](const ModelRepository& repository) {
    const StoredTensor norm = repository.find("model.norm.weight");
    const std::byte* address = nullptr;
    norm.file->with_bytes(*norm.entry, [&](auto bytes) { address = bytes.data(); });
    return address;
  };
  const std::byte* address = address_of_norm(model);
  const ModelRepository moved = std::move(model);
  EXPECT_EQ(address_of_norm(moved), address);
}

TEST(Repository, WeightsMayBeIgnored) {
  TempFolder folder;
  write_text(folder / "config.json", R"({"model_type":"llama"})");
  const ModelRepository model = ModelRepository::open(folder.path(), ModelRepository::Weights::kIgnored);
  EXPECT_EQ(model.config().at("model_type"), "llama");
  EXPECT_TRUE(model.names().empty());
}

TEST(Repository, CopiesTokenizerAndModelFilesButNoWeights) {
  TempFolder folder;
  const fs::path from = folder / "from", to = folder / "to", both = folder / "both";
  for (const char* name : {"generation_config.json",
                           "tokenizer.json",
                           "special_tokens_map.json",
                           "vocab.json",
                           "merges.txt",
                           "preprocessor_config.json",
                           "processor_config.json",
                           "video_preprocessor_config.json",
                           "tokenizer.model",
                           "qwen.tiktoken",
                           "tiktoken.model",
                           "chat_template.jinja",
                           "tokenization_x.py",
                           "make_tokenizer.py",
                           "model.safetensors",
                           "model.safetensors.index.json",
                           "trainer_state.json",
                           "README.md",
                           "additional_chat_templates/rag.jinja",
                           "additional_chat_templates/notes.txt"})
    write_text(from / name, name);
  const std::string config =
      R"({"auto_map": {"AutoModel": "someone/x--modeling_x.Model", "AutoConfig": [null, "gone.C"]}})";
  write_text(from / "config.json", config);
  write_text(from / "tokenizer_config.json", "{}");
  write_text(from / "modeling_x.py", "import torch\nfrom .layers_x import Layer\n");
  write_text(from / "layers_x.py", "from . import modeling_x\nfrom .modeling_x import Model\n");
  fs::create_directories(to);
  fs::create_directories(both);
  copy_tokenizer_files(from, to);
  EXPECT_THAT(list_tree(to),
              testing::ElementsAre("additional_chat_templates/rag.jinja", "chat_template.jinja", "merges.txt",
                                   "qwen.tiktoken", "special_tokens_map.json", "tiktoken.model", "tokenization_x.py",
                                   "tokenizer.json", "tokenizer.model", "tokenizer_config.json", "vocab.json"));
  copy_model_files(from, both);
  copy_model_files(from, both);  // copies the files onto themselves
  EXPECT_EQ(list_tree(both).size(), list_tree(to).size() + 7);
  EXPECT_EQ(read_text(both / "generation_config.json"), "generation_config.json");
  for (const char* name : {"preprocessor_config.json", "processor_config.json", "video_preprocessor_config.json"})
    EXPECT_TRUE(fs::exists(both / name)) << name;
  EXPECT_TRUE(fs::exists(both / "modeling_x.py"));
  EXPECT_TRUE(fs::exists(both / "layers_x.py")) << "imported by modeling_x";
  EXPECT_FALSE(fs::exists(both / "make_tokenizer.py"));
  copy_model_files(both, both);
  EXPECT_EQ(read_text(both / "config.json"), config);
}

// Writes the tied model of kReference with its embedding under the name of the head.
void write_with_head(const fs::path& folder, const nlohmann::json& config) {
  const ModelRepository original = ModelRepository::open(kReference / "sharded");
  const auto saved_name = [](const std::string& name) { return name == kEmbedding ? "lm_head.weight" : name; };
  NamedShapes tensors;
  for (const std::string& name : original.names())
    tensors.emplace_back(saved_name(name), original.find(name).entry->shape);
  SafetensorsWriter writer(folder / "model.safetensors", tensors);
  for (const std::string& name : original.names()) {
    const StoredTensor stored = original.find(name);
    stored.file->with_bytes(*stored.entry, [&](auto bytes) { writer.write(saved_name(name), bytes); });
  }
  writer.finish();
  write_text(folder / "config.json", config.dump());
}

// safetensors.torch.save_model keeps only the first name of a tied tensor in the alphabet.
TEST(Repository, TheHeadOfATiedModelMayStandForItsEmbedding) {
  const ModelRepository original = ModelRepository::open(kReference / "sharded");
  nlohmann::json config = original.config();
  ASSERT_TRUE(config["tie_word_embeddings"]);
  TempFolder folder;
  write_with_head(folder.path(), config);
  const ModelRepository model = ModelRepository::open(folder.path());
  EXPECT_EQ(model.names(), original.names());
  EXPECT_EQ(model.total_bytes(), original.total_bytes());
  check_weights(model, make_model(model.config(), "config.json"));
  const StoredTensor got = model.find(kEmbedding), wanted = original.find(kEmbedding);
  const HostArray a = got.file->read(*got.entry), b = wanted.file->read(*wanted.entry);
  ASSERT_EQ(a.shape(), b.shape());
  EXPECT_EQ(std::memcmp(a.data(), b.data(), static_cast<size_t>(a.bytes())), 0);
  config["tie_word_embeddings"] = false;
  write_with_head(folder.path(), config);
  EXPECT_FALSE(ModelRepository::open(folder.path()).contains(kEmbedding)) << "two different matrices";
}

// Only a computation in 8 bits needs the scales of activations, and of cached keys and values.
TEST(Repository, LeavesOutScalesOfActivations) {
  TempFolder folder;
  NamedShapes tensors{{"l.mlp.weight", {DType::kF32, {1}}}};
  for (const char* scale : {"self_attn.q_scale", "self_attn.k_scale", "self_attn.v_scale", "k_proj.output_scale",
                            "self_attn.kv_scale", "q_proj.input_scale"})
    tensors.emplace_back(std::string("l.") + scale, Shape{DType::kF32, {1}});
  SafetensorsWriter writer(folder / "model.safetensors", tensors);
  for (const auto& [name, shape] : tensors) writer.write(name, std::vector<std::byte>(4));
  writer.finish();
  write_text(folder / "config.json",
             R"({"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 16}})");
  EXPECT_THAT(ModelRepository::open(folder.path()).names(), testing::ElementsAre("l.mlp.weight"));
  write_text(folder / "config.json", "{}");
  EXPECT_EQ(ModelRepository::open(folder.path()).names().size(), 7u) << "not a quantised model";
}

// The search for imports must not recurse once per character of a line.
TEST(Repository, FollowsImportsThroughALargeFile) {
  TempFolder folder;
  const fs::path from = folder / "from", to = folder / "to";
  write_text(from / "config.json", R"({"auto_map": {"AutoModel": "modeling_x.Model"}})");
  write_text(from / "modeling_x.py", "import torch\n" + std::string(5'000'000, ' ') +
                                         "\n  from\t.layers_x  import Layer\nfrom .gone.y import Z\nfrom .not_one\n");
  write_text(from / "layers_x.py", "from .norms_x import " + std::string(5'000'000, 'x'));
  write_text(from / "norms_x.py", "# from .other_x import Other\n");
  write_text(from / "other_x.py", "");
  write_text(from / "not_one.py", "");
  fs::create_directories(to);
  copy_model_files(from, to);
  EXPECT_THAT(list_tree(to), testing::ElementsAre("config.json", "layers_x.py", "modeling_x.py", "norms_x.py"));
}

}  // namespace
}  // namespace fettle
