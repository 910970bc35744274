// Tests the export to GGUF. The files equal those of llama.cpp's converter (tests/reference/gguf_files.py), and contain
// the merged model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "base/error.h"
#include "base/files/cache.h"
#include "base/files/json_file.h"
#include "base/files/mapped_file.h"
#include "base/files/output_file.h"
#include "checkpoint/gguf/gguf_files.h"
#include "checkpoint/gguf/tokenizer_files.h"
#include "checkpoint/gguf/write/tokenizer_metadata.h"
#include "checkpoint/load.h"
#include "checkpoint/model_files.h"
#include "config/recipe.h"
#include "export/export.h"
#include "export/logit_check.h"
#include "gguf_reference.h"
#include "models/model.h"
#include "tokenizer/tokenizer.h"

namespace fettle {
namespace {

using testing::AllOf;
using testing::HasSubstr;
namespace fs = std::filesystem;

TEST(CodedWarning, ShowsThatTheErrorIsAboveTheUsualValue) {
  EXPECT_EQ(coded_warning("Q8_0", 0.05), std::nullopt);
  EXPECT_EQ(coded_warning("Q8_0", 0.0504), std::nullopt);
  EXPECT_THAT(coded_warning("Q8_0", 0.0506).value_or(""),
              HasSubstr("by 5.1% of their standard deviation, more than usual for this type (5%)"));
}

struct OpenedFile {
  MappedFile map;
  GgufHeader header;

  explicit OpenedFile(const fs::path& path) : map(path), header(read_gguf_header(map.bytes(), path.string())) {}

  const GgufTensor* find(const std::string& name) const {
    for (const GgufTensor& tensor : header.tensors)
      if (tensor.name == name) return &tensor;
    return nullptr;
  }
  std::span<const std::byte> bytes_of(const GgufTensor& tensor) const {
    return map.bytes().subspan(static_cast<size_t>(tensor.offset), static_cast<size_t>(tensor.bytes));
  }
};

// Copies the recorded model, with the config that GGUF can express, and returns the copy's folder.
fs::path model_for_gguf(const std::string& family, const fs::path& folder) {
  const fs::path to = folder / "models" / family;
  fs::create_directories(to);
  for (const auto& entry : fs::directory_iterator(reference_model(family)))
    if (entry.is_regular_file()) fs::copy_file(entry.path(), to / entry.path().filename());
  if (!family.starts_with("falcon_h1"))  // the export needs the config's factors
    write_json_file(to / "config.json", config_known_to_gguf(family, read_json_file(to / "config.json")));
  return to;
}

Recipe gguf_recipe(const fs::path& model, const fs::path& to, const std::vector<std::string>& types) {
  Recipe recipe;
  recipe.model_name_or_path = model.string();
  recipe.export_dir = to.string();
  recipe.export_gguf = types;
  recipe.plugin = "cpu";
  return recipe;
}

ExportReport run(const Recipe& recipe) {
  return run_export(Request(recipe, Command::kExport));
}

class GgufExport : public testing::TestWithParam<std::string> {};

// Returns whether the family has Mamba2 and no rope. For such models, the converter writes 2^20 as the context length.
bool is_hybrid(const std::string& family) {
  return family.starts_with("nemotron") || family.starts_with("granite4");
}

// Returns whether this key may differ from the file of llama.cpp's converter.
bool may_differ(const std::string& family, const std::string& key) {
  // The converter writes hidden_size as the context length of GLM. It writes 4 n_embd as the MLP size of GPT and Phi 2,
  // even if the model has another size.
  return key == "general.name" || (family == "glm" && key == "chatglm.context_length") ||
         ((family.starts_with("gpt") || family == "phi") && key.ends_with(".feed_forward_length")) ||
         (is_hybrid(family) && (key.ends_with(".context_length") || key.ends_with(".rope.dimension_count")));
}

TEST_P(GgufExport, EqualsTheFileOfLlamaCpp) {
  const TempFolder folder;
  run(gguf_recipe(model_for_gguf(GetParam(), folder.path()), folder / "out", {"q8_0"}));
  const OpenedFile got(folder / "out/out-Q8_0.gguf"), wanted(kGgufFiles / "models" / (GetParam() + ".gguf"));
  for (const auto& [key, value] : wanted.header.values) {
    ASSERT_TRUE(got.header.values.contains(key)) << key;
    const nlohmann::json& own = got.header.values.at(key);
    if (may_differ(GetParam(), key)) continue;
    if (value.is_number_float())
      EXPECT_NEAR(own.get<double>(), value.get<double>(), 1e-6 * std::abs(value.get<double>())) << key;
    else
      EXPECT_EQ(own, value) << key;
  }
  EXPECT_EQ(got.header.values.at("tokenizer.ggml.tokens").size(),
            wanted.header.values.at("tokenizer.ggml.tokens").size());
  ASSERT_EQ(got.header.tensors.size(), wanted.header.tensors.size());
  for (const GgufTensor& tensor : wanted.header.tensors) {
    const GgufTensor* own = got.find(tensor.name);
    ASSERT_NE(own, nullptr) << tensor.name;
    EXPECT_EQ(own->type->name, tensor.type->name) << tensor.name;
    ASSERT_EQ(own->dims, tensor.dims) << tensor.name;
    const auto a = got.bytes_of(*own), b = wanted.bytes_of(tensor);
    if (tensor.name.starts_with("rope_")) {  // llama.cpp computes these in f32
      for (size_t i = 0; i < a.size(); i += sizeof(float)) {
        float x, y;
        std::memcpy(&x, a.data() + i, sizeof x), std::memcpy(&y, b.data() + i, sizeof y);
        EXPECT_NEAR(x, y, 1e-6f * y) << tensor.name;
      }
    } else if (GetParam() != "baichuan7b" || tensor.name != "output.weight") {  // Fettle scales its rows to length 1
      EXPECT_TRUE(std::ranges::equal(a, b)) << tensor.name;
    }
  }
}

// The export checks each file itself: its weights, tokenizer, config and logits.
TEST_P(GgufExport, HoldsTheMergedModel) {
  const TempFolder folder;
  const fs::path model = model_for_gguf(GetParam(), folder.path());
  std::vector<std::string> types{"f32", "f16", "bf16", "q6_k", "q4_k_m"};
  // Rounding the small gemma4_moe to bf16 changes the choice of experts so often that the export refuses the file.
  if (GetParam() == "gemma4_moe") std::erase(types, "bf16");
  Recipe recipe = gguf_recipe(model, folder / "out", types);
  const bool adapted = fs::exists(reference_model(GetParam()) / "adapter_final");
  if (adapted) recipe.adapter_name_or_path = {(reference_model(GetParam()) / "adapter_final").string()};
  const ExportReport report = run(recipe);
  EXPECT_EQ(report.merged_tensors > 0, adapted);
  ASSERT_EQ(report.gguf.size(), types.size());
  // A_log of Mamba2 and of delta nets is stored as -exp(A_log), which is rounded.
  const ModelConfig config = make_model(read_json_file(model / "config.json"), "config.json").config;
  const bool rounds = config.mamba2 || config.delta_net;
  EXPECT_LE(report.gguf[0].weights.error, config.delta_net ? 5e-7 : rounds ? 1e-7 : 0);
  // In these models with random weights, rounding changes the choice of experts.
  const std::set<std::string> very_sensitive{"deepseek_r1", "qwen3_next_sparse", "qwen3_5_moe_small", "gemma4_moe"};
  std::set<std::string> sensitive{"nemotron_h_moe", "lfm2_moe", "glm4_moe", "gpt_oss_mxfp4"};
  sensitive.insert(very_sensitive.begin(), very_sensitive.end());
  const double wider = sensitive.contains(GetParam()) ? 3 : 1, f16 = very_sensitive.contains(GetParam()) ? 0.06 : 2e-3;
  const std::map<std::string, double> bounds{
      {"F32", 2e-4}, {"F16", f16}, {"BF16", 2e-2 * wider}, {"Q6_K", 0.1 * wider}, {"Q4_K_M", 0.8}};
  const std::map<std::string, double> of_weights{{"Q6_K", 0.03}, {"Q4_K_M", 0.12}};
  for (size_t i = 0; i < report.gguf.size(); ++i) {
    ASSERT_TRUE(report.gguf[i].logits) << i;
    EXPECT_LT(report.gguf[i].logits->error, bounds.at(report.gguf[i].type)) << report.gguf[i].file;
    const auto bound = of_weights.find(report.gguf[i].type);
    if (bound != of_weights.end()) {
      EXPECT_LT(report.gguf[i].weights.error, bound->second) << report.gguf[i].file;
    }
    EXPECT_TRUE(fs::exists(folder / "out" / report.gguf[i].file));
  }
  std::set<std::string> files;
  for (const auto& entry : fs::directory_iterator(folder / "out")) files.insert(entry.path().filename().string());
  EXPECT_EQ(files.size(), types.size() + 1);
  EXPECT_TRUE(files.contains("Modelfile"));
}

INSTANTIATE_TEST_SUITE_P(Families, GgufExport, testing::ValuesIn(kGgufFamilies),
                         [](const auto& info) { return info.param; });

// Tests each tokenizer that llama.cpp converted, with a model whose embedding has the size of the vocabulary.
class GgufTokenizerExport : public testing::TestWithParam<std::string> {};

fs::path model_with_tokenizer(const std::string& tokenizer, const fs::path& folder) {
  const fs::path from = source_folder() / "tests/reference/tokenizer" / tokenizer, to = folder / "model";
  fs::create_directories(to);
  for (const auto& entry : fs::directory_iterator(from)) fs::copy(entry.path(), to / entry.path().filename());
  const OpenedFile wanted(kGgufFiles / "tokenizer" / (tokenizer + ".gguf"));
  nlohmann::json config = read_json_file(reference_model("qwen3") / "config.json");
  config["vocab_size"] = wanted.header.values.at("tokenizer.ggml.tokens").size();
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"}) config.erase(key);
  write_json_file(to / "config.json", config);
  const ModelRepository base = ModelRepository::open(reference_model("qwen3"));
  const Model model = make_model(config, "config.json");
  NamedShapes shapes;
  for (const Param& param : model.params)
    for (int64_t i = 0; i < param.stored_count(); ++i)
      shapes.emplace_back(param.stored_name(i), Shape{DType::kF32, param.stored_dims()});
  SafetensorsWriter writer(to / "model.safetensors", shapes);
  for (const auto& [name, shape] : shapes) {
    HostArray values(shape);
    for (size_t i = 0; i < values.as<float>().size(); ++i)
      values.as<float>()[i] = 0.1f * std::sin(static_cast<float>(i % 9973));
    writer.write(name, {values.data(), static_cast<size_t>(values.bytes())});
  }
  writer.finish();
  return to;
}

TEST_P(GgufTokenizerExport, HasTheKeysOfLlamaCpp) {
  const TempFolder folder;
  const fs::path model = model_with_tokenizer(GetParam(), folder.path());
  run(gguf_recipe(model, folder / "out", {"f16"}));
  const OpenedFile got(folder / "out/out-F16.gguf"), wanted(kGgufFiles / "tokenizer" / (GetParam() + ".gguf"));
  for (const auto& [key, value] : wanted.header.values) {
    if (!key.starts_with("tokenizer.") || key.ends_with("add_sep_token")) continue;
    ASSERT_TRUE(got.header.values.contains(key)) << key;
    const nlohmann::json& own = got.header.values.at(key);
    // llama3's tokenizer_config.json and special_tokens_map.json name different tokens as the end of a text.
    if (GetParam() == "llama3" && key.ends_with("eos_token_id")) continue;
    EXPECT_EQ(own, value) << key;
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, GgufTokenizerExport, testing::Values("gpt2", "llama3", "qwen2"),
                         [](const auto& info) { return info.param; });

// SentencePiece replaces tabs and other characters. GGUF files do not have the table of these replacements.
TEST(GgufExport, ATokenizerThatReplacesCharactersIsRefused) {
  const TempFolder folder;
  const fs::path model = model_with_tokenizer("sp_bpe", folder.path());
  try {
    run(gguf_recipe(model, folder / "out", {"f16"}));
    FAIL() << "no error";
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("GGUF cannot express this tokenizer"));
  }
  EXPECT_FALSE(fs::exists(folder / "out"));
}

// In these families, the file's rows are columns of the base's experts.
TEST(GgufExport, ExpertsOfAQuantisedBase) {
  for (const char* family : {"gpt_oss", "llama4"})
    for (const int64_t bits : {4, 8}) {
      SCOPED_TRACE(fmt::format("{} in {} bits", family, bits));
      const TempFolder folder;
      Recipe recipe = gguf_recipe(model_for_gguf(family, folder.path()), folder / "out", {"f32"});
      recipe.quantization_bit = bits;
      const ExportReport report = run(recipe);
      EXPECT_LT(report.gguf.at(0).logits.value().error, 2e-4);
    }
}

TEST(GgufExport, AGgufFileCanBeTheBase) {
  const TempFolder folder;
  const Environment plugins("FETTLE_PLUGIN_PATH", cache_folder("plugins").string());
  const Environment cache("FETTLE_CACHE", (folder / "cache").string());
  const ExportReport report = run(gguf_recipe(kGgufFiles / "models/qwen3.gguf", folder / "again", {"q8_0", "f32"}));
  const OpenedFile got(folder / "again/again-Q8_0.gguf"), wanted(kGgufFiles / "models/qwen3.gguf");
  ASSERT_EQ(got.header.tensors.size(), wanted.header.tensors.size());
  // If values are decoded and encoded again, they change only by rounding.
  EXPECT_LT(report.gguf[0].weights.error, 2e-3);
  EXPECT_EQ(report.gguf[1].weights.error, 0);
}

TEST(GgufExport, TheModelfileHasTheTemplateAndTheStops) {
  const TempFolder folder;
  const fs::path model = model_with_tokenizer("qwen2", folder.path());
  write_file(model / "chat_template.jinja",
             "{%- for message in messages -%}\n<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
             "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}");
  fs::create_directories(model / "additional_chat_templates");
  write_file(model / "additional_chat_templates/tool_use.jinja", "{{ tools }}");
  write_file(model / "generation_config.json", R"({"eos_token_id": [902, 900], "do_sample": true, "top_k": 20})");
  write_file(model / "LICENSE", "Do as you like.\n");
  write_file(model / "README.md", "---\nlicense: apache-2.0\ntags:\n- x\n---\n# Model\nlicense: not this\n");
  run(gguf_recipe(model, folder / "out", {"q8_0", "f16"}));
  EXPECT_EQ(read_file(folder / "out/Modelfile"),
            "# ollama create NAME -f Modelfile\n"
            "FROM ./out-Q8_0.gguf\n"
            "# This TEMPLATE writes no tools; the model's chat template (tokenizer.chat_template) does.\n"
            "TEMPLATE \"\"\"{{ if .System }}<|im_start|>system\n{{ .System }}<|im_end|>\n{{ end }}{{ if .Prompt }}"
            "<|im_start|>user\n{{ .Prompt }}<|im_end|>\n{{ end }}<|im_start|>assistant\n{{ .Response }}<|im_end|>\n"
            "\"\"\"\n"
            "PARAMETER stop \"<|im_end|>\"\n"
            "PARAMETER stop \"<|endoftext|>\"\n"
            "LICENSE \"\"\"Do as you like.\n\"\"\"\n");
  const OpenedFile file(folder / "out/out-F16.gguf");
  EXPECT_EQ(file.header.values.at("general.license"), "apache-2.0");
  EXPECT_EQ(file.header.values.at("general.name"), "out");
  EXPECT_EQ(file.header.values.at("general.sampling.top_k"), 20);
  EXPECT_EQ(file.header.values.at("general.file_type"), 1);
  EXPECT_EQ(file.header.values.at("tokenizer.ggml.eot_token_id"), 900);
  EXPECT_EQ(file.header.values.at("tokenizer.chat_template"), read_file(model / "chat_template.jinja"));
  EXPECT_EQ(file.header.values.at("tokenizer.chat_template.tool_use"), "{{ tools }}");
}

// Ollama writes each turn on its own, so each text must stand with its own message.
TEST(GgufExport, ADefaultSystemMessageDoesNotMoveTheEndsOfTurns) {
  const TempFolder folder;
  const fs::path model = model_with_tokenizer("qwen2", folder.path());
  write_file(model / "chat_template.jinja",
             "{%- if messages[0].role != 'system' -%}<|im_start|>system\nBe kind.<|im_end|>\n{% endif -%}"
             "{%- for message in messages -%}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
             "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}");
  run(gguf_recipe(model, folder / "out", {"q8_0"}));
  EXPECT_THAT(read_file(folder / "out/Modelfile"),
              HasSubstr("TEMPLATE \"\"\"{{ if .System }}<|im_start|>system\n{{ .System }}<|im_end|>\n{{ end }}"
                        "{{ if .Prompt }}<|im_start|>user\n{{ .Prompt }}<|im_end|>\n{{ end }}<|im_start|>assistant\n"
                        "{{ .Response }}<|im_end|>\n\"\"\"\nSYSTEM \"\"\"Be kind.\"\"\"\n"));
}

TEST(GgufExport, TheModelfileDoesNotKeepTheDayOfTheExport) {
  const TempFolder folder;
  const fs::path model = model_with_tokenizer("qwen2", folder.path());
  write_file(model / "chat_template.jinja",
             "{%- if messages[0].role != 'system' -%}<|im_start|>system\nToday is {{ strftime_now('%Y-%m-%d') }}."
             "<|im_end|>\n{% endif -%}"
             "{%- for message in messages -%}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
             "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}");
  run(gguf_recipe(model, folder / "out", {"q8_0"}));
  EXPECT_THAT(read_file(folder / "out/Modelfile"),
              AllOf(HasSubstr("Fettle cannot write it as an Ollama"), testing::Not(HasSubstr("Today is"))));
}

// The recipe's template is in the GGUF file, and the Modelfile has its texts.
TEST(GgufExport, TheTemplateOfTheRecipe) {
  const TempFolder folder;
  const fs::path model = model_with_tokenizer("qwen2", folder.path());
  fs::remove(model / "chat_template.jinja");
  nlohmann::json config = read_json_file(model / "tokenizer_config.json");
  config["eos_token"] = "<|endoftext|>";
  write_json_file(model / "tokenizer_config.json", config);
  write_file(model / "LICENSE", "Do as you like.\n");
  run(gguf_recipe(model, folder / "bare", {"q8_0"}));
  EXPECT_THAT(read_file(folder / "bare/Modelfile"),
              AllOf(HasSubstr("# The model has no chat template; add a TEMPLATE.\n"),
                    testing::Not(HasSubstr("in the GGUF file"))));
  Recipe recipe = gguf_recipe(model, folder / "out", {"q8_0"});
  recipe.template_name = "chatml";
  run(recipe);
  EXPECT_EQ(read_file(folder / "out/Modelfile"),
            "# ollama create NAME -f Modelfile\n"
            "FROM ./out-Q8_0.gguf\n"
            "TEMPLATE \"\"\"{{ if .System }}<|im_start|>system\n{{ .System }}<|im_end|>\n{{ end }}{{ if .Prompt }}"
            "<|im_start|>user\n{{ .Prompt }}<|im_end|>\n{{ end }}<|im_start|>assistant\n{{ .Response }}<|im_end|>\n"
            "\"\"\"\n"
            "PARAMETER stop \"<|im_end|>\"\n"
            "LICENSE \"\"\"Do as you like.\n\"\"\"\n");
  const OpenedFile file(folder / "out/out-Q8_0.gguf");
  EXPECT_EQ(file.header.values.at("tokenizer.ggml.eos_token_id"), 902);
  EXPECT_THAT(file.header.values.at("tokenizer.chat_template").get<std::string>(), HasSubstr("<|im_start|>"));
  EXPECT_EQ(list_tree(folder / "out"), (std::vector<std::string>{"Modelfile", "out-Q8_0.gguf"}));
}

// The third end token becomes eom, which is read back.
TEST(GgufExport, EveryEndTokenIsReadBack) {
  const TempFolder folder;
  const fs::path model = model_with_tokenizer("qwen2", folder.path());
  write_file(model / "generation_config.json", R"({"eos_token_id": [902, 900, 7], "do_sample": null, "top_k": 20})");
  run(gguf_recipe(model, folder / "out", {"q8_0"}));
  const fs::path read = unpacked(folder / "out/out-Q8_0.gguf");
  EXPECT_EQ(read_json_file(read / "generation_config.json")["eos_token_id"], (nlohmann::json{7, 900, 902}));
  const OpenedFile file(folder / "out/out-Q8_0.gguf");
  EXPECT_EQ(file.header.values.at("general.sampling.top_k"), 20) << "do_sample is not false";
}

// The parts are named as llama-gguf-split names them. The export reads them back.
TEST(GgufExport, ExportSizeGivesSeveralFiles) {
  const TempFolder folder;
  Recipe recipe = gguf_recipe(reference_model("gpt_oss_mxfp4"), folder / "out", {"q8_0"});
  recipe.export_size = 1e-4;
  recipe.places.set("export_size", "recipe.yaml:1");
  const ExportReport report = run(recipe);
  ASSERT_EQ(report.gguf.size(), 1u);
  EXPECT_EQ(report.gguf[0].files, 3u);
  EXPECT_EQ(report.gguf[0].file, "out-Q8_0-00001-of-00003.gguf");
  const OpenedFile whole(kGgufFiles / "models/gpt_oss_mxfp4.gguf");
  size_t tensors = 0;
  for (const std::string part : {"1", "2", "3"}) {
    const OpenedFile file(folder / "out" / ("out-Q8_0-0000" + part + "-of-00003.gguf"));
    EXPECT_EQ(file.header.values.at("split.no"), std::stoi(part) - 1);
    EXPECT_EQ(file.header.values.at("split.count"), 3);
    EXPECT_EQ(file.header.values.at("split.tensors.count"), whole.header.tensors.size());
    EXPECT_EQ(file.header.values.contains("tokenizer.ggml.tokens"), part == "1");
    tensors += file.header.tensors.size();
    for (const GgufTensor& tensor : file.header.tensors) {
      const GgufTensor* wanted = whole.find(tensor.name);
      ASSERT_NE(wanted, nullptr) << tensor.name;
      EXPECT_TRUE(std::ranges::equal(file.bytes_of(tensor), whole.bytes_of(*wanted))) << tensor.name;
    }
  }
  EXPECT_EQ(tensors, whole.header.tensors.size());
}

// Moves the head to a second file of weights, as larger checkpoints have it.
void divide_weights(const fs::path& model) {
  const ModelRepository base = ModelRepository::open(model);
  nlohmann::json files;
  for (const bool head : {false, true}) {
    const std::string file = head ? "model-00002-of-00002.safetensors" : "model-00001-of-00002.safetensors";
    NamedShapes shapes;
    for (const std::string& name : base.names())
      if (name.starts_with("lm_head") == head)
        shapes.emplace_back(name, base.find(name).entry->shape), files[name] = file;
    SafetensorsWriter writer(model / file, shapes);
    for (const auto& [name, shape] : shapes) {
      const HostArray values = base.find(name).file->read(*base.find(name).entry);
      writer.write(name, {values.data(), static_cast<size_t>(values.bytes())});
    }
    writer.finish();
  }
  fs::remove(model / "model.safetensors");
  write_json_file(model / "model.safetensors.index.json", {{"weight_map", files}});
}

// The head is in a later part than the embedding. The export reads the parts back and compares their logits.
TEST(GgufExport, AHeadInALaterPart) {
  const TempFolder folder;
  const fs::path model = model_with_tokenizer("qwen2", folder.path());
  divide_weights(model);
  Recipe recipe = gguf_recipe(model, folder / "out", {"q8_0"});
  recipe.export_size = 4e-5;
  recipe.places.set("export_size", "recipe.yaml:1");
  const ExportReport report = run(recipe);
  ASSERT_GT(report.gguf.at(0).files, 1u);
  EXPECT_EQ(OpenedFile(folder / "out" / report.gguf[0].file).find("output.weight"), nullptr);
  const fs::path read = unpacked(folder / "out" / report.gguf[0].file);
  EXPECT_EQ(read_json_file(read / "config.json")["tie_word_embeddings"], false);
}

TEST(GgufExport, NamedChatTemplatesAreKept) {
  const TempFolder folder;
  const fs::path model = model_with_tokenizer("qwen2", folder.path());
  const std::string usual = "{{ messages[0].content }}", tools = "{{ tools }}{{ messages[0].content }}";
  write_file(model / "chat_template.jinja", usual);
  fs::create_directories(model / kChatTemplates);
  write_file(model / kChatTemplates / "tool_use.jinja", tools);
  run(gguf_recipe(model, folder / "out", {"q8_0"}));
  const OpenedFile file(folder / "out/out-Q8_0.gguf");
  EXPECT_EQ(file.header.values.at("tokenizer.chat_template"), usual);
  EXPECT_EQ(file.header.values.at("tokenizer.chat_template.tool_use"), tools);
  EXPECT_EQ(file.header.values.at("tokenizer.chat_templates"), nlohmann::json::array({"tool_use"}));
  const fs::path read = unpacked(folder / "out/out-Q8_0.gguf");
  EXPECT_EQ(read_file(read / "chat_template.jinja"), usual);
  EXPECT_EQ(read_file(read / kChatTemplates / "tool_use.jinja"), tools);
}

TEST(GgufExport, TheTemplateForProcessorsIsKept) {
  const TempFolder folder;
  const fs::path model = model_with_tokenizer("qwen2", folder.path());
  fs::remove(model / "chat_template.jinja");
  write_file(model / "chat_template.json", R"({"chat_template": "{{ messages[0].content }}"})");
  run(gguf_recipe(model, folder / "out", {"q8_0"}));
  const OpenedFile file(folder / "out/out-Q8_0.gguf");
  EXPECT_EQ(file.header.values.at("tokenizer.chat_template"), "{{ messages[0].content }}");
}

// In a GGUF file, GPT-OSS without a scaling type has rope that is not scaled.
TEST(GgufExport, GptOssWithRopeThatIsNotScaled) {
  const TempFolder folder;
  const fs::path model = model_for_gguf("gpt_oss_mxfp4", folder.path());
  nlohmann::json config = read_json_file(model / "config.json");
  config["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 7000.0}};
  write_json_file(model / "config.json", config);
  run(gguf_recipe(model, folder / "out", {"q8_0"}));
  const ModelRepository back = ModelRepository::open(unpacked(folder / "out/out-Q8_0.gguf"));
  const RopeParameters rope = make_model(back.config(), "config.json").config.rope;
  EXPECT_EQ(rope.rope_type, "default");
  EXPECT_EQ(rope.rope_theta, 7000);
}

// Returns a tokenizer.json (BPE on characters) with the tokens of sp_bpe.gguf. The test makes it here, because Fettle
// reads the tokenizer of such a GGUF file back as tokenizer.model.
nlohmann::json tokenizer_of_pieces(bool puts_space_first) {
  const OpenedFile wanted(kGgufFiles / "tokenizer/sp_bpe.gguf");
  const nlohmann::json tokens = wanted.header.values.at("tokenizer.ggml.tokens"),
                       scores = wanted.header.values.at("tokenizer.ggml.scores"),
                       types = wanted.header.values.at("tokenizer.ggml.token_type");
  std::map<std::string, size_t> ids;
  for (size_t id = 0; id < tokens.size(); ++id) ids.emplace(tokens[id].get<std::string>(), id);
  struct Merge {
    double score;
    size_t id;
    std::string left, right;
  };
  std::vector<Merge> merges;
  nlohmann::json vocabulary = nlohmann::json::object(), added = nlohmann::json::array();
  for (size_t id = 0; id < tokens.size(); ++id) {
    const std::string token = tokens[id];
    vocabulary[token] = id;
    if (types[id] == kControlToken || types[id] == kUnknownToken)
      added.push_back({{"id", id},
                       {"content", token},
                       {"special", true},
                       {"single_word", false},
                       {"lstrip", false},
                       {"rstrip", false},
                       {"normalized", false}});
    for (size_t cut = 1; cut < token.size() && types[id] == kNormalToken; ++cut)
      if (ids.contains(token.substr(0, cut)) && ids.contains(token.substr(cut)))
        merges.push_back({scores[id].get<double>(), id, token.substr(0, cut), token.substr(cut)});
  }
  std::stable_sort(merges.begin(), merges.end(), [](const Merge& a, const Merge& b) { return a.score > b.score; });
  nlohmann::json pairs = nlohmann::json::array();
  for (const Merge& merge : merges) pairs.push_back({merge.left, merge.right});
  const nlohmann::json replace{{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "\u2581"}};
  nlohmann::json normalizers = nlohmann::json::array(),
                 decoders{{{"type", "Replace"}, {"pattern", {{"String", "\u2581"}}}, {"content", " "}},
                          {{"type", "ByteFallback"}},
                          {{"type", "Fuse"}}};
  if (puts_space_first) {
    normalizers.push_back({{"type", "Prepend"}, {"prepend", "\u2581"}});
    decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  }
  normalizers.push_back(replace);
  return {{"version", "1.0"},
          {"added_tokens", added},
          {"normalizer", {{"type", "Sequence"}, {"normalizers", normalizers}}},
          {"pre_tokenizer", nullptr},
          {"post_processor", nullptr},
          {"decoder", {{"type", "Sequence"}, {"decoders", decoders}}},
          {"model",
           {{"type", "BPE"},
            {"unk_token", "<unk>"},
            {"fuse_unk", true},
            {"byte_fallback", true},
            {"ignore_merges", false},
            {"vocab", vocabulary},
            {"merges", pairs}}}};
}

// Gemma 3's models without images have a token for images, but no row for it.
TEST(GgufExport, ATokenWithoutARowIsLeftOut) {
  const TempFolder folder;
  const fs::path model = model_with_tokenizer("qwen2", folder.path());
  nlohmann::json tokenizer = read_json_file(model / "tokenizer.json");
  const int64_t rows = read_json_file(model / "config.json")["vocab_size"];
  tokenizer["added_tokens"].push_back({{"id", rows}, {"content", "<image_soft_token>"}, {"special", true}});
  write_json_file(model / "tokenizer.json", tokenizer);
  run(gguf_recipe(model, folder / "out", {"f16"}));
  const OpenedFile got(folder / "out/out-F16.gguf");
  EXPECT_EQ(got.header.values.at("tokenizer.ggml.tokens").size(), static_cast<size_t>(rows));
}

// If there is no tokenizer.model, the scores are made from the merges of tokenizer.json.
TEST(GgufExport, PiecesOfATokenizerJson) {
  const TempFolder folder;
  const fs::path model = model_with_tokenizer("sp_bpe", folder.path());
  fs::remove(model / "tokenizer.model");
  write_json_file(model / "tokenizer.json", tokenizer_of_pieces(true));
  run(gguf_recipe(model, folder / "out", {"f16"}));  // the export compares the ids of many texts
  const OpenedFile got(folder / "out/out-F16.gguf");
  EXPECT_EQ(got.header.values.at("tokenizer.ggml.model"), "llama");
  EXPECT_EQ(got.header.values.at("tokenizer.ggml.add_space_prefix"), true);
  EXPECT_NE(got.header.values.at("tokenizer.ggml.token_type")[0], kNormalToken);
}

// Gemma 4's tokenizer has merges instead of scores.
TEST(GgufExport, MergesOfGemma4) {
  const TempFolder folder;
  fs::create_directories(folder / "model");
  const nlohmann::json tokenizer = tokenizer_of_pieces(false);
  write_json_file(folder / "model/tokenizer.json", tokenizer);
  write_json_file(folder / "model/tokenizer_config.json", {{"unk_token", "<unk>"}});
  GgufMetadata metadata("gemma4");
  metadata.set_integer(".context_length", 128);
  const auto tokens = static_cast<int64_t>(tokenizer["model"]["vocab"].size());
  set_tokenizer_metadata(folder / "model", tokens, nlohmann::json::object(), nullptr, metadata);
  check_tokenizer(folder / "model", metadata, folder / "read");  // compares the ids of many texts
  const GgufHeader header = header_of(metadata, {});
  EXPECT_EQ(header.values.at("tokenizer.ggml.model"), "gemma4");
  EXPECT_EQ(header.values.at("tokenizer.ggml.merges").size(), tokenizer["model"]["merges"].size());
  EXPECT_EQ(header.values.at("tokenizer.ggml.add_space_prefix"), false);
  const nlohmann::json read = read_json_file(folder / "read/tokenizer.json");
  EXPECT_EQ(read["model"]["merges"], tokenizer["model"]["merges"]);
}

}  // namespace
}  // namespace fettle
