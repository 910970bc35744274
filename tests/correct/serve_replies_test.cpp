// Tests that replies are divided into content, reasoning and calls of tools, in whole and in pieces of any size.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "generate/replies/reply_reader.h"
#include "serve/answers.h"

namespace fettle {
namespace {

using nlohmann::json;

// Excerpts of chat templates, with the texts by which a format is recognised.
constexpr const char *kQwen = "<tools></tools> <tool_call> {\"name\"} </tool_call>",
                     *kQwenThinking = "<tools></tools> <tool_call> {\"name\"} </tool_call> <think> </think>",
                     *kQwenXml = "<tools> <tool_call> <function= <parameter= </think> <think>",
                     *kGlm = "<tools> <tool_call> <arg_key> <arg_value> <think> </think>",
                     *kLlama = "<|start_header_id|> \"parameters\" ipython",
                     *kMistral = "[AVAILABLE_TOOLS] [TOOL_CALLS]",
                     *kDeepSeek = "<｜tool▁calls▁begin｜> <｜tool▁sep｜> </think>",
                     *kGptOss = "<|channel|>analysis to=functions.", *kGlm4 = "<|user|> <|assistant|> <|observation|>",
                     *kGemma4 = "<|tool> <|tool_call>call: <|channel>thought <channel|>",
                     *kLfm2 = "<|tool_list_start|> <|tool_list_end|>",
                     *kLfm25 = "<|tool_call_start|>[ ]<|tool_call_end|> <think> </think>",
                     *kKimi = "<|tool_calls_section_begin|><|tool_call_begin|>",
                     *kNemotron = "<AVAILABLE_TOOLS> <TOOLCALL>[ <think> </think>",
                     *kOlmo3 = "<functions> <function_calls>",
                     *kMiniMax = "<tools> <minimax:tool_call> <invoke name= <think> </think>",
                     *kSeed = "<seed:tool_call> <function= <parameter= <seed:think> </seed:think>";
constexpr const char* kTools = R"([{"type": "function", "function": {"name": "look", "parameters": {"type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}, "dry": {"type": "boolean"}}}}},
    {"type": "function", "function": {"name": "now"}}])";

struct ReplyCase {
  std::string name;
  const char* source;
  std::string reply;
  std::string content, reasoning;
  std::vector<std::pair<std::string, std::string>> calls = {};  // names and arguments of the calls
  std::string prompt_end = "";
  const char* tools = kTools;
};

ReplyPart read(const ReplyCase& c, size_t step) {
  const ReplyForm form = reply_form_of(c.source, c.tools[0] != '\0');
  const auto reader = make_reply_reader(form, c.tools, c.prompt_end);
  ReplyPart all;
  for (size_t at = 0; at < c.reply.size(); at += step) all.add(reader->push(c.reply.substr(at, step)));
  all.add(reader->finish());
  return all;
}

class Replies : public testing::TestWithParam<ReplyCase> {};

TEST_P(Replies, AreDividedTheSameInPiecesOfAnySize) {
  const ReplyCase& c = GetParam();
  for (const size_t step : {size_t{1}, size_t{2}, size_t{7}, c.reply.size() + 1}) {
    const ReplyPart got = read(c, step);
    EXPECT_EQ(got.content, c.content) << step;
    EXPECT_EQ(got.reasoning, c.reasoning) << step;
    ASSERT_EQ(got.calls.size(), c.calls.size()) << step;
    for (size_t i = 0; i < got.calls.size(); ++i) {
      EXPECT_EQ(got.calls[i].name, c.calls[i].first);
      EXPECT_EQ(json::parse(got.calls[i].arguments), json::parse(c.calls[i].second));
    }
  }
}

const std::vector<ReplyCase>& reply_cases() {
  static const std::vector<ReplyCase> cases = {
      {"QwenOne",
       kQwen,
       "<tool_call>\n{\"name\": \"look\", \"arguments\": {\"city\": \"Rome\"}}\n</tool_call>",
       "",
       "",
       {{"look", R"({"city": "Rome"})"}}},
      {"QwenTwoAfterText",
       kQwen,
       "I look.\n\n<tool_call>\n{\"name\": \"look\", \"arguments\": {}}\n</tool_call>\n<tool_call>\n{\"name\": "
       "\"now\", \"arguments\": {}}\n</tool_call>\n",
       "I look.",
       "",
       {{"look", "{}"}, {"now", "{}"}}},
      {"QwenBroken", kQwen, "a <tool_call>\n{\"name\": look}\n</tool_call> b",
       "a <tool_call>\n{\"name\": look}\n</tool_call> b", ""},
      {"QwenCut", kQwen, "<tool_call>\n{\"name\": \"look\", \"argum", "<tool_call>\n{\"name\": \"look\", \"argum", ""},
      {"QwenPlain", kQwen, " 1 < 2, <tool is\n", " 1 < 2, <tool is\n", ""},
      {"QwenWithoutTools",
       kQwen,
       "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>",
       "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>",
       "",
       {},
       "",
       ""},
      {"ThoughtThenCall",
       kQwenThinking,
       "<think>\nHm, <b>\n</think>\n\n<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>",
       "",
       "Hm, <b>",
       {{"now", "{}"}}},
      {"ThoughtOpenedByThePrompt",
       kQwenThinking,
       "Hm.\n</think>\n\nYes.\n",
       "Yes.\n",
       "Hm.",
       {},
       "assistant\n<think>\n"},
      {"ThoughtCut", kQwenThinking, "<think>\nHm, </thi", "", "Hm, </thi"},
      {"EmptyThought", kQwenThinking, "<think>\n\n</think>\n\nYes", "Yes", ""},
      {"NoThought", kQwenThinking, "Yes <think> no", "Yes <think> no", "", {}, "<think>\n\n</think>\n\n"},
      {"QwenXml",
       kQwenXml,
       "Hm\n</think>\n\n<tool_call>\n<function=look>\n<parameter=city>\n12\n</parameter>\n<parameter=days>\n3\n"
       "</parameter>\n<parameter=dry>\nTrue\n</parameter>\n<parameter=more>\n{\"a\": [1]}\n</parameter>\n</function>\n"
       "</tool_call>",
       "",
       "Hm",
       {{"look", R"({"city": "12", "days": 3, "dry": true, "more": {"a": [1]}})"}},
       "<think>\n"},
      {"QwenXmlOfSeveralLines",
       kQwenXml,
       "<tool_call>\n<function=look>\n<parameter=city>\na\n<b>\n</parameter>\n</function>\n</tool_call>",
       "",
       "",
       {{"look", R"({"city": "a\n<b>"})"}}},
      {"QwenXmlWithoutEnd", kQwenXml, "<tool_call>\n<function=look>\n<parameter=city>\na\n</tool_call>",
       "<tool_call>\n<function=look>\n<parameter=city>\na\n</tool_call>", ""},
      {"Glm",
       kGlm,
       "<think></think>\n<tool_call>look\n<arg_key>city</arg_key>\n<arg_value>Rome</arg_value>\n<arg_key>days</arg_key>"
       "\n<arg_value>2</arg_value>\n</tool_call>",
       "",
       "",
       {{"look", R"({"city": "Rome", "days": 2})"}}},
      {"GlmWithoutArguments", kGlm, "<tool_call>now</tool_call>", "", "", {{"now", "{}"}}},
      {"Llama",
       kLlama,
       "{\"name\": \"look\", \"parameters\": {\"city\": \"a; b\"}}",
       "",
       "",
       {{"look", R"({"city": "a; b"})"}}},
      {"LlamaTagged",
       kLlama,
       "<|python_tag|>{\"name\": \"look\", \"parameters\": {}}; {\"name\": \"now\", "
       "\"parameters\": {}}",
       "",
       "",
       {{"look", "{}"}, {"now", "{}"}}},
      {"LlamaOtherJson", kLlama, "{\"name\": \"Ann\", \"parameters\": {}}", "{\"name\": \"Ann\", \"parameters\": {}}",
       ""},
      {"LlamaText", kLlama, "Use {\"name\": 1}.", "Use {\"name\": 1}.", ""},
      {"MistralList",
       kMistral,
       "[TOOL_CALLS] [{\"name\": \"look\", \"arguments\": {\"city\": \"[x]\"}}, {\"name\": \"now\", \"arguments\": "
       "{}}]",
       "",
       "",
       {{"look", R"({"city": "[x]"})"}, {"now", "{}"}}},
      {"MistralArgs",
       kMistral,
       "[TOOL_CALLS]look[CALL_ID]abc123def[ARGS]{\"days\": 1}[TOOL_CALLS]now[ARGS]{}",
       "",
       "",
       {{"look", R"({"days": 1})"}, {"now", "{}"}}},
      {"MistralBroken", kMistral, "[TOOL_CALLS] nothing", "[TOOL_CALLS] nothing", ""},
      {"DeepSeek3",
       kDeepSeek,
       "Hm</think>Text<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>look\n```json\n{\"city\": "
       "\"Rome\"}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n{}\n```"
       "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
       "Text",
       "Hm",
       {{"look", R"({"city": "Rome"})"}, {"now", "{}"}},
       "<think>\n"},
      {"DeepSeek31",
       kDeepSeek,
       "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>look<｜tool▁sep｜>{\"days\": "
       "2}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
       "",
       "",
       {{"look", R"({"days": 2})"}}},
      {"GptOss", kGptOss, "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Yes.",
       "Yes.", "Hm."},
      {"GptOssCall",
       kGptOss,
       "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary to=functions.look "
       "<|constrain|>json<|message|>{\"city\": \"Rome\"}",
       "",
       "Hm.",
       {{"look", R"({"city": "Rome"})"}}},
      {"GptOssCallBeforeItsChannel",
       kGptOss,
       " to=functions.look<|channel|>commentary json<|message|>{\"city\": \"Rome\"}",
       "",
       "",
       {{"look", R"({"city": "Rome"})"}}},
      {"GptOssWithoutChannels", kGptOss, "Yes.", "Yes.", ""},
      {"Glm4", kGlm4, "look\n{\"city\": \"Rome\"}", "", "", {{"look", R"({"city": "Rome"})"}}},
      {"Glm4Two",
       kGlm4,
       "\nlook\n{\"days\": 1}<|assistant|>now\n{}",
       "",
       "",
       {{"look", R"({"days": 1})"}, {"now", "{}"}}},
      {"Glm4AfterText", kGlm4, "\nI look.<|assistant|>now\n{}", "\nI look.", "", {{"now", "{}"}}},
      {"Glm4Text", kGlm4, "\nnow is the time.\n{}", "\nnow is the time.\n{}", ""},
      {"Glm4NameOnly", kGlm4, "now", "now", ""},
      {"Glm4Broken", kGlm4, "now\nor never", "now\nor never", ""},
      {"Glm4OtherName", kGlm4, "def\n{\"a\": 1}", "def\n{\"a\": 1}", ""},
      {"Gemma4",
       kGemma4,
       "<|tool_call>call:look{city:<|\"|>Rome, \"x\": {y}\\n<|\"|>,days:2,dry:true,more:{a:[1.5,null,<|\"|>b<|\"|>]}}"
       "<tool_call|><|tool_call>call:now{}<tool_call|>",
       "",
       "",
       {{"look", R"({"city": "Rome, \"x\": {y}\\n", "days": 2, "dry": true, "more": {"a": [1.5, null, "b"]}})"},
        {"now", "{}"}}},
      {"Gemma4Thought", kGemma4, "<|channel>thought\nHm.\n<channel|>Yes.", "Yes.", "Hm."},
      {"Gemma4WithoutThought", kGemma4, "Yes.", "Yes.", "", {}, "<|channel>thought\n<channel|>"},
      {"Gemma4Broken", kGemma4, "a <|tool_call>call:look{city:Rome}<tool_call|>",
       "a <|tool_call>call:look{city:Rome}<tool_call|>", ""},
      {"Lfm2",
       kLfm2,
       "<|tool_call_start|>[look(city=\"it's \\\"a, b\\\"\", days=2, dry=True, more={'a': [None, -1.5e3, 'b)']}), "
       "now()]"
       "<|tool_call_end|>I look.",
       "I look.",
       "",
       {{"look", R"j({"city": "it's \"a, b\"", "days": 2, "dry": true, "more": {"a": [null, -1500.0, "b)"]}})j"},
        {"now", "{}"}}},
      // The template of LFM2.5 writes a string between single quotes as it is.
      {"Lfm2QuoteInText",
       kLfm25,
       "<think>Hm</think><|tool_call_start|>[look(city='it's\nnew')]<|tool_call_end|>",
       "",
       "Hm",
       {{"look", R"({"city": "it's\nnew"})"}}},
      {"Lfm2Json",
       kLfm2,
       "<|tool_call_start|>[{\"name\": \"look\", \"arguments\": {\"city\": \"\\u00e9\"}}]<|tool_call_end|>",
       "",
       "",
       {{"look", R"({"city": "é"})"}}},
      {"Lfm2Broken", kLfm2, "<|tool_call_start|>[look(days=2]<|tool_call_end|>",
       "<|tool_call_start|>[look(days=2]<|tool_call_end|>", ""},
      {"Kimi",
       kKimi,
       "I look.<|tool_calls_section_begin|><|tool_call_begin|>functions.look:0<|tool_call_argument_begin|>{\"days\": 2}"
       "<|tool_call_end|><|tool_call_begin|>functions.now:1<|tool_call_argument_begin|>{}<|tool_call_end|>"
       "<|tool_calls_section_end|>",
       "I look.",
       "",
       {{"look", R"({"days": 2})"}, {"now", "{}"}}},
      {"Nemotron",
       kNemotron,
       "Hm\n</think>\n\n<TOOLCALL>[{\"name\": \"look\", \"arguments\": {\"days\": 2}}, {\"name\": \"now\", "
       "\"arguments\": \"{}\"}]</TOOLCALL>",
       "",
       "Hm",
       {{"look", R"({"days": 2})"}, {"now", "{}"}},
       "<think>\n\n"},
      {"Olmo3",
       kOlmo3,
       "<function_calls>look(city=\"Rome\", dry=true)\nnow()</function_calls>",
       "",
       "",
       {{"look", R"({"city": "Rome", "dry": true})"}, {"now", "{}"}}},
      {"Olmo3Broken", kOlmo3, "<function_calls>look</function_calls>", "<function_calls>look</function_calls>", ""},
      {"MiniMax",
       kMiniMax,
       "Hm\n</think>\n\nI look.\n<minimax:tool_call>\n<invoke name=\"look\">\n<parameter name=\"city\">12</parameter>\n"
       "<parameter name=\"days\">3</parameter>\n</invoke>\n<invoke name=\"now\">\n</invoke>\n</minimax:tool_call>",
       "I look.",
       "Hm",
       {{"look", R"({"city": "12", "days": 3})"}, {"now", "{}"}},
       "ai\n<think>\n"},
      {"MiniMaxBroken", kMiniMax, "<minimax:tool_call>\n<invoke name=\"look\">\n</minimax:tool_call>",
       "<minimax:tool_call>\n<invoke name=\"look\">\n</minimax:tool_call>", ""},
      // The template of Seed-OSS writes lists as Python does.
      {"Seed",
       kSeed,
       "\n<seed:think>Hm</seed:think>\n<seed:tool_call>\n<function=look>\n<parameter=city>a\nb</parameter>\n"
       "<parameter=more>['x', True]</parameter>\n</function>\n</seed:tool_call>",
       "",
       "Hm",
       {{"look", R"({"city": "a\nb", "more": ["x", true]})"}}},
      {"GptOssBrokenCall", kGptOss, "<|channel|>commentary to=functions.look<|message|>{no", "{no", ""}};
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Formats, Replies, testing::ValuesIn(reply_cases()),
                         [](const auto& info) { return info.param.name; });

// A model may be asked to write anything. Reading its reply neither overflows the stack nor takes long.
TEST(ReplyForms, HostileRepliesStayContent) {
  const std::string deep = std::string(200000, '[') + std::string(200000, ']');
  const std::string call = "<tool_call>\n{\"name\": \"look\", \"arguments\": {\"city\": " + deep + "}}\n</tool_call>";
  const std::string many = "{\"a" + std::string(200000, ';');
  const std::string nested = "<|tool_call_start|>[look(city=" + deep + ")]<|tool_call_end|>";
  const std::string quotes = "<|tool_call_start|>[look(city=" + std::string(200000, '\'') + "]<|tool_call_end|>";
  for (const auto& [model, reply] :
       {std::pair(kQwen, call), std::pair(kLlama, many), std::pair(kLfm2, nested), std::pair(kLfm2, quotes)}) {
    const auto reader = make_reply_reader(reply_form_of(model, true), kTools, "");
    ReplyPart all = reader->push(reply);
    all.add(reader->finish());
    EXPECT_TRUE(all.calls.empty());
    EXPECT_EQ(all.content.size(), reply.size());
  }
}

// Kimi K2's template writes the id of an earlier call into the prompt, so the client must get the model's own id.
TEST(ReplyForms, TheModelsOwnIdOfACallIsKept) {
  const auto reader = make_reply_reader(reply_form_of(kKimi, true), kTools, "");
  const ReplyPart all = reader->push(
      "<|tool_calls_section_begin|><|tool_call_begin|>functions.now:3<|tool_call_argument_begin|>{}<|tool_call_end|>"
      "<|tool_calls_section_end|>");
  ASSERT_EQ(all.calls.size(), 1u);
  EXPECT_EQ(all.calls[0].id, "functions.now:3");
  EXPECT_THAT(AnswerWriter(true, "m", false, false, false).whole({{all, {}, "stop"}}, {}),
              testing::HasSubstr("\"id\":\"functions.now:3\""));
}

TEST(ReplyForms, ContentIsNotHeldBackForLong) {
  const auto reader = make_reply_reader(reply_form_of(kQwen, true), kTools, "");
  EXPECT_EQ(reader->push("one two").content, "one two");
  EXPECT_EQ(reader->push(" <to").content, "");
  EXPECT_EQ(reader->push("ad").content, " <toad");
}

TEST(ReplyForms, ATemplateWithoutFormatIsPlain) {
  EXPECT_TRUE(reply_form_of("{{ messages }}", true).plain());
  EXPECT_TRUE(reply_form_of(kQwen, false).plain());
  EXPECT_FALSE(reply_form_of(kQwen, true).plain());
  EXPECT_TRUE(reply_form_of(kMistral, true).calls->short_ids);
}

}  // namespace
}  // namespace fettle
