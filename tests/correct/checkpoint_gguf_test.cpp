// Tests GGUF files that llama.cpp wrote (tests/reference/gguf_files.py). They have the tensors, values and tokens of
// the models from which they were made.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <map>
#include <set>

#include "base/arrays/box_copy.h"
#include "base/files/json_file.h"
#include "base/files/mapped_file.h"
#include "checkpoint/gguf/block_types.h"
#include "checkpoint/gguf/families.h"
#include "checkpoint/gguf/places.h"
#include "checkpoint/gguf/pre_tokenizers.h"
#include "checkpoint/gguf/tokenizer_files.h"
#include "checkpoint/gguf/write/folded_factors.h"
#include "checkpoint/gguf/write/gguf_writer.h"
#include "checkpoint/gguf/write/metadata.h"
#include "checkpoint/gguf/write/tokenizer_metadata.h"
#include "checkpoint/load.h"
#include "checkpoint/safetensors.h"
#include "gguf_reference.h"
#include "models/model.h"
#include "tokenizer/models/word_patterns.h"
#include "tokenizer/text/unicode.h"
#include "tokenizer/tokenizer.h"

namespace fettle {
namespace {

TEST(GgufBlocks, DecodeToTheValuesOfTheGgufLibrary) {
  const SafetensorsFile recorded = SafetensorsFile::open(kGgufFiles / "blocks.safetensors");
  int types = 0;
  for (const TensorEntry& entry : recorded.entries()) {
    const std::string name = entry.name.substr(0, entry.name.find('.'));
    if (!entry.name.ends_with(".blocks")) continue;
    const BlockType& type = *find_block_type(name);
    const HostArray blocks = recorded.read(entry);
    const HostArray wanted = recorded.read(*recorded.find(name + ".values"));
    const int64_t count = wanted.shape().elements();
    ASSERT_EQ(blocks.shape().dims[1], type.bytes) << name;
    ASSERT_EQ(count, blocks.shape().dims[0] * type.elements) << name;
    std::vector<float> got(static_cast<size_t>(count));
    decode_blocks(type, blocks.data(), 0, count, got.data());
    EXPECT_EQ(std::memcmp(got.data(), wanted.data(), static_cast<size_t>(wanted.bytes())), 0) << name;
    // This part begins and ends within blocks.
    const int64_t first = type.elements / 3, some = count - first - 1;
    std::vector<float> part(static_cast<size_t>(some));
    decode_blocks(type, blocks.data(), first, some, part.data());
    EXPECT_TRUE(std::equal(part.begin(), part.end(), got.begin() + first)) << name;
    ++types;
  }
  EXPECT_EQ(types, 14);
}

class GgufModel : public testing::TestWithParam<std::string> {};

// The error of Q8_0 is at most half a step, which is 1/254 of a block's largest value, plus the error of the block's
// f16 scale.
TEST_P(GgufModel, HasTheTensorsOfTheModelItWasMadeOf) {
  const ModelRepository made = ModelRepository::open(unpacked(kGgufFiles / "models" / (GetParam() + ".gguf")));
  const ModelRepository original = ModelRepository::open(reference_model(GetParam()));
  check_weights(made, make_model(made.config(), "config.json"));
  const ModelConfig config = make_model(original.config(), "config.json").config;
  for (const std::string& name : made.names()) {  // check_weights() has found a tensor for each parameter
    std::string wrapped = "model.language_model" + name.substr(std::min(name.size(), name.find('.')));
    if (!original.contains(wrapped)) wrapped = "language_model." + name;
    const StoredTensor a = made.find(name), b = original.find(original.contains(name) ? name : wrapped);
    ASSERT_EQ(a.entry->shape.dims, b.entry->shape.dims) << name;
    const Box all = Box::whole(a.entry->shape.dims);
    HostArray got(a.entry->shape.with_dtype(DType::kF32)), wanted(got.shape());
    a.file->read_slice(*a.entry, all, DType::kF32, got.data());
    b.file->read_slice(*b.entry, all, DType::kF32, wanted.data());
    const std::vector<RowFactors> factors = folded_factors(config, name);
    std::vector<float> multiplied(wanted.as<float>().begin(), wanted.as<float>().end());
    apply_factors(factors, 0, static_cast<int64_t>(multiplied.size()) / all.size[0], multiplied);
    std::ranges::copy(multiplied, wanted.as<float>().begin());
    float largest = 0, difference = 0;
    for (size_t i = 0; i < got.as<float>().size(); ++i) {
      largest = std::max(largest, std::abs(std::as_const(wanted).as<float>()[i]));
      difference =
          std::max(difference, std::abs(std::as_const(got).as<float>()[i] - std::as_const(wanted).as<float>()[i]));
    }
    EXPECT_LE(difference, a.entry->shape.dtype == DType::kF32 ? 1.2e-7f : largest / 220) << name;
    // Boxes that begin within rows and blocks have the same values.
    Box box = all;
    for (size_t d = 0; d < box.size.size(); ++d)
      box.start[d] = box.size[d] / 3, box.size[d] -= box.start[d] + box.size[d] / 8;
    HostArray part({DType::kF32, box.size});
    a.file->read_slice(*a.entry, box, DType::kF32, part.data());
    HostArray cut({DType::kF32, box.size});
    copy_common(all, got.data(), box, cut.data(), sizeof(float));
    EXPECT_EQ(std::memcmp(part.data(), cut.data(), static_cast<size_t>(cut.bytes())), 0) << name;
  }
}

GgufValue value_of(const nlohmann::json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number_integer()) return value.get<uint32_t>();
  if (value.is_number()) return value.get<float>();
  if (value.empty() || value[0].is_string()) return value.get<std::vector<std::string>>();
  if (value[0].is_boolean()) return value.get<std::vector<bool>>();
  if (value[0].is_number_integer()) return value.get<std::vector<int32_t>>();
  return value.get<std::vector<float>>();
}

// Writes the model in two parts, like llama-gguf-split, and returns the first one. `in_first` says which tensors are in
// the first part.
std::filesystem::path in_two_parts(const std::filesystem::path& file, const std::filesystem::path& folder,
                                   const std::function<bool(const std::string&)>& in_first) {
  const MappedFile map(file);
  const GgufHeader header = read_gguf_header(map.bytes(), file.string());
  std::filesystem::create_directories(folder);
  for (const bool first : {true, false}) {
    GgufMetadata keys(header.values.at("general.architecture").get<std::string>());
    for (const auto& [key, value] : header.values)
      if (first) keys.set(key, value_of(value));
    keys.set("split.count", uint16_t{2});
    std::vector<GgufTensor> tensors;
    for (const GgufTensor& tensor : header.tensors)
      if (in_first(tensor.name) == first) tensors.push_back(tensor);
    GgufWriter writer(folder / (first ? "m-00001-of-00002.gguf" : "m-00002-of-00002.gguf"), keys, tensors);
    for (size_t i = 0; i < tensors.size(); ++i)
      writer.write(
          i, map.bytes().subspan(static_cast<size_t>(tensors[i].offset), static_cast<size_t>(tensors[i].bytes)), 0);
    writer.finish();
  }
  return folder / "m-00001-of-00002.gguf";
}

// llama-gguf-split --no-tensor-first-split writes a first part without tensors.
TEST_P(GgufModel, InPartsHasTheSameConfig) {
  const TempFolder folder;
  const std::filesystem::path file = kGgufFiles / "models" / (GetParam() + ".gguf");
  const auto wanted = read_json_file(unpacked(file) / "config.json");
  const auto empty = in_two_parts(file, folder / "empty", [](const std::string&) { return false; });
  EXPECT_EQ(read_json_file(unpacked(empty) / "config.json"), wanted);
  const auto is_table = [](const std::string& name) { return name == "token_embd.weight"; };
  const auto some = in_two_parts(file, folder / "some", is_table);
  EXPECT_EQ(read_json_file(unpacked(some) / "config.json"), wanted);
  EXPECT_EQ(ModelRepository::open(unpacked(some)).tensors().size(),
            ModelRepository::open(unpacked(file)).tensors().size());
}

INSTANTIATE_TEST_SUITE_P(Families, GgufModel, testing::ValuesIn(kGgufFamilies),
                         [](const auto& info) { return info.param; });

// Layers that predict a second token come last in a file. Fettle does not load them.
TEST(GgufPlaces, LeaveOutLayersThatPredictASecondToken) {
  GgufHeader header;
  header.values = {
      {"general.architecture", "glm4moe"}, {"glm4moe.block_count", 4}, {"glm4moe.nextn_predict_layers", 1}};
  const GgufFields fields(header, {}, "m.gguf");
  EXPECT_EQ(fields.layers(), 3);
  const GgufPlaces places(gguf_family_of(fields), {.heads = 4, .kv_heads = 2, .layers = fields.layers()}, "m.gguf");
  const BlockType* f32 = find_block_type("F32");
  std::vector<TensorEntry> entries;
  places.add({"blk.3.nextn.eh_proj.weight", {4, 8}, f32, 0, 128}, entries);
  places.add({"blk.3.attn_k.weight", {4, 8}, f32, 0, 128}, entries);
  EXPECT_TRUE(entries.empty());
  places.add({"blk.2.attn_k.weight", {4, 8}, f32, 0, 128}, entries);
  ASSERT_EQ(entries.size(), 1u);
  EXPECT_EQ(entries[0].name, "model.layers.2.self_attn.k_proj.weight");
}

class GgufTokenizer : public testing::TestWithParam<std::string> {};

TEST_P(GgufTokenizer, GivesTheIdsOfTheTokenizerItWasMadeOf) {
  const std::filesystem::path reference = source_folder() / "tests/reference/tokenizer";
  const MappedFile file(kGgufFiles / "tokenizer" / (GetParam() + ".gguf"));
  const GgufHeader header = read_gguf_header(file.bytes(), "m.gguf");
  const TempFolder folder;
  write_gguf_tokenizer(GgufFields(header, {file.bytes()}, "m.gguf"), folder.path());
  const Tokenizer made = Tokenizer::open(folder.path());
  const Tokenizer original = Tokenizer::open(reference / GetParam());
  const auto lines = nlohmann::json::parse(std::ifstream(reference / "lines.json")).get<std::vector<std::string>>();
  ASSERT_GT(lines.size(), 100u);
  size_t compared = 0;
  for (const std::string& line : lines) {
    // SentencePiece replaces some characters. The table of replacements is not in GGUF files, so only lines without
    // such characters are compared.
    if (GetParam() == "sp_bpe" && original.decode(original.encode(line, false), false) != line) continue;
    ++compared;
    const std::vector<int32_t> ids = original.encode(line, true);
    EXPECT_EQ(made.encode(line, true), ids) << line;
    EXPECT_EQ(made.decode(ids, false), original.decode(ids, false)) << line;
  }
  EXPECT_GT(compared, 60u);
  // llama3's tokenizer_config.json and special_tokens_map.json have different eos tokens.
  if (GetParam() != "llama3") {
    EXPECT_EQ(made.eos_token(), original.eos_token());
  }
  EXPECT_EQ(made.chat_template(), original.chat_template());
}

INSTANTIATE_TEST_SUITE_P(Kinds, GgufTokenizer, testing::Values("gpt2", "llama3", "qwen2", "sp_bpe"),
                         [](const auto& info) { return info.param; });

// Lines for which llama.cpp gives other ids than the models' own tokenizers: it does not compose characters, and it
// approximates some patterns. In these lines, Fettle follows the models.
const std::map<std::string, std::set<std::string>> kLinesOfTheModels{
    {"e\u0301tude a\u0301\u0302b \u0939\u093f\u0928\u094d\u0926\u0940",
     {"olmo", "mpt", "command-r", "qwen2", "deepseek-r1-qwen", "qwen35", "tekken", "gpt-4o", "llama4", "kanana2",
      "minimax-m2", "kimi-k2"}},
    {"getUserName iPhone's don'tStop", {"kimi-k2"}},
    {" \u3005\u3006", {"kimi-k2"}},
    {"c\u3000d b\u2003c\u200be", {"deepseek-llm", "deepseek-coder"}}};

// Tests the methods that tokenizer.ggml.pre can name against llama.cpp (tests/reference/gguf_words.py).
TEST(GgufWords, AreThoseOfLlamaCpp) {
  const auto recorded = nlohmann::json::parse(std::ifstream(kGgufFiles / "words.json"));
  std::vector<std::string> tokens;
  std::set<std::string> known;
  const auto add = [&](const std::string& token) {
    if (known.insert(token).second) tokens.push_back(token);
  };
  for (int byte = 0; byte < 256; ++byte) add(to_alphabet(std::string(1, static_cast<char>(byte))));
  for (std::string merge : recorded["merges"]) add(merge.erase(merge.find(' '), 1));
  add("<s>");
  const auto last = static_cast<int64_t>(tokens.size()) - 1;
  std::vector<int64_t> types(tokens.size(), kNormalToken);
  types.back() = kControlToken;
  size_t names = 0;
  for (const auto& method : recorded["methods"])
    for (const std::string name : method["names"]) {
      SCOPED_TRACE(name);
      GgufHeader header;
      header.values = {{"general.architecture", "llama"},
                       {"llama.context_length", 32},
                       {"tokenizer.ggml.model", "gpt2"},
                       {"tokenizer.ggml.pre", name},
                       {"tokenizer.ggml.tokens", tokens},
                       {"tokenizer.ggml.token_type", types},
                       {"tokenizer.ggml.merges", recorded["merges"]},
                       {"tokenizer.ggml.bos_token_id", last}};
      const TempFolder folder;
      write_gguf_tokenizer(GgufFields(header, {}, "m.gguf"), folder.path());
      const Tokenizer tokenizer = Tokenizer::open(folder.path());
      for (size_t i = 0; i < recorded["lines"].size(); ++i) {
        const std::string line = recorded["lines"][i];
        const auto of_models = kLinesOfTheModels.find(line);
        const bool same = of_models == kLinesOfTheModels.end() || !of_models->second.contains(name);
        EXPECT_EQ(nlohmann::json(tokenizer.encode(line, true)) == method["ids"][i], same) << line;
      }
      ++names;
    }
  EXPECT_GE(names, 35u);
}

// Older files do not name the method.
TEST(GgufWords, OfArchitecturesWithOneMethod) {
  for (const auto& [architecture, name] : {std::pair{"gpt2", "gpt-2"},
                                           {"phi2", "gpt-2"},
                                           {"gptneox", "olmo"},
                                           {"starcoder", "starcoder"},
                                           {"starcoder2", "starcoder"}}) {
    GgufHeader header;
    header.values = {{"general.architecture", architecture},
                     {std::string(architecture) + ".context_length", 32},
                     {"tokenizer.ggml.model", "gpt2"},
                     {"tokenizer.ggml.tokens", nlohmann::json::array({"a", "b", "ab"})},
                     {"tokenizer.ggml.merges", nlohmann::json::array({"a b"})}};
    const auto written = [&](const char* method) {
      if (method != nullptr) header.values["tokenizer.ggml.pre"] = method;
      const TempFolder folder;
      write_gguf_tokenizer(GgufFields(header, {}, "m.gguf"), folder.path());
      return read_file(folder / "tokenizer.json");
    };
    const std::string unnamed = written(nullptr);
    EXPECT_EQ(unnamed, written(name)) << architecture;
    EXPECT_EQ(unnamed, written("default")) << architecture;
  }
}

// Writes the tokenizer of the folder to GGUF keys, checks its ids, and returns the method that cuts texts.
std::string written_method(const std::filesystem::path& folder, int64_t vocab_size) {
  GgufMetadata metadata("llama");
  metadata.set(".context_length", uint32_t{32});
  set_tokenizer_metadata(folder, vocab_size, {{"model_type", "llama"}}, nullptr, metadata);
  const TempFolder scratch;
  check_tokenizer(folder, metadata, scratch.path());
  return header_of(metadata, {}).values.at("tokenizer.ggml.pre");
}

TEST(GgufTokenizerKeys, OfRanks) {
  const std::filesystem::path reference = source_folder() / "tests/reference/tokenizer/ranks";
  const int64_t size = Tokenizer::open(reference).vocab_size();
  EXPECT_EQ(written_method(reference, size), "dbrx");
  const TempFolder folder;
  std::filesystem::copy(reference / "tokenizer.model", folder / "tiktoken.model");
  write_text(folder / "tokenizer_config.json", nlohmann::json{{"pat_str", kKimiWords}}.dump());
  EXPECT_EQ(written_method(folder.path(), size), "kimi-k2");
}

TEST(GgufTokenizerKeys, OfVocabularyAndMerges) {
  const auto json = read_json_file(source_folder() / "tests/reference/tokenizer/gpt2/tokenizer.json");
  const TempFolder folder;
  write_text(folder / "config.json", R"({"model_type": "gpt2"})");
  write_text(folder / "vocab.json", json["model"]["vocab"].dump());
  std::string merges;
  for (const auto& merge : json["model"]["merges"]) merges += merge.get<std::string>() + "\n";
  write_text(folder / "merges.txt", merges);
  EXPECT_EQ(written_method(folder.path(), 700), "gpt-2");
}

// DeepSeek's own files cut digits in another way than llama.cpp, which has the same effect on their vocabulary.
TEST(GgufTokenizerKeys, OfDeepseeksOwnFiles) {
  const NamedPreTokenizer& pre = pre_tokenizer_of("deepseek-llm", "m.gguf");
  nlohmann::json tokenizer{{"model", {{"type", "BPE"}}}, {"pre_tokenizer", pre_tokenizer_json(pre)}};
  EXPECT_EQ(pre_tokenizer_name(tokenizer), "deepseek-llm");
  tokenizer["pre_tokenizer"]["pretokenizers"][5] = {{"type", "Digits"}, {"individual_digits", true}};
  EXPECT_EQ(pre_tokenizer_name(tokenizer), "deepseek-llm");
}

TEST(GgufFolder, IsKeptUntilTheFileChanges) {
  const TempFolder folder;
  std::filesystem::copy(kGgufFiles / "models/llama.gguf", folder / "a.gguf");
  const std::filesystem::path first = unpacked(folder / "a.gguf");
  EXPECT_EQ(unpacked(folder / "a.gguf"), first);
  EXPECT_EQ(find_gguf(folder.path()), folder / "a.gguf");
  std::filesystem::copy(kGgufFiles / "models/qwen3.gguf", folder / "a.gguf",
                        std::filesystem::copy_options::overwrite_existing);
  const std::filesystem::path second = unpacked(folder / "a.gguf");
  EXPECT_NE(second, first);
  EXPECT_EQ(ModelRepository::open(second).config()["model_type"], "qwen3");
}

TEST(GgufFolder, AFileOfAnyNameIsFound) {
  const TempFolder folder;
  std::filesystem::copy(kGgufFiles / "models/llama.gguf", folder / "model.gguf");
  ASSERT_EQ(find_gguf(folder.path()), folder / "model.gguf");
  EXPECT_EQ(find_gguf(unpacked(folder / "model.gguf")), std::nullopt);  // a folder that Fettle made
}

TEST(GgufFolder, TakesTheChatTemplateBesideTheOnlyModel) {
  const TempFolder folder;
  std::filesystem::copy(kGgufFiles / "models/llama.gguf", folder / "a.gguf");
  const std::optional<std::string> own = Tokenizer::open(unpacked(folder / "a.gguf")).chat_template();
  for (const char* text : {"{{ 1 }}", "{{ 2 }}"}) {
    write_text(folder / "chat_template.jinja", text);
    EXPECT_EQ(Tokenizer::open(unpacked(folder / "a.gguf")).chat_template(), text);
  }
  write_text(folder / "b.gguf", "");  // the template may belong to this model
  testing::internal::CaptureStderr();
  EXPECT_EQ(Tokenizer::open(unpacked(folder / "a.gguf")).chat_template(), own);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              testing::HasSubstr("chat_template.jinja is not used, because its folder has several GGUF models"));
}

TEST(GgufFolder, IsKeptUntilALaterPartChanges) {
  const TempFolder folder;
  std::filesystem::copy(kGgufFiles / "models/llama.gguf", folder / "blob");
  std::filesystem::create_symlink("blob", folder / "a-00001-of-00002.gguf");
  write_text(folder / "a-00002-of-00002.gguf", "one");
  const std::filesystem::path first = unpacked(folder / "a-00001-of-00002.gguf");
  EXPECT_EQ(unpacked(folder / "a-00001-of-00002.gguf"), first);
  EXPECT_EQ(std::filesystem::read_symlink(first / kGgufWeights).filename(), "a-00001-of-00002.gguf");
  write_text(folder / "a-00002-of-00002.gguf", "another");
  EXPECT_NE(unpacked(folder / "a-00001-of-00002.gguf"), first);
}

}  // namespace
}  // namespace fettle
