// Tests plain_text_rows: rows of texts are trained without the chat template, as TRL does; conversations keep it.
#include <gtest/gtest.h>

#include <span>

#include "data/dataset.h"
#include "data/tokenise.h"
#include "data_fixtures.h"

namespace fettle {
namespace {

constexpr const char* kTemplate =
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{{ eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}";

class PlainRows : public testing::Test {
 protected:
  // Returns the examples of one row; « and » enclose the trained tokens.
  std::vector<std::string> texts(const std::string& row, RowKind rows = RowKind::kConversations) {
    DataSpec spec{.rows = rows,
                  .default_system = "Be brief.",
                  .self_name = name_,
                  .self_author = author_,
                  .plain_text_rows = true};
    const RowTokeniser tokenise(spec, tokenizer_, 0, false);
    Row one;
    one.text = row;
    const Outcome outcome = tokenise(one, DataSource{}, "rows.jsonl:1");
    EXPECT_EQ(outcome.bad, "");
    std::vector<std::string> out;
    for (const Example& example : outcome.examples) {
      std::string text;
      for (size_t i = 0; i < example.input_ids.size(); ++i) {
        const bool trained = example.labels[i] != kIgnore, before = i > 0 && example.labels[i - 1] != kIgnore;
        if (trained && !before) text += "«";
        if (!trained && before) text += "»";
        text += tokenizer_.decode(std::span(example.input_ids).subspan(i, 1), false);
      }
      out.push_back(text + (example.labels.back() != kIgnore ? "»" : ""));
    }
    return out;
  }

  std::vector<std::string> name_, author_;
  Tokenizer tokenizer_ = TestTokenizer{.chat_template = kTemplate, .adds_bos = true}.open();
};

using Texts = std::vector<std::string>;

TEST_F(PlainRows, AreThePromptTheReplyAndTheEnd) {
  EXPECT_EQ(texts(R"({"prompt": "Q?", "completion": " A."})"), Texts{"<s>Q?« A.</s>»"});
}

// The rows of swift/self-cognition leave the model's name and author open.
TEST_F(PlainRows, NamesAreFilledIn) {
  const std::string row = R"({"prompt": "{{NAME}}?", "completion": " {{NAME}} of {{AUTHOR}}.", "tag": ")";
  EXPECT_EQ(texts(row + "en\"}"), Texts{"<s>{{NAME}}?« {{NAME}} of {{AUTHOR}}.</s>»"});
  name_ = {"Z{{NAME}}", "E"};
  author_ = {"me"};
  EXPECT_EQ(texts(row + "en\"}"), Texts{"<s>E?« E of me.</s>»"});
  EXPECT_EQ(texts(row + "zh\"}"), Texts{"<s>Z{{NAME}}?« Z{{NAME}} of me.</s>»"});
}

TEST_F(PlainRows, PairsAndRatedRepliesToo) {
  EXPECT_EQ(texts(R"({"prompt": "Q?", "chosen": " A.", "rejected": " B."})", RowKind::kPreferencePairs),
            (Texts{"<s>Q?« A.</s>»", "<s>Q?« B.</s>»"}));
  EXPECT_EQ(texts(R"({"prompt": "Q?", "completion": " A.", "label": true})", RowKind::kRatedReplies),
            Texts{"<s>Q?« A.</s>»"});
}

TEST_F(PlainRows, ConversationsKeepTheTemplate) {
  EXPECT_EQ(texts(R"({"prompt": [{"role": "user", "content": "Q?"}],
                      "completion": [{"role": "assistant", "content": "A."}]})"),
            Texts{"<system>Be brief.</s><user>Q?</s><assistant>«A.</s>»"});
}

}  // namespace
}  // namespace fettle
