// Tests that bodies of requests are read, that stop texts are found in replies, and that answers have the form of
// OpenAI's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "serve/answers.h"
#include "serve/requests.h"
#include "serve/stop_texts.h"

namespace fettle {
namespace {

using nlohmann::json;
using testing::ElementsAre;

TEST(ServeRequests, AChatRequestIsRead) {
  const CompletionRequest request = read_chat_request(R"({"model": "m", "messages": [
      {"role": "developer", "content": "Be brief."},
      {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
      {"role": "assistant", "content": null, "tool_calls": [{"id": "c1", "type": "function",
          "function": {"name": "f", "arguments": "{\"x\": 1}"}}]},
      {"role": "tool", "tool_call_id": "c1", "content": "2"}],
      "tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": "auto", "user": "me",
      "max_completion_tokens": 7, "temperature": 0.5, "top_p": 0.9, "top_k": -1, "seed": -3, "stop": ["x", "yz"],
      "stream": true, "stream_options": {"include_usage": true}, "logprobs": true, "top_logprobs": 2, "n": 1,
      "frequency_penalty": 0, "logit_bias": {}, "response_format": {"type": "text"}})");
  EXPECT_TRUE(request.chat && request.stream && request.include_usage);
  ASSERT_EQ(request.conversation.messages.size(), 4u);
  EXPECT_EQ(request.conversation.messages[0].role, "developer")
      << "the chat template decides whether it gets the role system";
  EXPECT_EQ(request.conversation.messages[1].content, "a\nb");
  EXPECT_EQ(json::parse(request.conversation.messages[2].extra_json)["tool_calls"][0]["function"]["arguments"],
            "{\"x\": 1}")
      << "the chat template decides whether it gets an object";
  EXPECT_TRUE(request.conversation.messages[2].no_content);
  EXPECT_EQ(json::parse(request.conversation.tools_json)[0]["function"]["name"], "f");
  EXPECT_THAT(request.stop, ElementsAre("x", "yz"));
  EXPECT_EQ(request.top_logprobs, 2);
  const ReplyOptions options = request.options({.stop_ids = {5}});
  EXPECT_EQ(options.max_new_tokens, 7);
  EXPECT_EQ(options.sampling.temperature, 0.5);
  EXPECT_EQ(options.sampling.top_p, 0.9);
  EXPECT_EQ(options.sampling.top_k, 0);
  EXPECT_THAT(options.stop_ids, ElementsAre(5));
  EXPECT_FALSE(options.continues_text);
}

TEST(ServeRequests, OnlyATextIsContinued) {
  EXPECT_TRUE(read_text_request(R"({"prompt": "a"})").options({}).continues_text);
  const CompletionRequest chat = read_chat_request(R"({"messages": [{"role": "user", "content": "a"}]})");
  EXPECT_FALSE(chat.options({.continues_text = true}).continues_text);
}

// Clients send back the parts of earlier replies.
TEST(ServeRequests, ARefusalIsTheTextOfItsMessage) {
  const CompletionRequest request = read_chat_request(R"({"messages": [{"role": "user", "content": "a"},
      {"role": "assistant", "content": [{"type": "text", "text": "b"}, {"type": "refusal", "refusal": "no"}]},
      {"role": "user", "content": "c"}]})");
  EXPECT_EQ(request.conversation.messages.at(1).content, "b\nno");
}

TEST(ServeRequests, FieldsThatAreLeftOutOrNullKeepTheDefaults) {
  const CompletionRequest request =
      read_chat_request(R"({"messages": [{"role": "user", "content": "a"}], "temperature": null, "stop": null})");
  const ReplyOptions defaults{.max_new_tokens = 9, .sampling = {.do_sample = false, .top_k = 4, .seed = 8}};
  const ReplyOptions options = request.options(defaults);
  EXPECT_EQ(options.max_new_tokens, 9);
  EXPECT_FALSE(options.sampling.do_sample);
  EXPECT_EQ(options.sampling.top_k, 4);
  EXPECT_EQ(options.sampling.seed, 8u);
  EXPECT_FALSE(request.stream);
  EXPECT_EQ(request.top_logprobs, std::nullopt);
  const CompletionRequest none =
      read_chat_request(R"({"messages": [{"role": "user", "content": "a"}], "logprobs": false, "top_logprobs": 0})");
  EXPECT_EQ(none.top_logprobs, std::nullopt);
}

TEST(ServeRequests, ATemperatureDecidesWhetherTokensAreDrawn) {
  CompletionRequest request;
  request.temperature = 0;
  EXPECT_TRUE(request.options({}).sampling.greedy());
  request.temperature = 1;
  EXPECT_FALSE(request.options({.sampling = {.do_sample = false}}).sampling.greedy());
}

TEST(ServeRequests, TheSameSeedGivesTheSameNumbers) {
  CompletionRequest request;
  request.seed = 5;
  const uint64_t first = request.options({.sampling = {.seed = 1}}).sampling.seed;
  EXPECT_EQ(request.options({.sampling = {.seed = 2}}).sampling.seed, first);
  request.seed = 6;
  EXPECT_NE(request.options({}).sampling.seed, first);
}

TEST(ServeRequests, SeveralRepliesGetTheirOwnNumbers) {
  const CompletionRequest request = read_text_request(R"({"prompt": "a", "n": 3, "best_of": 3, "seed": 5})");
  EXPECT_EQ(request.replies, 3);
  const uint64_t first = request.options({}, 0).sampling.seed;
  EXPECT_EQ(first, request.options({}).sampling.seed);
  EXPECT_NE(first, request.options({}, 1).sampling.seed);
  EXPECT_EQ(read_text_request(R"({"prompt": "a"})").replies, 1);
}

TEST(ServeRequests, PenaltiesAndMinPAreRead) {
  const SamplingOptions options =
      read_text_request(R"({"prompt": "a", "min_p": 0.1, "presence_penalty": 0.5, "frequency_penalty": -1,
                            "repetition_penalty": 1.2})")
          .options({})
          .sampling;
  EXPECT_EQ(options.min_p, 0.1);
  EXPECT_EQ(options.presence_penalty, 0.5);
  EXPECT_EQ(options.frequency_penalty, -1);
  EXPECT_EQ(options.repetition_penalty, 1.2);
}

TEST(ServeRequests, VariablesOfTheTemplateAreRead) {
  const std::string start = R"({"messages": [{"role": "user", "content": "a"}])";
  EXPECT_EQ(
      read_chat_request(start + R"(, "chat_template_kwargs": {"enable_thinking": false}})").conversation.variables_json,
      R"({"enable_thinking":false})");
  EXPECT_EQ(read_chat_request(start + R"(, "chat_template_kwargs": null})").conversation.variables_json, "");
}

TEST(ServeRequests, ToolsAreLeftOutWhenNoneMayBeCalled) {
  EXPECT_EQ(read_chat_request(R"({"messages": [{"role": "user", "content": "a"}], "tool_choice": "none",
      "tools": [{"type": "function", "function": {"name": "f"}}]})")
                .conversation.tools_json,
            "");
}

TEST(ServeRequests, APlainPromptIsATextOrTokens) {
  EXPECT_EQ(read_text_request(R"({"prompt": "ab", "stop": "c", "logprobs": 3})").prompts.at(0).text, "ab");
  EXPECT_EQ(read_text_request(R"({"prompt": ["ab"]})").prompts.at(0).text, "ab");
  EXPECT_THAT(read_text_request(R"({"prompt": [3, 4]})").prompts.at(0).ids, ElementsAre(3, 4));
  const std::vector<TextPrompt> several = read_text_request(R"({"prompt": ["ab", [3, 4]]})").prompts;
  ASSERT_EQ(several.size(), 2u);
  EXPECT_EQ(several[0].text, "ab");
  EXPECT_THAT(several[1].ids, ElementsAre(3, 4));
}

// Returns the texts that StopTexts passes on: one for each piece, each followed by '|', then the text at the end, then
// '!' if a stop text was found.
std::string passed(std::vector<std::string> stops, const std::vector<std::string>& pieces) {
  StopTexts filter(std::move(stops));
  std::string out;
  for (const std::string& piece : pieces) out += filter.push(piece) + "|";
  return out + filter.finish() + (filter.found() ? "!" : "");
}

TEST(StopTexts, AreFoundAcrossPieces) {
  EXPECT_EQ(passed({}, {"ab", "c"}), "ab|c|");
  EXPECT_EQ(passed({"abc"}, {"xa", "b", "cd", "e"}), "x||||!");
  EXPECT_EQ(passed({"abc"}, {"xa", "b", "d"}), "x||abd|");
  EXPECT_EQ(passed({"abc"}, {"xab"}), "x|ab");
  EXPECT_EQ(passed({"aab"}, {"a", "a", "a", "b", "c"}), "||a|||!");
  EXPECT_EQ(passed({"zz", "b", "ab"}, {"xab"}), "x|!") << "the earliest one counts";
  EXPECT_EQ(passed({"b"}, {"abcb"}), "a|!");
  EXPECT_EQ(passed({"\n\n"}, {"a\n", "b\n", "\n"}), "a|\nb||!");
}

TEST(Answers, AWholeAnswerHasTextReasonUsageAndChances) {
  AnswerWriter writer(true, "m", true, false);
  const json answer = json::parse(
      writer.whole({{.reply = {.content = "ab", .reasoning = "", .calls = {}},
                     .chances = {{"a", -0.5, {{"a", -0.5}, {{"\xef\xbf\xbd", "\xff"}, -INFINITY}}}, {"b", -1, {}}},
                     .finish_reason = "stop"}},
                   {3, 2}));
  EXPECT_EQ(answer["object"], "chat.completion");
  EXPECT_EQ(answer["choices"][0]["message"]["content"], "ab");
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(answer["usage"], json({{"prompt_tokens", 3}, {"completion_tokens", 2}, {"total_tokens", 5}}));
  const json& content = answer["choices"][0]["logprobs"]["content"];
  EXPECT_EQ(content[0]["token"], "a");
  EXPECT_EQ(content[0]["bytes"], json({97}));
  EXPECT_EQ(content[0]["top_logprobs"][1]["logprob"], -9999);
  EXPECT_EQ(content[0]["top_logprobs"][1]["bytes"], json({255})) << "a token that ends within a character";
  EXPECT_EQ(content.size(), 2u);
}

ReplyPart text_part(const std::string& text) {
  return {.content = text, .reasoning = "", .calls = {}};
}

// Returns the JSON of each event of a stream.
std::vector<json> events_of(const std::string& stream) {
  std::vector<json> out;
  for (size_t at = 0; at < stream.size();) {
    const size_t end = stream.find("\n\n", at);
    EXPECT_EQ(stream.substr(at, 6), "data: ");
    const std::string data = stream.substr(at + 6, end - at - 6);
    out.push_back(data == "[DONE]" ? json(data) : json::parse(data));
    at = end + 2;
  }
  return out;
}

TEST(Answers, AStreamEndsWithReasonUsageAndDone) {
  AnswerWriter writer(true, "m", false, true);
  const std::vector<json> events =
      events_of(writer.begin() + writer.piece(text_part("a\n\""), {}) + writer.end("length") + writer.done({3, 1}));
  ASSERT_EQ(events.size(), 5u);
  EXPECT_EQ(events[0]["choices"][0]["delta"]["role"], "assistant");
  EXPECT_EQ(events[1]["choices"][0]["delta"]["content"], "a\n\"");
  EXPECT_EQ(events[1]["usage"], nullptr);
  EXPECT_EQ(events[2]["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(events[3]["choices"], json::array());
  EXPECT_EQ(events[3]["usage"]["total_tokens"], 4);
  EXPECT_EQ(events[4], "[DONE]");
  for (size_t i = 1; i < 4; ++i) EXPECT_EQ(events[i]["id"], events[0]["id"]);
}

TEST(Answers, CallsHaveIdsArgumentsAsTextAndTheirOwnReason) {
  const ReplyPart part{.content = "", .reasoning = "why", .calls = {{"f", R"({"x":1})"}, {"g", "{}"}}};
  AnswerWriter whole(true, "m", false, false), stream(true, "m", false, false, true);
  const json choice = json::parse(whole.whole({{part, {}, "stop"}}, {3, 2}))["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  EXPECT_EQ(choice["message"]["content"], nullptr);
  EXPECT_EQ(choice["message"]["reasoning_content"], "why");
  const json& calls = choice["message"]["tool_calls"];
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_EQ(calls[0]["function"], json({{"name", "f"}, {"arguments", R"({"x":1})"}}));
  EXPECT_EQ(calls[0]["type"], "function");
  EXPECT_TRUE(calls[0]["id"].get<std::string>().starts_with("call_"));
  EXPECT_NE(calls[0]["id"], calls[1]["id"]);

  std::string text;
  for (const char* name : {"f", "g"})
    text += stream.piece({.content = "", .reasoning = "", .calls = {{name, "{}"}}}, {});
  const std::vector<json> events = events_of(text + stream.end("stop") + stream.done({3, 1}));
  for (int i = 0; i < 2; ++i) {
    const json& call = events[static_cast<size_t>(i)]["choices"][0]["delta"]["tool_calls"][0];
    EXPECT_EQ(call["index"], i);
    EXPECT_EQ(call["id"].get<std::string>().size(), 9u) << "Mistral's templates accept no other ids";
    EXPECT_EQ(call["function"]["arguments"], "{}");
  }
  EXPECT_EQ(events[2]["choices"][0]["finish_reason"], "tool_calls");
  AnswerWriter cut(true, "m", false, false);
  EXPECT_EQ(json::parse(cut.whole({{part, {}, "length"}}, {3, 2}))["choices"][0]["finish_reason"], "length");
}

TEST(Answers, SeveralRepliesAreNumberedAndCountedApart) {
  const ReplyPart call{.content = "", .reasoning = "", .calls = {{"f", "{}"}}};
  AnswerWriter whole(true, "m", false, false, false, 2), stream(true, "m", false, true, false, 2);
  const json answer = json::parse(whole.whole({{call, {}, "stop"}, {text_part("b"), {}, "stop"}}, {3, 5}));
  ASSERT_EQ(answer["choices"].size(), 2u);
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "tool_calls");
  EXPECT_EQ(answer["choices"][1]["index"], 1);
  EXPECT_EQ(answer["choices"][1]["message"]["content"], "b");
  EXPECT_EQ(answer["choices"][1]["finish_reason"], "stop");
  EXPECT_EQ(answer["usage"]["completion_tokens"], 5);
  std::string text = stream.begin(1);
  text += stream.piece(call, {}, 0);
  text += stream.piece(text_part("b"), {}, 1);
  text += stream.end("stop", 1);
  text += stream.end("stop", 0) + stream.done({3, 5});
  const std::vector<json> events = events_of(text);
  std::vector<int> indices;
  for (size_t i = 0; i < 5; ++i) indices.push_back(events[i]["choices"][0]["index"]);
  EXPECT_THAT(indices, ElementsAre(1, 0, 1, 1, 0));
  EXPECT_EQ(events[3]["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(events[4]["choices"][0]["finish_reason"], "tool_calls");
}

TEST(Answers, PlainCompletionsCountTheOffsetsOfTokens) {
  AnswerWriter writer(false, "m", true, false);
  EXPECT_EQ(writer.begin(), "");
  writer.piece(text_part("\u00e9b"), {{"\u00e9", -1, {}}, {"b", -1, {}}});
  const json event = events_of(writer.piece(text_part("c"), {{"c", -1, {{"c", -1}}}}))[0];
  EXPECT_EQ(event["choices"][0]["text"], "c");
  EXPECT_EQ(event["choices"][0]["logprobs"]["text_offset"], json({2}));
  EXPECT_EQ(event["choices"][0]["logprobs"]["top_logprobs"][0], json({{"c", -1.0}}));
}

TEST(Answers, PlainCompletionsListTheDrawnTokenAmongTheLikelyOnes) {
  AnswerWriter writer(false, "m", true, false);
  const std::vector<TokenChance> chances{{"d", -4, {{"c", -1}}}, {"e", -5, {}}};
  const json top =
      json::parse(writer.whole({{text_part("de"), chances, "stop"}}, {3, 2}))["choices"][0]["logprobs"]["top_logprobs"];
  EXPECT_EQ(top, json::parse(R"([{"c": -1.0, "d": -4.0}, {"e": -5.0}])"));
}

}  // namespace
}  // namespace fettle
