// Tests the template names of LLaMA-Factory: each template renders conversations as LLaMA-Factory does
// (tests/reference/templates.py).
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "data/chat/chat.h"
#include "data/chat/templates.h"
#include "data_fixtures.h"
#include "paths.h"

namespace fettle {
namespace {

using nlohmann::ordered_json;

// Templates whose form differs from LLaMA-Factory's on purpose (docs/text.md gives the reasons).
const std::set<std::string> kOwnForms = {"llama2", "alpaca", "vicuna", "default", "empty", "dbrx"};

// Templates whose replies end differently from LLaMA-Factory's on purpose (docs/text.md gives the reasons).
const std::set<std::string> kOtherEnds = {"aeva",   "chatglm3", "dots_ocr", "gemma2",  "glm4",  "glm4_5v",
                                          "glm4_7", "glm4_moe", "glm4v",    "glm_ocr", "glmz1", "yi_vl"};

ordered_json recorded() {
  std::ifstream file(source_folder() / "tests/reference/templates.json");
  return ordered_json::parse(file);
}

std::string trimmed(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  return text;
}

struct Shown {
  std::string text;
  std::vector<std::string> trained;
};

Shown show(const ChatTemplate& chat, const Tokenizer& tokenizer, const std::vector<Message>& talk) {
  Shown out;
  for (const auto& piece : chat.render({talk})) {
    const std::string text = tokenizer.decode(piece.ids, false);
    out.text += text;
    if (piece.trained) out.trained.push_back(trimmed(text));
  }
  out.text = trimmed(out.text);
  return out;
}

Shown expected(const ordered_json& pairs, bool eos_at_end) {
  Shown out;
  for (const auto& pair : pairs) {
    out.text += pair[0].get<std::string>() + pair[1].get<std::string>();
    out.trained.push_back(trimmed(pair[1].get<std::string>()));
  }
  if (eos_at_end) {
    out.text += "</s>";
    out.trained.back() = trimmed(pairs.back()[1].get<std::string>() + "</s>");
  }
  out.text = trimmed(out.text);
  return out;
}

Tokenizer tokenizer_for(const std::string& name) {
  TestTokenizer files;
  for (std::string_view stop : find_template(name)->stops)
    if (stop != "eos" && stop != "</s>") files.special.emplace_back(stop);
  return files.open();
}

const std::vector<Message> kAsked = {{.role = "user", .content = "Hi"},
                                     {.role = "assistant", .content = "Hello."},
                                     {.role = "user", .content = "2+2?"},
                                     {.role = "assistant", .content = "4"}};

TEST(TemplateNames, RenderAsLlamaFactoryDoes) {
  int64_t compared = 0;
  const ordered_json all = recorded();
  for (const auto& [name, one] : all.items()) {
    SCOPED_TRACE(name);
    ASSERT_NE(find_template(name), nullptr);
    if (kOwnForms.contains(name) || kOtherEnds.contains(name)) continue;
    const Tokenizer tokenizer = tokenizer_for(name);
    for (const char* mode : {"plain", "on", "off"}) {
      if (!one.contains(mode)) continue;
      SCOPED_TRACE(mode);
      Thinking thinking;
      if (mode != std::string("plain")) thinking.enabled = mode == std::string("on");
      const ChatTemplate chat(name, tokenizer, LocalTime::now(), thinking);
      auto compare = [&](const std::vector<Message>& talk, const char* which) {
        SCOPED_TRACE(which);
        const Shown got = show(chat, tokenizer, talk), want = expected(one[mode][which], one["eos_at_end"]);
        EXPECT_EQ(got.text, want.text);
        EXPECT_EQ(got.trained, want.trained);
        ++compared;
      };
      std::vector<Message> talk = kAsked;
      talk.insert(talk.begin(), {.role = "system", .content = "Be brief."});
      compare(talk, "system");
      compare({kAsked[0], kAsked[1]}, "bare");
      if (!one[mode].contains("thought")) continue;
      const std::string before = one["thought"][0], after = one["thought"][1];
      compare({kAsked[0], {.role = "assistant", .content = before + "why" + after + "Hello."}}, "thought");
      // reasoning_content in its own field renders the same as the thought within the text.
      compare({kAsked[0], {.role = "assistant", .content = "Hello.", .extra_json = R"({"reasoning_content": "why"})"}},
              "thought");
    }
  }
  EXPECT_GT(compared, 280);
}

// The text equals LLaMA-Factory's, apart from an eos_token at its very end. A trained reply may have one more token
// than in LLaMA-Factory: the template's stop token.
TEST(TemplateNames, OtherEndsAreStopTokens) {
  const ordered_json all = recorded();
  for (const std::string& name : kOtherEnds) {
    SCOPED_TRACE(name);
    const ordered_json& one = all[name];
    const Tokenizer tokenizer = tokenizer_for(name);
    Thinking thinking;
    const char* mode = one.contains("plain") ? "plain" : "on";
    if (mode != std::string("plain")) thinking.enabled = true;
    const ChatTemplate chat(name, tokenizer, LocalTime::now(), thinking);
    std::vector<Message> talk = kAsked;
    talk.insert(talk.begin(), {.role = "system", .content = "Be brief."});
    const Shown got = show(chat, tokenizer, talk), want = expected(one[mode]["system"], false);
    EXPECT_TRUE(got.text == want.text || got.text == want.text + "</s>" || got.text == want.text + "\n</s>")
        << got.text;
    ASSERT_EQ(got.trained.size(), want.trained.size());
    for (size_t i = 0; i < got.trained.size(); ++i) {
      ASSERT_TRUE(got.trained[i].starts_with(want.trained[i])) << got.trained[i] << " / " << want.trained[i];
      const std::string more = trimmed(got.trained[i].substr(want.trained[i].size()));
      const std::string stop = more.starts_with("\n") ? more.substr(1) : more;
      const auto& stops = find_template(name)->stops;
      const bool known = stop.empty() || stop == "</s>" || std::find(stops.begin(), stops.end(), stop) != stops.end();
      EXPECT_TRUE(known) << more;
    }
  }
}

TEST(TemplateNames, PromptsOfModelsThatDoNotThinkEndWithAnEmptyThought) {
  const Tokenizer tokenizer = tokenizer_for("qwen3");
  auto prompt = [&](const Thinking& thinking) {
    return ChatTemplate("qwen3", tokenizer, LocalTime::now(), thinking).prompt_text({{kAsked[0]}});
  };
  const std::string asked = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n";
  EXPECT_EQ(prompt({}), asked);
  EXPECT_EQ(prompt({.enabled = true}), asked);
  EXPECT_EQ(prompt({.enabled = false}), asked + "<think>\n\n</think>\n\n");
}

TEST(TemplateNames, OldThoughtsAreLeftOutWhenAsked) {
  const Tokenizer tokenizer = tokenizer_for("qwen3");
  std::vector<Message> talk = kAsked;
  talk[1].content = "<think>\nwhy\n</think>\n\nHello.";
  talk[1].train = false;
  const ChatTemplate chat("qwen3", tokenizer, LocalTime::now(), {.drop_old = true});
  EXPECT_EQ(
      chat.text({talk}),
      "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello.<|im_end|>\n<|im_start|>user\n2+2?<|im_end|>\n"
      "<|im_start|>assistant\n<think>\n\n</think>\n\n4<|im_end|>\n");
}

// Tools are rendered by the model's own template if this template has the same form as the built-in one.
TEST(TemplateNames, ToolsGoThroughTheModelsOwnTemplateOfTheSameForm) {
  const std::string own =
      "{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + "
      "m.content "
      "+ (m.tool_calls | tojson if m.tool_calls else '') + '<|im_end|>\n' }}{% endfor %}"
      "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";
  const std::vector<Message> talk = {kAsked[0], kAsked[1]};
  const Tokenizer same = TestTokenizer{.special = {"<s>", "</s>", "<|im_end|>"}, .chat_template = own}.open();
  EXPECT_TRUE(
      ChatTemplate("yi", same).text({talk, R"([{"name": "f"}])"}).starts_with(R"([{"name": "f"}]<|im_start|>user)"));
  const Tokenizer other =
      TestTokenizer{.special = {"<s>", "</s>", "<|im_end|>"}, .chat_template = "{{ tools }}x" + own}.open();
  EXPECT_ANY_THROW(ChatTemplate("yi", other).text({talk, R"([{"name": "f"}])"}));
}

}  // namespace
}  // namespace fettle
