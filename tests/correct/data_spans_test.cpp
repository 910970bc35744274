// Tests the trained spans of a message, and the names of tool formats.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "data/chat/tool_formats.h"
#include "data/formats.h"
#include "data/tokenise.h"
#include "data_fixtures.h"

namespace fettle {
namespace {

using testing::HasSubstr;

const std::string kPrompt = "[user]q[assistant]";  // one token per byte
constexpr const char* kPlain =
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% if m.role == 'assistant' %}</s>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}";

// Returns the text of the reply, with a dot in place of each token that is not trained.
std::string trained(const std::string& row, const DataSource& source = {}, std::vector<std::string> merges = {},
                    const std::string& chat_template = kPlain) {
  const Tokenizer tokenizer = TestTokenizer{.chat_template = chat_template, .merges = std::move(merges)}.open();
  const DataSpec spec{.cutoff_len = 200};
  const RowTokeniser tokenise(spec, tokenizer, 0, false);
  Row parsed{.text = row};
  const Outcome outcome = tokenise(parsed, source, "rows:1");
  if (!outcome.bad.empty()) return "bad: " + outcome.bad;
  if (outcome.examples.empty()) return "dropped: " + outcome.dropped;
  const Example& example = outcome.examples.at(0);
  EXPECT_EQ(outcome.trained_by_role.at("assistant"), example.trained_tokens());
  std::string text;
  for (size_t i = kPrompt.size(); i < example.input_ids.size(); ++i)
    text += example.labels[i] == kIgnore ? "." : tokenizer.decode(std::vector<int32_t>{example.input_ids[i]}, false);
  return text;
}

std::string row_with(const std::string& content, const std::string& spans, const char* column = "train_detail") {
  return R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": ")" + content + R"(", ")" +
         column + R"(": )" + spans + "}]}";
}

TEST(Spans, OnlyTrainedSpansAndTheEndAreTrained) {
  const std::string one = R"([{"begin_offset": 0, "end_offset": 2, "train": false},
                              {"begin_offset": 3, "end_offset": 5, "train": true}])";
  EXPECT_EQ(trained(row_with("abcdefgh", one)), "...def..</s>") << "the last offset belongs to the span";
  EXPECT_EQ(trained(row_with("abcdefgh", "[]")), "abcdefgh</s>");
  EXPECT_EQ(trained(row_with("abcdefgh", R"([{"begin_offset": 2, "end_offset": 99, "train": true}])")), "..cdefgh</s>");
  EXPECT_EQ(trained(row_with("abcdefgh", R"([{"begin_offset": 0, "end_offset": 7, "train": false}])")), "........</s>");
}

// Offsets count characters, not bytes. A token that overlaps a span is trained as a whole.
TEST(Spans, CharactersAndTokens) {
  EXPECT_EQ(trained(row_with("\xc3\xa9\xc3\xa9xy", R"([{"begin_offset": 2, "end_offset": 2, "train": true}])")),
            "....x.</s>")
      << "bytes of an untrained character are not trained";
  const std::vector<std::string> merges{"a b", "c d"};
  EXPECT_EQ(trained(row_with("abcd", R"([{"begin_offset": 1, "end_offset": 1, "train": true}])"), {}, merges),
            "ab.</s>");
}

TEST(Spans, OfSharegptRowsWithNamesOfTheirOwn) {
  DataSource source;
  source.formatting = "sharegpt";
  source.tags = {{"spans_tag", "parts"}};
  const std::string row = R"({"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "abcd",
    "parts": [{"begin_offset": 1, "end_offset": 2, "train": true}]}]})";
  EXPECT_EQ(trained(row, source), ".bc.</s>");
}

TEST(Spans, BadOnesAreNamed) {
  EXPECT_THAT(trained(row_with("abc", "3")), HasSubstr("'train_detail' must be an array"));
  EXPECT_THAT(trained(row_with("abc", R"([{"begin_offset": -1, "end_offset": 2, "train": true}])")),
              HasSubstr("needs 'begin_offset', a whole number"));
  EXPECT_THAT(trained(row_with("abc", R"([{"begin_offset": 1, "end_offset": 2}])")), HasSubstr("needs 'train'"));
  EXPECT_THAT(trained(row_with("abc", R"([{"begin_offset": 3, "end_offset": 4, "train": true}])")),
              HasSubstr("not within the content"));
  const std::string upper =
      "{% for m in messages %}[{{ m.role }}]{{ m.content | upper }}{% if m.role == 'assistant' %}</s>{% endif %}"
      "{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}";
  EXPECT_THAT(trained(row_with("abc", R"([{"begin_offset": 0, "end_offset": 1, "train": true}])"), {}, {}, upper),
              HasSubstr("changes the content of message 2"));
}

// The template marks two parts for one reply, so it is not clear in which of them a part of the content is.
TEST(Spans, NeedOneMarkForEachReply) {
  const std::string two_marks =
      "{% for m in messages %}[{{ m.role }}]{% if m.role == 'assistant' %}{% generation %}{{ m.content }}"
      "{% endgeneration %}{% generation %}</s>{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}"
      "{% if add_generation_prompt %}[assistant]{% endif %}";
  EXPECT_EQ(trained(row_with("abc", "[]"), {}, {}, two_marks), "abc</s>");
  EXPECT_THAT(trained(row_with("abc", R"([{"begin_offset": 0, "end_offset": 1, "train": false}])"), {}, {}, two_marks),
              HasSubstr("marks 2 generated parts for 1 assistant turns"));
  const std::string parts =
      R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": [
          {"type": "text", "text": "ab", "train": false}, {"type": "text", "text": "c"}]}]})";
  EXPECT_THAT(trained(parts, {}, {}, two_marks), HasSubstr("single turns or parts cannot be masked"));
}

TEST(ToolFormats, AreThoseOfTheModelsOwnTemplate) {
  auto refusal = [](const std::string& name, const std::string& chat_template) {
    const Tokenizer tokenizer = TestTokenizer{.chat_template = chat_template}.open();
    try {
      check_tool_format(name, tokenizer);
    } catch (const UserError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const std::string qwen = "<tools>{{ tools }}</tools><tool_call>", coder = qwen + "<function=<parameter=";
  EXPECT_EQ(refusal("", qwen), "");
  EXPECT_EQ(refusal("qwen", qwen), "");
  EXPECT_EQ(refusal("qwen3_5", coder), "");
  EXPECT_THAT(refusal("qwen", coder), HasSubstr("writes tools as qwen3_5"));
  EXPECT_THAT(refusal("mistral", qwen), HasSubstr("writes tools as qwen; remove the key"));
  EXPECT_THAT(refusal("default", "plain"), HasSubstr("writes them in another format"));
  EXPECT_THAT(refusal("llama3", ""), HasSubstr("no chat template"));
}

}  // namespace
}  // namespace fettle
