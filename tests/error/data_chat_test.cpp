#include <gtest/gtest.h>

#include <functional>

#include "base/error.h"
#include "data/chat/chat.h"
#include "data_fixtures.h"

namespace fettle {
namespace {

std::string failure(const std::function<void()>& run) {
  try {
    run();
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

const std::vector<Message> kTalk = {{.role = "user", .content = "Hi"}, {.role = "assistant", .content = "Yo"}};

TEST(ChatTemplate, UnknownNamesListTheBuiltIns) {
  const Tokenizer tokenizer = TestTokenizer().open();
  const std::string message = failure([&] { ChatTemplate("lama3", tokenizer); });
  EXPECT_NE(message.find("'lama3' is not known"), std::string::npos) << message;
  EXPECT_NE(message.find("chatml"), std::string::npos);
}

TEST(ChatTemplate, ErrorsInTheRecipesTemplateNameTheLine) {
  const Tokenizer tokenizer = TestTokenizer().open();
  const std::string message = failure([&] { ChatTemplate("a\n{% for m in messages %}{{ m }}", tokenizer); });
  EXPECT_NE(message.find("the recipe's template:2:"), std::string::npos) << message;
}

TEST(ChatTemplate, ModelsWithoutATemplateAreRefused) {
  const Tokenizer tokenizer = TestTokenizer().open();
  EXPECT_NE(failure([&] { ChatTemplate("", tokenizer); }).find("no chat template of its own"), std::string::npos);
}

TEST(ChatTemplate, ABuiltInNeedsItsEndOfTurnToken) {
  const Tokenizer tokenizer = TestTokenizer().open();
  const std::string message = failure([&] { ChatTemplate("chatml", tokenizer); });
  EXPECT_NE(message.find("'<|im_end|>'"), std::string::npos) << message;
}

TEST(ChatTemplate, TemplateErrorsNameTheLine) {
  const TestTokenizer files{.chat_template =
                                "{% for m in messages %}\n{{ raise_exception('no ' + m.role) }}{% endfor %}"};
  const Tokenizer tokenizer = files.open();
  const ChatTemplate chat("", tokenizer);
  const std::string message = failure([&] { chat.render({kTalk}); });
  EXPECT_NE(message.find("the model's chat template:2:"), std::string::npos) << message;
  EXPECT_NE(message.find("no user"), std::string::npos) << message;
}

TEST(ChatTemplate, PromptsThatDifferFromTheRowAreShownWithIt) {
  const TestTokenizer files{.chat_template =
                                "{% for m in messages %}{{ m.role ~ ':' ~ m.content ~ eos_token }}{% endfor %}"
                                "{% if add_generation_prompt %}{{ 'bot:' }}{% endif %}"};
  const Tokenizer tokenizer = files.open();
  const ChatTemplate chat("", tokenizer);
  const std::string message = failure([&] { chat.render({kTalk}); });
  EXPECT_NE(message.find("prompt   \"user:Hi</s>bot:\""), std::string::npos) << message;
  EXPECT_NE(message.find("training \"user:Hi</s>assistant:Yo</s>\""), std::string::npos) << message;
}

TEST(ChatTemplate, ToolsThatTheTemplateIgnoresAreRefused) {
  const Tokenizer tokenizer = TestTokenizer().open();
  const ChatTemplate chat("mistral", tokenizer);
  EXPECT_NE(failure([&] {
              chat.render({kTalk, R"([{"name":"f"}])"});
            }).find("does not render tools"),
            std::string::npos);
  std::vector<Message> calls = kTalk;
  calls[1].extra_json = R"({"tool_calls":[]})";
  EXPECT_NE(failure([&] { chat.render({calls}); }).find("does not render tool calls"), std::string::npos);
  EXPECT_NE(failure([&] { chat.render({{{.role = "tool", .content = "1"}}}); }).find("role 'tool'"), std::string::npos);
}

TEST(ChatTemplate, AModelsOwnTemplateWithoutToolsIsReplacedByAFile) {
  const TestTokenizer files{.chat_template = "{% for m in messages %}{{ m.content ~ eos_token }}{% endfor %}"};
  const Tokenizer tokenizer = files.open();
  const ChatTemplate chat("", tokenizer);
  const std::string remedy = "; put a chat_template.jinja that renders them into the model's folder";
  EXPECT_EQ(failure([&] {
              chat.render({kTalk, R"([{"name":"f"}])"});
            }),
            "the model's chat template does not render tools" + remedy);
  std::vector<Message> calls = kTalk;
  calls[1].extra_json = R"({"tool_calls":[]})";
  EXPECT_EQ(failure([&] { chat.render({calls}); }), "the model's chat template does not render tool calls" + remedy);
}

}  // namespace
}  // namespace fettle
