// Tests built-in chat templates that are written for other programs (ChatTemplate::written): as a model's own template,
// the written text renders conversations like the built-in template.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "data/chat/chat.h"
#include "data/chat/system_message.h"
#include "data/chat/templates.h"
#include "data_fixtures.h"

namespace fettle {
namespace {

using testing::HasSubstr;

TestTokenizer files_for(const std::string& name) {
  TestTokenizer files;
  for (const std::string_view stop : find_template(name)->stops)
    if (stop != "eos" && stop != "</s>") files.special.emplace_back(stop);
  return files;
}

// Opens the tokenizer with this template as the model's own.
Tokenizer with_own(TestTokenizer files, const std::string& source) {
  files.chat_template = source;
  return files.open();
}

std::vector<std::vector<Message>> talks() {
  const Message system{.role = "system", .content = "Be \"brief\"."}, user{.role = "user", .content = "It's\n2+2?"},
      reply{.role = "assistant", .content = "4 \\n"},
      thought{.role = "assistant", .content = "4", .extra_json = R"({"reasoning_content": "Sum."})"},
      no_system{.role = "system", .content = ""};
  return {{user},          {user, reply},           {system, user, reply}, {system, user, reply, user, thought},
          {user, thought}, {no_system, user, reply}};
}

TEST(WrittenTemplate, EveryNameRendersAlike) {
  std::istringstream names(template_names());
  int64_t count = 0;
  for (std::string name; names >> name;) {
    SCOPED_TRACE(name);
    ASSERT_NE(find_template(name), nullptr);
    for (const auto& [thinks, default_system] : {std::pair{std::optional<bool>(), ""},
                                                 {std::optional(false), ""},
                                                 {std::optional<bool>(), "It's \\ you.\n"}}) {
      SCOPED_TRACE(default_system);
      const Tokenizer tokenizer = files_for(name).open();
      const ChatTemplate built_in(name, tokenizer, LocalTime::now(), {.enabled = thinks});
      const auto written = built_in.written(default_system);
      ASSERT_TRUE(written);
      EXPECT_EQ(written->with_tools, "");
      EXPECT_THAT(written->jinja, testing::Not(HasSubstr("generation %}"))) << "other programs refuse these marks";
      const Tokenizer own_tokenizer = with_own(files_for(name), written->jinja);
      const ChatTemplate own("", own_tokenizer);
      for (const std::vector<Message>& talk : talks()) {
        std::vector<Message> trained = talk, asked = talk;
        give_system(trained, default_system, true);
        EXPECT_EQ(own.text({talk}), built_in.text({trained}));
        if (asked.back().role == "assistant") {
          asked.pop_back();
          trained.pop_back();
        }
        EXPECT_EQ(own.prompt_text({asked}), built_in.prompt_text({trained}));
      }
    }
    ++count;
  }
  EXPECT_GT(count, 100);
}

TEST(WrittenTemplate, ATokenizerWithoutStartToken) {
  TestTokenizer files = files_for("llama3");
  files.bos = "";
  const Tokenizer tokenizer = files.open();
  const ChatTemplate built_in("llama3", tokenizer);
  const Tokenizer own_tokenizer = with_own(files, built_in.written("")->jinja);
  EXPECT_EQ(ChatTemplate("", own_tokenizer).prompt_text({talks()[0]}), built_in.prompt_text({talks()[0]}));
}

TEST(WrittenTemplate, TheRecipesSystemTextIsTheDefault) {
  const Tokenizer tokenizer = files_for("chatml").open();
  const auto written = ChatTemplate("chatml", tokenizer).written("It's you.");
  const Tokenizer own_tokenizer = with_own(files_for("chatml"), written->jinja);
  EXPECT_THAT(ChatTemplate("", own_tokenizer).prompt_text({talks()[0]}),
              testing::StartsWith("<|im_start|>system\nIt's you.<|im_end|>\n<|im_start|>user\n"));
}

TEST(WrittenTemplate, CallersCanTurnThoughtsOff) {
  const Tokenizer tokenizer = files_for("qwen3").open();
  const Tokenizer own_tokenizer = with_own(files_for("qwen3"), ChatTemplate("qwen3", tokenizer).written("")->jinja);
  const ChatTemplate own("", own_tokenizer);
  EXPECT_THAT(own.prompt_text({talks()[0], "", R"({"enable_thinking": false})"}), HasSubstr("<think>\n\n</think>"));
  EXPECT_THAT(own.prompt_text({talks()[0]}), testing::Not(HasSubstr("<think>")));
}

TEST(WrittenTemplate, TheDefaultSystemMessageNeedsNoPlaceInTheTemplate) {
  // The template llama3 has no default system text of its own.
  const Tokenizer tokenizer = files_for("llama3").open();
  const ChatTemplate built_in("llama3", tokenizer);
  const std::string same = built_in.written("")->jinja;
  const Tokenizer own_tokenizer = with_own(files_for("llama3"), built_in.written("It's you.")->jinja);
  EXPECT_THAT(ChatTemplate("", own_tokenizer).prompt_text({talks()[0]}),
              HasSubstr("system<|end_header_id|>\n\nIt's you."));
  const Tokenizer base = with_own(files_for("llama3"), same);
  EXPECT_FALSE(ChatTemplate("llama3", base).written(""));
  EXPECT_TRUE(ChatTemplate("llama3", base).written("It's you.")) << "the own template has no default system text";
}

const std::string kOwn =
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if tools %}{{ tools }}{% endif %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

TEST(WrittenTemplate, ATemplateThatRendersTheSameStays) {
  const Tokenizer same = with_own(files_for("chatml"), kOwn);
  EXPECT_FALSE(ChatTemplate("chatml", same).written(""));
  EXPECT_FALSE(ChatTemplate("", same).written(""));
  EXPECT_TRUE(ChatTemplate("chatml", same).written("Be brief.")) << "the own template has no default system text";
}

TEST(WrittenTemplate, AnotherEndOfThePromptIsAnotherTemplate) {
  const Tokenizer other =
      with_own(files_for("chatml"), kOwn.substr(0, kOwn.rfind("assistant\n")) + "assistant{% endif %}");
  EXPECT_TRUE(ChatTemplate("chatml", other).written(""));
}

TEST(WrittenTemplate, AnotherTemplateStaysForTools) {
  // It differs only in conversations without a system message.
  const Tokenizer other =
      with_own(files_for("chatml"),
               "{% if messages[0].role != 'system' %}<|im_start|>system\nYou are kind.<|im_end|>\n{% endif %}" + kOwn);
  const auto written = ChatTemplate("chatml", other).written("");
  ASSERT_TRUE(written);
  EXPECT_EQ(written->with_tools, *other.chat_template());
  EXPECT_THAT(written->jinja, testing::Not(HasSubstr("You are kind.")));
  const Tokenizer without_tools = with_own(files_for("chatml"), "{{ messages[0].content }}");
  EXPECT_EQ(ChatTemplate("chatml", without_tools).written("")->with_tools, "");
}

}  // namespace
}  // namespace fettle
