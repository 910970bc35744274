// Tests that special tokens and chat templates are read in the layouts of Transformers 4 and 5.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "base/files/json_file.h"
#include "paths.h"
#include "tokenizer/tokenizer.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;

const fs::path kReference = source_folder() / "tests/reference/tokenizer";

// Copies only tokenizer.json of the reference tokenizer `name`, so that the test can add other files.
class Folder {
 public:
  explicit Folder(const std::string& name) {
    path_ = fs::temp_directory_path() /
            ("fettle_" + std::string(testing::UnitTest::GetInstance()->current_test_info()->name()));
    fs::remove_all(path_);
    fs::create_directories(path_);
    fs::copy(kReference / name / "tokenizer.json", path_ / "tokenizer.json");
  }
  ~Folder() { fs::remove_all(path_); }
  void write(const std::string& name, const std::string& content) {
    fs::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name, std::ios::binary) << content;
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

TEST(TokenizerConfig, ReadsTransformers4WithAddedTokensDecoder) {
  const Tokenizer tokenizer = Tokenizer::open(kReference / "gpt2");
  EXPECT_EQ(tokenizer.bos_token(), "<|endoftext|>");
  EXPECT_EQ(tokenizer.unk_token(), "<|endoftext|>");
  EXPECT_EQ(tokenizer.pad_token(), "");
  EXPECT_EQ(tokenizer.eos_id(), 700);
  EXPECT_EQ(tokenizer.pad_id(), std::nullopt);
  EXPECT_EQ(tokenizer.chat_template(), std::nullopt);
  EXPECT_EQ(tokenizer.vocab_size(), 701);
}

TEST(TokenizerConfig, SpecialTokensMapOverridesAConfigWithoutAddedTokens) {
  const Tokenizer tokenizer = Tokenizer::open(kReference / "llama3");
  EXPECT_EQ(tokenizer.bos_token(), "<|begin_of_text|>");
  EXPECT_EQ(tokenizer.eos_token(), "<|end_of_text|>");
  EXPECT_EQ(tokenizer.pad_id(), tokenizer.eos_id());
  EXPECT_EQ(tokenizer.chat_template("tool_use"), "tools: {{ tools }}");
  EXPECT_TRUE(tokenizer.chat_template()->starts_with("{{ bos_token }}"));
  EXPECT_EQ(tokenizer.chat_template("none"), std::nullopt);
}

TEST(TokenizerConfig, ReadsTransformers5WithATemplateFile) {
  const Tokenizer tokenizer = Tokenizer::open(kReference / "qwen2");
  EXPECT_EQ(tokenizer.bos_id(), std::nullopt);
  EXPECT_EQ(tokenizer.token(*tokenizer.eos_id()), "<|im_end|>");
  EXPECT_EQ(tokenizer.token(*tokenizer.pad_id()), "<|endoftext|>");
  EXPECT_TRUE(tokenizer.chat_template()->starts_with("{%- for message in messages -%}\n<|im_start|>"));
  std::vector<std::string> names;
  for (const fs::path& file : tokenizer.files()) names.push_back(file.filename());
  EXPECT_EQ(names, (std::vector<std::string>{"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"}));
  EXPECT_TRUE(tokenizer.is_special(*tokenizer.eos_id()));
  EXPECT_FALSE(tokenizer.is_special(*tokenizer.token_id("<tool_call>")));
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("<tool_call>x<|im_end|>", true), true), "<tool_call>x");
}

TEST(TokenizerConfig, TemplateFilesTakePrecedenceOverTheConfig) {
  Folder folder("gpt2");
  folder.write("tokenizer_config.json", R"({"chat_template": "old", "eos_token": {"content": "<|endoftext|>"}})");
  folder.write("chat_template.jinja", "new");
  folder.write("additional_chat_templates/rag.jinja", "rag");
  const Tokenizer tokenizer = Tokenizer::open(folder.path());
  EXPECT_EQ(tokenizer.chat_template(), "new");
  EXPECT_EQ(tokenizer.chat_template("rag"), "rag");
  EXPECT_EQ(tokenizer.eos_id(), 700);
}

// As in mistralai/Mistral-Small-3.1-24B-Instruct-2503.
TEST(TokenizerConfig, TheTemplateMayBeInAFileForProcessors) {
  Folder folder("gpt2");
  folder.write("tokenizer_config.json", "{}");
  folder.write("chat_template.json", R"({"chat_template": "for processors"})");
  const Tokenizer tokenizer = Tokenizer::open(folder.path());
  EXPECT_EQ(tokenizer.chat_template(), "for processors");
  EXPECT_EQ(tokenizer.files().back().filename(), "chat_template.json");
  folder.write("tokenizer_config.json", R"({"chat_template": "own"})");
  EXPECT_EQ(Tokenizer::open(folder.path()).chat_template(), "own");
}

TEST(TokenizerConfig, NamedTokensOfTheVocabularyAreFoundWholeAndSpecial) {
  Folder folder("gpt2");
  const auto plain = Tokenizer::open(folder.path()).encode("the the", false);
  folder.write("special_tokens_map.json", R"({"eos_token": "h", "additional_special_tokens": ["nowhere"]})");
  const Tokenizer tokenizer = Tokenizer::open(folder.path());
  ASSERT_TRUE(tokenizer.eos_id().has_value());
  EXPECT_TRUE(tokenizer.is_special(*tokenizer.eos_id()));
  EXPECT_NE(tokenizer.encode("the the", false), plain);
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("the the", false), true), "te te");
  EXPECT_EQ(tokenizer.token_id("nowhere"), std::nullopt);
}

// As in Transformers 5.23.
TEST(TokenizerConfig, TheClassNamesTokensThatNoFileNames) {
  Folder folder("gpt2");
  const std::string end = "<|endoftext|>";
  const auto names = [&](const std::string& model, const std::string& config) {
    folder.write("config.json", model);
    folder.write("tokenizer_config.json", config);
    const Tokenizer tokenizer = Tokenizer::open(folder.path());
    EXPECT_EQ(tokenizer.is_special(700), true);
    return tokenizer.named_tokens();
  };
  using Names = std::map<std::string, std::string>;
  const Names gpt2 = {{"bos_token", end}, {"eos_token", end}, {"unk_token", end}};
  EXPECT_EQ(names(R"({"model_type": "gpt2"})", R"({"model_max_length": 1024})"), gpt2);
  EXPECT_EQ(names(R"({})", R"({"tokenizer_class": "GPT2TokenizerFast"})"), gpt2);
  EXPECT_EQ(names(R"({"model_type": "gpt2"})", R"({"tokenizer_class": "PreTrainedTokenizerFast"})"), Names());
  EXPECT_EQ(names(R"({"model_type": "gpt2", "eos_token_id": 700})", R"({"eos_token": null})"),
            (Names{{"bos_token", end}, {"unk_token", end}}));
  EXPECT_EQ(names(R"({"model_type": "gpt2"})", R"({"eos_token": "a", "pad_token": "b"})"),
            (Names{{"bos_token", end}, {"eos_token", "a"}, {"pad_token", "b"}, {"unk_token", end}}));
  EXPECT_EQ(names(R"({"model_type": "qwen3"})", "{}"),
            (Names{{"eos_token", end}, {"pad_token", end}, {"unk_token", end}}));
  EXPECT_EQ(names(R"({"model_type": "gemma"})", "{}"), Names()) << "the vocabulary has none of Gemma's tokens";
}

// As in Transformers 5.23, except that an eos_token that only the declared class names stays.
TEST(TokenizerConfig, TheModelTypeMayDecideOnTheClass) {
  Folder folder("gpt2");
  const std::string end = "<|endoftext|>";
  using Names = std::map<std::string, std::string>;
  const auto names = [&](const std::string& type, const std::string& config) {
    folder.write("config.json", R"({"model_type": ")" + type + R"("})");
    folder.write("tokenizer_config.json", config);
    return Tokenizer::open(folder.path()).named_tokens();
  };
  const char* gpt2 = R"({"tokenizer_class": "GPT2Tokenizer"})";
  for (const char* type : {"granite", "ernie4_5", "minimax_m2", "mistral", "phi3", "olmo2"})
    EXPECT_EQ(names(type, gpt2), (Names{{"eos_token", end}})) << type;
  const Names qwen2 = {{"eos_token", end}, {"pad_token", end}, {"unk_token", end}};
  for (const char* type : {"qwen2", "qwen3_5"})
    for (const char* config : {gpt2, R"({"tokenizer_class": "PreTrainedTokenizerFast"})"})
      EXPECT_EQ(names(type, config), qwen2) << type << config;
  const Names declared = {{"bos_token", end}, {"eos_token", end}, {"unk_token", end}};
  for (const char* type : {"qwen3", "cohere2", "llama"}) EXPECT_EQ(names(type, gpt2), declared) << type;
  EXPECT_EQ(names("qwen3", R"({"tokenizer_class": "PreTrainedTokenizerFast"})"), Names());
}

// As in Transformers 5.23, except for eos_token.
TEST(TokenizerConfig, AByteLevelLlamaTokenizerNamesNoTokens) {
  for (const auto& [name, type, all] : {std::tuple{"gpt2", "llama", false},
                                        {"llama2", "llama", true},
                                        {"llama2", "mistral", false},
                                        {"llama2", "phi3", false}}) {
    Folder folder(name);
    nlohmann::json tokenizer = read_json_file(folder.path() / "tokenizer.json");
    if (name == std::string("gpt2"))
      for (const char* token : {"<s>", "</s>", "<unk>"})
        tokenizer["model"]["vocab"][token] = 800 + tokenizer["model"]["vocab"].size();
    folder.write("tokenizer.json", tokenizer.dump());
    folder.write("config.json", std::string(R"({"model_type": ")") + type + R"("})");
    folder.write("tokenizer_config.json", R"({"tokenizer_class": "LlamaTokenizerFast"})");
    std::map<std::string, std::string> wanted{{"eos_token", "</s>"}};
    if (all) wanted.insert({{"bos_token", "<s>"}, {"unk_token", "<unk>"}});
    EXPECT_EQ(Tokenizer::open(folder.path()).named_tokens(), wanted) << name << " " << type;
  }
}

// As in Transformers 5.23, except that eos_token_id names the eos_token.
TEST(TokenizerConfig, ANameThatIsEmptyInAFileIsNotThatOfTheClass) {
  Folder folder("gpt2");
  folder.write("config.json", R"({"model_type": "gpt2"})");
  folder.write("tokenizer_config.json", R"({"bos_token": "", "eos_token": {"content": ""}})");
  const std::string end = "<|endoftext|>";
  using Names = std::map<std::string, std::string>;
  EXPECT_EQ(Tokenizer::open(folder.path()).named_tokens(), (Names{{"unk_token", end}}));
  folder.write("config.json", R"({"model_type": "gpt2", "eos_token_id": 700})");
  EXPECT_EQ(Tokenizer::open(folder.path()).named_tokens(), (Names{{"eos_token", end}, {"unk_token", end}}));
}

TEST(TokenizerConfig, TheModelsConfigMayNameTheEndToken) {
  Folder folder("gpt2");
  const auto eos = [&](const std::string& id) {
    folder.write("config.json", R"({"model_type": "llama", "eos_token_id": )" + id + "}");
    return Tokenizer::open(folder.path()).eos_token();
  };
  EXPECT_EQ(eos("700"), "<|endoftext|>");
  EXPECT_EQ(eos("[700, 3]"), "<|endoftext|>");
  EXPECT_EQ(eos("3"), "") << "an ordinary token";
  EXPECT_EQ(eos("701"), "");
  EXPECT_EQ(eos("null"), "");
  EXPECT_EQ(eos("[]"), "");
}

// As in Transformers, a token with a name is special, also if tokenizer.json says that it is not. A token without a
// name stays as it is.
TEST(TokenizerConfig, NamedTokensBecomeSpecial) {
  Folder folder("qwen2");
  folder.write("tokenizer_config.json",
               R"({"eos_token": "<tool_call>", "additional_special_tokens": ["</tool_call>"]})");
  const Tokenizer listed = Tokenizer::open(folder.path());
  EXPECT_TRUE(listed.is_special(*listed.eos_id()));
  EXPECT_FALSE(listed.is_special(*listed.token_id("</tool_call>")));
  EXPECT_EQ(listed.decode(listed.encode("<tool_call>x</tool_call>", true), true), "x</tool_call>");
  for (const char* config : {R"({"image_token": "</tool_call>", "add_token": true})",
                             R"({"extra_special_tokens": {"image_token": "</tool_call>"}})"}) {
    folder.write("tokenizer_config.json", config);
    const Tokenizer named = Tokenizer::open(folder.path());
    EXPECT_EQ(named.named_tokens(), (std::map<std::string, std::string>{{"image_token", "</tool_call>"}}));
    EXPECT_TRUE(named.is_special(*named.token_id("</tool_call>")));
  }
}

// Transformers 5.23's LlamaTokenizer gives these ids and texts.
TEST(TokenizerConfig, TheSpaceBeforeAPieceCanBeTurnedOff) {
  Folder folder("gpt2");
  fs::remove(folder.path() / "tokenizer.json");
  fs::copy(kReference / "sp_bpe/tokenizer.model", folder.path() / "tokenizer.model");
  folder.write("tokenizer_config.json", R"({"tokenizer_class": "LlamaTokenizer", "add_prefix_space": false})");
  const Tokenizer without = Tokenizer::open(folder.path());
  EXPECT_EQ(without.encode("a the", false), (std::vector<int32_t>{649, 646, 508, 643}));
  EXPECT_EQ(without.decode(std::vector<int32_t>{513}, false), " a");
  folder.write("tokenizer_config.json", R"({"tokenizer_class": "LlamaTokenizer", "add_prefix_space": true})");
  const Tokenizer with = Tokenizer::open(folder.path());
  EXPECT_EQ(with.encode("a the", false), (std::vector<int32_t>{513, 646, 508, 643}));
  EXPECT_EQ(with.decode(std::vector<int32_t>{513}, false), "a");
}

TEST(TokenizerConfig, AddBosAndEosTakePrecedenceOverThePostProcessor) {
  Folder folder("llama3");
  folder.write("tokenizer_config.json",
               R"({"tokenizer_class": "LlamaTokenizerFast", "add_bos_token": false, "add_eos_token": true, )"
               R"("bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"})");
  const Tokenizer tokenizer = Tokenizer::open(folder.path());
  const auto ids = tokenizer.encode("a", true);
  ASSERT_EQ(ids.size(), 2u);
  EXPECT_EQ(ids.back(), *tokenizer.eos_id());
  EXPECT_EQ(tokenizer.encode("a", false).size(), 1u);
}

TEST(TokenizerConfig, WithoutAddBosOrEosThePostProcessorDecides) {
  Folder folder("llama3");
  const std::string names =
      R"("tokenizer_class": "LlamaTokenizer", "bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>")";
  auto encode = [&] { return Tokenizer::open(folder.path()).encode("a", true); };
  folder.write("tokenizer_config.json", R"({"add_eos_token": true, )" + names + "}");
  EXPECT_EQ(encode(), (std::vector<int32_t>{900, 64, 904}));
  folder.write("tokenizer_config.json",  // names no bos_token
               R"({"tokenizer_class": "LlamaTokenizer", "add_bos_token": true, "add_eos_token": false})");
  EXPECT_EQ(encode(), (std::vector<int32_t>{900, 64}));
  folder.write("tokenizer_config.json", R"({"add_bos_token": false, )" + names + "}");
  EXPECT_EQ(encode(), (std::vector<int32_t>{64}));
}

// Transformers 4.57 and 5.23 encode "a" as {bos, a} with all of these files.
TEST(TokenizerConfig, OtherClassesLeaveBosAndEosToThePostProcessor) {
  Folder folder("llama3");
  const std::string names = R"("bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>")";
  for (const char* name :
       {"", R"("tokenizer_class": "PreTrainedTokenizerFast", )", R"("tokenizer_class": "GPT2Tokenizer", )"})
    for (const char* flags : {R"("add_bos_token": false, )", R"("add_bos_token": true, "add_eos_token": true, )"}) {
      folder.write("tokenizer_config.json", std::string("{") + name + flags + names + "}");
      EXPECT_EQ(Tokenizer::open(folder.path()).encode("a", true), (std::vector<int32_t>{900, 64})) << name << flags;
    }
}

}  // namespace
}  // namespace fettle
