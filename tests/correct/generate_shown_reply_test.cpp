// Tests the form in which `chat` and `generate` print replies with thoughts.
#include <gtest/gtest.h>

#include "data_fixtures.h"
#include "generate/replies/shown_reply.h"

namespace fettle {
namespace {

constexpr const char *kGptOss = "<|channel|>analysis", *kMagistral = "[THINK] [/THINK]", *kQwen = "<think> </think>";

struct Shown {
  std::string text;
  ReplyPart parts;
};

// Reads the reply in pieces of `step` bytes.
Shown shown(const char* source, const std::string& reply, size_t step, const std::string& prompt = "") {
  const Tokenizer tokenizer = TestTokenizer{}.open();
  ShownReply one(reply_form_of(source, false), tokenizer, tokenizer.encode(prompt, false));
  std::string text;
  for (size_t at = 0; at < reply.size(); at += step) text += one.push(reply.substr(at, step));
  text += one.finish();
  return {text, one.parts()};
}

TEST(ShownReply, HasThoughtsInTheSameFormForAllModels) {
  const std::string wanted = "<think>\nadd\n</think>\n\nfour";
  for (const auto& [source, reply] :
       {std::pair(kGptOss, "<|channel|>analysis<|message|>add<|end|><|start|>assistant<|channel|>final<|message|>four"),
        std::pair(kMagistral, "[THINK]add[/THINK]four"), std::pair(kQwen, "<think>\nadd\n</think>\n\nfour")})
    for (const size_t step : {1, 3, 100}) {
      const Shown got = shown(source, reply, step);
      EXPECT_EQ(got.text, wanted) << source;
      EXPECT_EQ(got.parts.content, "four") << source;
      EXPECT_EQ(got.parts.reasoning, "add") << source;
    }
  EXPECT_EQ(shown(kQwen, "add</think>four", 100, "a<think>\n").text, wanted) << "the prompt opens the thought";
}

TEST(ShownReply, WithoutAThoughtIsItsContent) {
  for (const char* source : {kGptOss, kMagistral, kQwen, "{{ messages }}"})
    EXPECT_EQ(shown(source, " four\n", 2).text, " four\n") << source;
  EXPECT_EQ(shown("{{ messages }}", "<think>add</think>four", 2).text, "<think>add</think>four");
  EXPECT_EQ(shown(kQwen, "<think>\n\n</think>\n\nfour", 2).text, "four");
}

TEST(ShownReply, NamesTheFunctionThatIsCalled) {
  for (const char* header : {"<|channel|>commentary to=functions.weather <|constrain|>json",
                             " to=functions.weather<|channel|>commentary json"})
    for (const size_t step : {1, 3, 100})
      EXPECT_EQ(shown(kGptOss, std::string(header) + "<|message|>{\"city\":\"Paris\"}<|call|>", step).text,
                "to=functions.weather {\"city\":\"Paris\"}<|call|>")
          << header << " in steps of " << step;
}

TEST(ShownReply, AnUnfinishedThoughtIsClosed) {
  EXPECT_EQ(shown(kGptOss, "<|channel|>analysis<|message|>add", 2).text, "<think>\nadd\n</think>");
  EXPECT_EQ(shown(kQwen, "<think>add", 2).text, "<think>\nadd\n</think>");
  EXPECT_EQ(shown(kQwen, "", 2).text, "");
}

}  // namespace
}  // namespace fettle
