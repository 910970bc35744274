// Tests requests that cannot be answered: the error names the field and the remedy.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "serve/requests.h"

namespace fettle {
namespace {

using nlohmann::json;
using testing::HasSubstr;

struct BadBody {
  std::string fields;  // fields in addition to the messages or the prompt
  std::string field, says;
};

void expect_refused(CompletionRequest (*read)(std::string_view), const std::string& body, const std::string& field,
                    const std::string& says) {
  try {
    read(body);
    ADD_FAILURE() << "accepted: " << body;
  } catch (const RequestError& error) {
    EXPECT_EQ(error.status, 400);
    EXPECT_EQ(error.field, field) << body;
    EXPECT_THAT(error.what(), HasSubstr(says)) << body;
    const json written = json::parse(error.json());
    EXPECT_THAT(written["error"]["message"].get<std::string>(), HasSubstr(says));
    EXPECT_EQ(written["error"]["type"], "invalid_request_error");
  }
}

TEST(ServeRequests, ChatFieldsAreRefusedByName) {
  const std::vector<BadBody> cases = {
      {R"("n": 17)", "n", "integer from 1 to 16"},
      {R"("n": 0)", "n", "integer from 1 to 16"},
      {R"("min_p": 2)", "min_p", "from 0 to 1"},
      {R"("repetition_penalty": 0)", "repetition_penalty", "from 0.01 to 100"},
      {R"("chat_template_kwargs": [1])", "chat_template_kwargs", "must be an object"},
      {R"("temperatur": 1)", "temperatur", "did you mean 'temperature'"},
      {R"("functions": [])", "functions", "leave it out"},
      {R"("temperature": "hot")", "temperature", "give a number from 0"},
      {R"("temperature": -1)", "temperature", "give a number from 0"},
      {R"("top_p": 1.5)", "top_p", "from 0 to 1"},
      {R"("max_tokens": 0)", "max_tokens", "integer from 1"},
      {R"("max_tokens": 1.5)", "max_tokens", "integer from 1"},
      {R"("max_tokens": 18446744073709551615)", "max_tokens", "integer from 1"},
      {R"("max_tokens": 3, "max_completion_tokens": 4)", "max_completion_tokens", "give one of them"},
      {R"("seed": "x")", "seed", "integer"},
      {R"("stop": [""])", "stop", "give texts of 1"},
      {R"("stop": 3)", "stop", "give texts of 1"},
      {R"("stop": ["1","2","3","4","5","6","7","8","9","a","b","c","d","e","f","g","h"])", "stop", "at most 16"},
      {R"("stream": 1)", "stream", "true or false"},
      {R"("stream_options": {"include_usage": true})", "stream_options", "only for stream: true"},
      {R"("stream": true, "stream_options": {"speed": true})", "stream_options", "only include_usage"},
      {R"("logprobs": 3)", "logprobs", "true or false"},
      {R"("top_logprobs": 3)", "top_logprobs", "needs logprobs: true"},
      {R"("logprobs": true, "top_logprobs": 21)", "top_logprobs", "from 0 to 20"},
      {R"("presence_penalty": 2.5)", "presence_penalty", "from -2 to 2"},
      {R"("logit_bias": {"5": 1})", "logit_bias", "not supported"},
      {R"("response_format": {"type": "json_object"})", "response_format", "only {\"type\": \"text\"}"},
      {R"("response_format": "json")", "response_format", "only {\"type\": \"text\"}"},
      {R"("tool_choice": "required")", "tool_choice", "cannot force a call"},
      {R"("model": 3)", "model", "give a text"},
      {R"("tools": {})", "messages", "'tools' must be an array"},
  };
  for (const BadBody& c : cases)
    expect_refused(read_chat_request, R"({"messages": [{"role": "user", "content": "a"}], )" + c.fields + "}", c.field,
                   c.says);
}

TEST(ServeRequests, BodiesAndMessagesAreRefused) {
  expect_refused(read_chat_request, "{", "", "not valid JSON");
  expect_refused(read_chat_request, "", "", "not valid JSON");
  expect_refused(read_chat_request, "[1]", "", "must be a JSON object");
  expect_refused(read_chat_request, std::string(5000, '['), "", "not valid JSON");
  expect_refused(read_chat_request, "{\"messages\": \"\xff\"}", "", "not valid JSON");
  expect_refused(read_chat_request, "{}", "messages", "is missing");
  std::string many;
  for (int i = 0; i < 2001; ++i) many += (i > 0 ? ", \"" : "\"") + std::to_string(i) + "\": null";
  expect_refused(read_chat_request, R"({"metadata": {)" + many + "}}", "", "more than 2000 names");
  expect_refused(read_chat_request, R"({"messages": []})", "messages", "is empty");
  expect_refused(read_chat_request, R"({"messages": "hi"})", "messages", "array of messages");
  expect_refused(read_chat_request, R"({"messages": [{"role": "boss", "content": "a"}]})", "messages", "'boss'");
  expect_refused(read_chat_request, R"({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]})",
                 "messages", "a part of type \"image_url\", but only text is supported");
  expect_refused(read_chat_request, R"({"messages": [{"role": "user", "content": [{"type": 7}]}]})", "messages",
                 "a part of type 7");
}

TEST(ServeRequests, PlainFieldsAreRefusedByName) {
  const std::vector<BadBody> cases = {
      {R"("prompt": "a", "echo": true)", "echo", "not supported"},
      {R"("prompt": "a", "suffix": "b")", "suffix", "not supported"},
      {R"("prompt": "a", "best_of": 2)", "best_of", "equal to 'n'"},
      {R"("prompt": "a", "logprobs": true)", "logprobs", "integer from 0 to 20"},
      {R"("prompt": "a", "messages": [1])", "messages", "leave it out"},
      {R"("seed": 1)", "prompt", "is missing"},
      {R"("prompt": ["a", 3])", "prompt", "is 3; give a text"},
      {R"("prompt": [])", "prompt", "give a text"},
      {R"("prompt": [-1])", "prompt", "token ids"},
      {R"("prompt": [4294967296])", "prompt", "token ids"},
      {R"("prompt": 7)", "prompt", "give a text"},
  };
  for (const BadBody& c : cases) expect_refused(read_text_request, "{" + c.fields + "}", c.field, c.says);
}

}  // namespace
}  // namespace fettle
