// Tests the chat template and the end token of results: what a result gets instead of its base's, and which files say
// so.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "base/files/json_file.h"
#include "checkpoint/chat_files.h"
#include "checkpoint/copy_files.h"
#include "data_fixtures.h"
#include "reference_models.h"
#include "temp_folder.h"
#include "tokenizer/tokenizer_config.h"

namespace fettle {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

const std::string kChatml =
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

class ChatFiles : public testing::Test {
 protected:
  // The base's eos_token is </s>, and its tokenizer has the tokens of ChatML and Llama 3.
  ChatFiles() {
    fs::create_directories(base_);
    fs::copy_file(reference_model("llama") / "config.json", base_ / "config.json");
    tokenizer_.special = {"<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|eot_id|>"};
    tokenizer_.save(base_);
  }

  int64_t id(const std::string& token) { return *Tokenizer::open(base_).token_id(token); }
  Json json(const std::string& file) { return read_json_file(to_ / file); }

  // Writes the result of training with this template, or of an export with these adapters.
  ResultChat write(const std::string& name, bool whole,
                   const std::optional<std::vector<std::string>>& adapters = std::nullopt) {
    return write(name, whole, adapters.value_or(std::vector<std::string>()),
                 adapters ? ResultOf::kExport : ResultOf::kTraining);
  }
  ResultChat write(const std::string& name, bool whole, const std::vector<std::string>& adapters, ResultOf command) {
    data_.template_name = name;
    const ModelRepository base = ModelRepository::open(base_, ModelRepository::Weights::kIgnored);
    const ResultChat chat = result_chat(base, data_, true, adapters, command);
    fs::remove_all(to_);
    fs::create_directories(to_);
    copy_tokenizer_files(base_, to_);
    if (whole) copy_model_files(base_, to_);
    write_result_chat(chat, base, whole, to_);
    return chat;
  }
  // Returns the text with which the result prompts for a reply.
  std::string prompt() {
    const Tokenizer tokenizer = Tokenizer::open(to_);
    return ChatTemplate("", tokenizer).prompt_text({{{.role = "user", .content = "Hi"}}});
  }

  TempFolder folder_;
  fs::path base_ = folder_ / "base", to_ = folder_ / "to";
  TestTokenizer tokenizer_;
  DataSpec data_;
};

TEST_F(ChatFiles, TheTemplateAndItsEndTokenGoIntoAWholeModel) {
  write_json_file(base_ / "generation_config.json", {{"eos_token_id", 5}, {"top_k", 20}});
  write_json_file(base_ / "special_tokens_map.json", {{"eos_token", "</s>"}});
  write("chatml", true);
  EXPECT_EQ(prompt(), "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(json("tokenizer_config.json")["eos_token"], "<|im_end|>");
  EXPECT_EQ(json("special_tokens_map.json")["eos_token"], "<|im_end|>");
  EXPECT_EQ(json("generation_config.json")["eos_token_id"], Json::array({id("<|im_end|>"), 5}));
  EXPECT_EQ(json("generation_config.json")["top_k"], 20);
  EXPECT_EQ(Tokenizer::open(to_).eos_token(), "<|im_end|>");
}

TEST_F(ChatFiles, AMissingGenerationConfigIsMade) {
  Json config = read_json_file(base_ / "config.json");
  config["eos_token_id"] = Json::array({1, 2});
  config["bos_token_id"] = 256;
  write_json_file(base_ / "config.json", config);
  write("llama3", true);
  EXPECT_EQ(json("generation_config.json"),
            (Json{{"bos_token_id", 256}, {"eos_token_id", Json::array({id("<|eot_id|>"), 1, 2})}}));
}

TEST_F(ChatFiles, AnAdapterHasTheTokenizersFilesOnly) {
  write_json_file(base_ / "generation_config.json", {{"eos_token_id", 5}});
  write("llama3", false);
  EXPECT_EQ(json("tokenizer_config.json")["eos_token"], "<|eot_id|>");
  EXPECT_TRUE(fs::exists(to_ / "chat_template.jinja"));
  EXPECT_FALSE(fs::exists(to_ / "generation_config.json"));
}

TEST_F(ChatFiles, AModelThatStopsAtTheTokenKeepsItsEnd) {
  write_json_file(base_ / "generation_config.json", {{"eos_token_id", Json::array({5, id("<|im_end|>")})}});
  EXPECT_EQ(write("chatml", true).end, "");
  EXPECT_EQ(json("tokenizer_config.json")["eos_token"], "</s>");
}

// Transformers and vLLM read generation_config.json.
TEST_F(ChatFiles, AnEosTokenThatTheBaseDoesNotStopAtBecomesAnEnd) {
  write_json_file(base_ / "generation_config.json", {{"eos_token_id", 5}});
  EXPECT_EQ(write("vicuna", true).end, "") << "ends with eos_token";
  EXPECT_THAT(prompt(), testing::HasSubstr("USER: Hi ASSISTANT:"));
  EXPECT_EQ(json("tokenizer_config.json")["eos_token"], "</s>");
  EXPECT_EQ(json("generation_config.json")["eos_token_id"], Json::array({id("</s>"), 5}));
  write("vicuna", false);
  EXPECT_FALSE(fs::exists(to_ / "generation_config.json")) << "an adapter";
}

// Qwen's base models have a ChatML template, but stop only at <|endoftext|>.
TEST_F(ChatFiles, TrainingWithTheBasesOwnTemplateSetsTheEnd) {
  write_text(base_ / "chat_template.jinja", kChatml);
  write_json_file(base_ / "generation_config.json", {{"eos_token_id", id("</s>")}});
  EXPECT_TRUE(write("", true).templates.empty());
  EXPECT_EQ(json("tokenizer_config.json")["eos_token"], "<|im_end|>");
  EXPECT_EQ(json("generation_config.json")["eos_token_id"], Json::array({id("<|im_end|>"), id("</s>")}));
  EXPECT_FALSE(write("", true, std::vector<std::string>()).changes()) << "an export of the base";
  data_.plain_text_rows = true;
  EXPECT_FALSE(write("", true).changes()) << "rows without a chat template end with eos_token";
}

TEST_F(ChatFiles, ATemplateWithoutAnEndTokenChangesNothing) {
  write_text(base_ / "chat_template.jinja", "{% for message in messages %}{{ message.content }}|{% endfor %}");
  EXPECT_FALSE(write("", true).changes());
}

TEST_F(ChatFiles, AModelsOwnTemplateThatRendersTheSameStays) {
  write_text(base_ / "chat_template.jinja", kChatml);
  const ResultChat chat = write("chatml", true);
  EXPECT_TRUE(chat.templates.empty());
  EXPECT_EQ(read_text(to_ / "chat_template.jinja"), kChatml);
  EXPECT_EQ(json("tokenizer_config.json")["eos_token"], "<|im_end|>") << "the base does not stop there";
}

TEST_F(ChatFiles, OtherTemplatesOfTheBaseStay) {
  Json config = read_json_file(base_ / "tokenizer_config.json");
  config["chat_template"] = Json::array(
      {{{"name", "default"}, {"template", "{{ messages }}"}}, {{"name", "rag"}, {"template", "{{ documents }}"}}});
  write_json_file(base_ / "tokenizer_config.json", config);
  write("llama3", true);
  EXPECT_FALSE(json("tokenizer_config.json").contains("chat_template"));
  EXPECT_THAT(read_text(to_ / "chat_template.jinja"), testing::HasSubstr("<|start_header_id|>"));
  EXPECT_EQ(read_text(to_ / "additional_chat_templates/rag.jinja"), "{{ documents }}");
}

// Programs that do not know chat_template.jinja read tokenizer_config.json.
TEST_F(ChatFiles, TheTextInTokenizerConfigIsReplaced) {
  tokenizer_.chat_template = "{{ messages }}{{ tools }}";
  tokenizer_.save(base_);
  write("llama3", true);
  EXPECT_EQ(json("tokenizer_config.json")["chat_template"], read_text(to_ / "chat_template.jinja"));
  EXPECT_EQ(read_text(to_ / "additional_chat_templates/tool_use.jinja"), tokenizer_.chat_template);
}

// A text has no {% generation %} marks in the result, because only Transformers knows them.
TEST_F(ChatFiles, ATemplatesTextInTheRecipeGoesIntoTheResult) {
  write_text(base_ / "chat_template.jinja", "{{ messages }}");
  write(kChatml, false);
  EXPECT_EQ(read_text(to_ / "chat_template.jinja"), kChatml);
  EXPECT_EQ(json("tokenizer_config.json")["eos_token"], "<|im_end|>");
  write("{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}", false);
  EXPECT_EQ(read_text(to_ / "chat_template.jinja"),
            "{% for m in messages %}{% if true %}{{ m.content }}{% endif %}{% endfor %}");
  write_text(base_ / "chat_template.jinja", kChatml);
  EXPECT_TRUE(write(kChatml, false).templates.empty()) << "the base has the same text";
  data_.default_system = "Be brief.";
  write(kChatml, false);
  EXPECT_THAT(prompt(), testing::StartsWith("<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi"));
}

TEST_F(ChatFiles, ATemplatesTextInTheRecipeIsAlsoThatForTools) {
  Json config = read_json_file(base_ / "tokenizer_config.json");
  config["chat_template"] = Json::array(
      {{{"name", "default"}, {"template", "{{ messages }}"}}, {{"name", "tool_use"}, {"template", "{{ tools }}"}}});
  write_json_file(base_ / "tokenizer_config.json", config);
  write(kChatml, true);
  EXPECT_EQ(read_text(to_ / "additional_chat_templates/tool_use.jinja"), kChatml);
}

TEST_F(ChatFiles, AnAdaptersTemplateReplacesThatOfTheBase) {
  write_text(base_ / "chat_template.jinja", "{{ messages }}");
  const fs::path adapter = folder_ / "adapter";
  fs::create_directories(adapter);
  const std::vector<std::string> adapters{adapter.string()};
  EXPECT_FALSE(write("", true, adapters).changes()) << "the adapter has no template";
  tokenizer_.eos = "<|im_end|>";
  tokenizer_.save(adapter);
  write_text(adapter / "chat_template.jinja", kChatml);
  write("", true, adapters);
  EXPECT_EQ(read_text(to_ / "chat_template.jinja"), kChatml);
  EXPECT_EQ(json("tokenizer_config.json")["eos_token"], "<|im_end|>");
  write("llama3", true, adapters);
  EXPECT_EQ(json("tokenizer_config.json")["eos_token"], "<|eot_id|>") << "the recipe's template comes first";
}

TEST_F(ChatFiles, TrainingOnFromAnAdapterUsesAndKeepsItsTemplate) {
  write_text(base_ / "chat_template.jinja", "{{ messages }}");
  const fs::path adapter = folder_ / "adapter";
  fs::create_directories(adapter);
  tokenizer_.eos = "<|im_end|>";
  tokenizer_.save(adapter);
  write_text(adapter / "chat_template.jinja", kChatml);
  const std::vector<std::string> adapters{adapter.string()};
  write("", false, adapters, ResultOf::kTraining);
  EXPECT_EQ(read_text(to_ / "chat_template.jinja"), kChatml);
  EXPECT_EQ(json("tokenizer_config.json")["eos_token"], "<|im_end|>");
  const ModelRepository base = ModelRepository::open(base_, ModelRepository::Weights::kIgnored);
  testing::internal::CaptureStderr();
  EXPECT_EQ(open_tokenizer(base, adapters, data_).chat_template(), kChatml);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), testing::HasSubstr("are those of " + adapter.string()));
  data_.template_name = "llama3";
  EXPECT_EQ(open_tokenizer(base, adapters, data_).chat_template(), "{{ messages }}") << "`template` is not needed";
  data_.template_name = "";
  data_.rows = RowKind::kTexts;
  EXPECT_EQ(open_tokenizer(base, adapters, data_).chat_template(), "{{ messages }}") << "texts need no template";
  data_.rows = RowKind::kConversations;
  write_text(adapter / "chat_template.jinja", "{% if %}");
  EXPECT_THAT(user_error([&] { open_tokenizer(base, adapters, data_); }),
              testing::AllOf(testing::StartsWith((adapter / "chat_template.jinja").string() + ":1: "),
                             testing::HasSubstr("Set `template`, or remove the file.")));
}

// Phi-3's template ends a conversation with eos_token.
TEST_F(ChatFiles, AnotherEosTokenDoesNotChangeTheBasesTemplates) {
  const std::string own =
      "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
      "{% if add_generation_prompt %}<|im_start|>assistant\n{% else %}{{ eos_token }}{% endif %}";
  write_text(base_ / "chat_template.jinja", own + "{{ tools }}");
  write_text(base_ / "additional_chat_templates/rag.jinja", "{{ documents }}");
  write_json_file(base_ / "generation_config.json", {{"eos_token_id", id("</s>")}});
  const std::vector<Message> talk{{.role = "user", .content = "Hi"}, {.role = "assistant", .content = "yo"}};
  const auto text = [&](const fs::path& folder, const std::string& name) {
    Tokenizer tokenizer = Tokenizer::open(folder);
    tokenizer.set_chat_templates({{"default", *tokenizer.chat_template(name)}});
    return ChatTemplate("", tokenizer).text({talk});
  };
  write("", true);
  EXPECT_EQ(Tokenizer::open(to_).eos_token(), "<|im_end|>");
  EXPECT_THAT(text(base_, "default"), testing::HasSubstr("yo<|im_end|>\n</s>"));
  EXPECT_EQ(text(to_, "default"), text(base_, "default"));
  EXPECT_EQ(read_text(to_ / "additional_chat_templates/rag.jinja"), "{{ documents }}");
  write("llama3", true);
  EXPECT_EQ(Tokenizer::open(to_).eos_token(), "<|eot_id|>");
  EXPECT_EQ(text(to_, "tool_use"), text(base_, "default"));
  fs::remove(base_ / "chat_template.jinja");
  write(own, true);
  EXPECT_EQ(Tokenizer::open(to_).eos_token(), "<|im_end|>");
  EXPECT_THAT(text(to_, "default"), testing::EndsWith("yo<|im_end|>\n</s>")) << "the text of a template, too";
}

TEST_F(ChatFiles, RunsWithoutConversationsChangeNothing) {
  data_.rows = RowKind::kTexts;
  EXPECT_FALSE(write("chatml", true).changes());
}

TEST_F(ChatFiles, ATemplateThatDoesNotFitTheTokenizerChangesNothing) {
  testing::internal::CaptureStderr();
  EXPECT_FALSE(write("gemma", true).changes());
  EXPECT_THAT(testing::internal::GetCapturedStderr(), testing::HasSubstr("the result keeps the base's chat template"));
}

}  // namespace
}  // namespace fettle
