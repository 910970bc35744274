// Tests rows in the forms of other tools: LLaMA-Factory v1, ms-swift and Axolotl.
#include <gtest/gtest.h>

#include "data/formats.h"
#include "data/preferences.h"
#include "data/tokenise.h"
#include "data_fixtures.h"
#include "temp_folder.h"

namespace fettle {
namespace {

Sample sample(const char* row, const DataSource& source = {}) {
  return read_sample(nlohmann::ordered_json::parse(row), source);
}

std::string shown(const std::vector<Message>& messages) {
  std::string out;
  for (const Message& one : messages)
    out += one.role + (one.train ? "" : "(not trained)") + ": " + one.content + one.extra_json + "\n";
  return out;
}

TEST(ToolRows, PartsOfLlamaFactoryV1) {
  const Sample row = sample(R"({"messages": [
    {"role": "user", "content": [{"type": "text", "value": "Hi"}], "loss_weight": 0.0},
    {"role": "assistant", "content": [{"type": "reasoning", "value": "why"}, {"type": "text", "value": "Yo"}],
     "loss_weight": 1.0},
    {"role": "user", "content": [{"type": "text", "value": "Call"}], "loss_weight": 0.0},
    {"role": "assistant", "content": [{"type": "tool_call", "value": "{\"name\": \"f\", \"arguments\": {\"x\": 1}}"}],
     "loss_weight": 0.0}]})");
  EXPECT_EQ(
      shown(row.conversation.messages),
      "user(not trained): Hi\nassistant: Yo{\"reasoning_content\":\"why\"}\nuser(not trained): Call\n"
      "assistant(not trained): {\"tool_calls\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":"
      "{\"x\":1}}}]}\n");
  EXPECT_THROW(sample(R"({"messages": [{"role": "user", "content": [{"type": "image_url", "value": "x.png"}]},
                          {"role": "assistant", "content": "Yo"}]})"),
               BadRow);
}

TEST(ToolRows, FieldsThatSayWhetherAReplyIsTrained) {
  for (const char* field : {"\"train\": false", "\"training\": false", "\"loss\": false", "\"loss\": 0",
                            "\"loss_weight\": 0.0", "\"weight\": 0", "\"loss_scale\": 0"}) {
    const std::string row = std::string(R"({"messages": [{"role": "user", "content": "Hi"},
      {"role": "assistant", "content": "Yo", )") +
                            field + "}]}";
    EXPECT_EQ(shown(sample(row.c_str()).conversation.messages), "user: Hi\nassistant(not trained): Yo\n") << field;
  }
  EXPECT_THROW(sample(R"({"messages": [{"role": "user", "content": "Hi"},
                          {"role": "assistant", "content": "Yo", "loss_weight": -0.5}]})"),
               BadRow);
}

// Axolotl's `roles_to_train: []`: only messages with a mark are trained.
TEST(ToolRows, OnlyMarkedMessagesAreTrained) {
  EXPECT_EQ(shown(sample(R"({"messages": [{"role": "user", "content": "q"},
    {"role": "assistant", "content": "a"}, {"role": "user", "content": "r"},
    {"role": "assistant", "content": "b", "train": true}, {"role": "user", "content": "s"},
    {"role": "assistant", "content": "cd", "train_detail": [{"begin_offset": 0, "end_offset": 0, "train": true}]}]})",
                         {.only_marked = true})
                      .conversation.messages),
            "user(not trained): q\nassistant(not trained): a\nuser(not trained): r\nassistant: b\n"
            "user(not trained): s\nassistant: cd\n");
}

TEST(ToolRows, AQuestionWithAnAnswerIsAConversation) {
  EXPECT_EQ(shown(sample(R"({"id": "7", "question": "Hi", "answer": "Yo", "system": "S"})").conversation.messages),
            "system: S\nuser: Hi\nassistant: Yo\n");
  for (const char* beside : {"source", "Category", "difficulty", "type", "level", "question_id", "explanation", "url",
                             "Unnamed: 0", "__index_level_0__"}) {
    const nlohmann::ordered_json row = {{"question", "Hi"}, {beside, "b"}, {"answer", "Yo"}};
    EXPECT_EQ(shown(read_sample(row, {}).conversation.messages), "user: Hi\nassistant: Yo\n") << beside;
  }
}

TEST(ToolRows, FormsOfMsSwift) {
  EXPECT_EQ(
      shown(
          sample(R"({"query": "Hi", "response": "Yo", "system": "S", "history": [["a", "b"]]})").conversation.messages),
      "system: S\nuser: a\nassistant: b\nuser: Hi\nassistant: Yo\n");
  EXPECT_EQ(
      shown(sample(R"({"system": "S", "conversation": [{"human": "a", "assistant": "b"}]})").conversation.messages),
      "system: S\nuser: a\nassistant: b\n");
  EXPECT_EQ(shown(sample(R"({"source": "x", "conversation": [{"input": "a", "output": "b"}, {"input": "c",
                             "output": "d"}]})")  // Capybara
                      .conversation.messages),
            "user: a\nassistant: b\nuser: c\nassistant: d\n");
  auto pair = [](const char* row) { return read_pair(nlohmann::ordered_json::parse(row), {}); };
  const Sample reply = pair(R"({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yo"}],
                                "rejected_response": "No"})");
  EXPECT_EQ(reply.conversation.messages.back().content, "Yo");
  EXPECT_EQ(reply.rejected.back().content, "No");
  const Sample whole = pair(R"({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yo"}],
    "rejected_messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "No"}]})");
  EXPECT_EQ(whole.rejected.back().content, "No");
  const Sample named = pair(R"({
    "chosen_messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yo"}],
    "rejected_messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "No"}]})");
  EXPECT_EQ(named.conversation.messages.back().content, "Yo");
  EXPECT_TRUE(has_pair_columns(nlohmann::ordered_json::parse(R"({"messages": [], "rejected_response": "No"})"), {}));
  for (const char* row :
       {R"({"query": "Hi", "history": [["a", "b"]], "response": "Yo", "rejected_response": "No"})",
        R"({"input": "", "query": "Hi", "history": [["a", "b"]], "response": "Yo", "rejected_response": "No"})",
        R"({"instruction": "Hi", "history": [["a", "b"]], "output": "Yo", "rejected_response": "No"})"}) {
    EXPECT_TRUE(has_pair_columns(nlohmann::ordered_json::parse(row), {})) << row;
    const Sample text = pair(row);
    EXPECT_EQ(shown(text.conversation.messages),
              "user(not trained): a\nassistant(not trained): b\nuser(not trained): Hi\nassistant: Yo\n");
    EXPECT_EQ(text.rejected.back().content, "No");
  }
}

TEST(ToolRows, DollysRowsAreAlpacasWithOtherNames) {
  EXPECT_EQ(shown(sample(R"({"instruction": "Hi", "context": "c", "response": "Yo", "category": "open_qa"})")
                      .conversation.messages),
            "user: Hi\nc\nassistant: Yo\n");
  EXPECT_EQ(shown(sample(R"({"instruction": "Hi", "context": "", "response": "Yo"})").conversation.messages),
            "user: Hi\nassistant: Yo\n");
  const auto asked = nlohmann::ordered_json::parse(R"({"instruction": "Hi", "context": "c"})");
  EXPECT_EQ(shown(read_prompt(asked, {}).conversation.messages), "user: Hi\nc\nassistant: \n");
}

TEST(ToolRows, AQuestionWithoutAnAnswerIsAPromptBesideASolution) {
  const auto asked = nlohmann::ordered_json::parse(R"({"question": "Hi", "solution": "s"})");
  EXPECT_EQ(shown(read_prompt(asked, {}).conversation.messages), "user: Hi\nassistant: \n");
  const auto answered = nlohmann::ordered_json::parse(R"({"question": "Hi", "solution": "s", "answer": "a"})");
  EXPECT_EQ(shown(read_prompt(answered, {}).conversation.messages), "user: Hi\nassistant: \n");
}

// A message may have other fields beside its role.
TEST(ToolRows, MessagesWithFieldsOfPairs) {
  const Sample row = sample(R"({"messages": [{"role": "user", "content": "Hi", "input": null, "output": null},
                                             {"role": "assistant", "content": "Yo", "input": null, "output": null}]})");
  EXPECT_EQ(shown(row.conversation.messages), "user: Hi\nassistant: Yo\n");
}

// The items of a list may be texts, because objects with different fields have no common type in Parquet files.
TEST(ToolRows, ToolsAndCallsMayBeListsOfJsonTexts) {
  const Sample row =
      sample(R"({"tools": ["{\"name\": \"f\"}", "{\"type\": \"function\", \"function\": {\"name\": \"g\"}}"],
    "messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "",
                  "tool_calls": ["{\"function\": {\"name\": \"f\", \"arguments\": {}}}"]}]})");
  EXPECT_EQ(row.conversation.tools_json,
            R"([{"type":"function","function":{"name":"f"}},{"type":"function","function":{"name":"g"}}])");
  EXPECT_EQ(row.conversation.messages[1].extra_json, R"({"tool_calls":[{"function":{"name":"f","arguments":{}}}]})");
  EXPECT_THROW(sample(R"({"tools": ["f"], "messages": [{"role": "user", "content": "Hi"},
                          {"role": "assistant", "content": "Yo"}]})"),
               BadRow);
}

TEST(ToolRows, AHistoryMayBeMessages) {
  for (const char* history :
       {R"([["a", "b"]])", R"([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}])",
        R"([{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}])"}) {
    const std::string beside = R"(, "history": )" + std::string(history) + "}";
    for (const char* row : {R"({"instruction": "Hi", "output": "Yo")", R"({"query": "Hi", "response": "Yo")"})
      EXPECT_EQ(shown(sample((row + beside).c_str()).conversation.messages),
                "user: a\nassistant: b\nuser: Hi\nassistant: Yo\n");
    EXPECT_EQ(shown(sample((R"({"prompt": "Hi", "completion": "Yo")" + beside).c_str()).conversation.messages),
              "user(not trained): a\nassistant(not trained): b\nuser(not trained): Hi\nassistant: Yo\n");
  }
}

TEST(ToolRows, ThePromptOfAPairOfMsSwiftNeedsNoReply) {
  const std::string user = R"({"messages": [{"role": "user", "content": "Hi"})";
  for (const char* row :
       {R"(], "rejected_response": "No"})", R"(], "rejected_messages": [{"role": "user", "content": "Hi"}]})",
        R"(, {"role": "assistant", "content": "Yo"}], "rejected_response": "No"})"}) {
    const Sample prompt = read_pair_prompt(nlohmann::ordered_json::parse(user + row), {});
    ASSERT_EQ(prompt.conversation.messages.size(), 1u) << row;
    EXPECT_EQ(prompt.conversation.messages[0].content, "Hi") << row;
  }
}

// A row with two lists of messages is read from the list that the entry names, with the entry's names.
TEST(ToolRows, TheEntryNamesTheListAndItsFields) {
  const char* row = R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "old"}],
    "conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "new"}]})";
  const std::string fresh = "user: q\nassistant: new\n", old = "user: q\nassistant: old\n";
  EXPECT_EQ(shown(sample(row).conversation.messages), old);
  EXPECT_EQ(shown(sample(row, {.columns = {{"messages", "conversations"}}}).conversation.messages), fresh)
      << "detected there";
  EXPECT_EQ(shown(sample(row, {.columns = {{"messages", "messages"}}}).conversation.messages), old);
  const DataSource axolotl{.formatting = "sharegpt",
                           .columns = {{"messages", "messages"}},
                           .tags = {{"role_tag", "role"}, {"content_tag", "content"}}};
  EXPECT_EQ(shown(sample(row, axolotl).conversation.messages), old);
  EXPECT_EQ(shown(sample(R"({"messages": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]})")
                      .conversation.messages),
            "user: q\nassistant: a\n");
  EXPECT_THROW(sample(R"({"messages": [{"role": "user", "content": "q"}]})", {.columns = {{"messages", "talk"}}}),
               BadRow);
  const DataSource openai{.formatting = "openai",
                          .tags = {{"role_tag", "who"},
                                   {"content_tag", "says"},
                                   {"user_tag", "me"},
                                   {"assistant_tag", "bot"},
                                   {"assistant_tag", "assistant"},
                                   {"function_tag", "call"}}};
  EXPECT_EQ(shown(sample(R"({"messages": [{"who": "me", "says": "q"}, {"who": "bot", "says": "a"},
    {"who": "me", "says": "r"}, {"who": "call", "says": "{\"name\": \"f\"}"}, {"who": "tool", "says": "7"},
    {"who": "assistant", "says": "b"}]})",
                         openai)
                      .conversation.messages),
            "user: q\nassistant: a\nuser: r\nassistant: {\"tool_calls\":[{\"type\":\"function\",\"function\":"
            "{\"name\":\"f\",\"arguments\":{}}}]}\ntool: 7\nassistant: b\n");
  EXPECT_THROW(sample(R"({"messages": [{"who": "user", "says": "q"}, {"who": "bot", "says": "a"}]})", openai), BadRow);
}

TEST(ToolRows, CallsAndThoughtsOfSharegptTurnsAreKept) {
  const char* row = R"({"conversations": [{"from": "human", "value": "q", "name": "Ann"},
    {"from": "gpt", "value": null, "tool_calls": [{"function": {"name": "f", "arguments": {}}}]},
    {"from": "tool", "value": "7", "tool_call_id": "c1"},
    {"from": "gpt", "value": "a", "reasoning_content": "why", "weight": 0}]})";
  const std::vector<Message> read = sample(row).conversation.messages;
  EXPECT_EQ(shown(read),
            "user: q{\"name\":\"Ann\"}\n"
            "assistant: {\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":{}}}]}\n"
            "tool: 7{\"tool_call_id\":\"c1\"}\n"
            "assistant(not trained): a{\"reasoning_content\":\"why\"}\n");
  EXPECT_TRUE(read[1].no_content);
  const char* absent = R"({"talk": [{"who": "user", "what": "q"},
    {"who": "model", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}]})";
  const DataSource source{.formatting = "sharegpt",
                          .columns = {{"messages", "talk"}},
                          .tags = {{"role_tag", "who"}, {"content_tag", "what"}, {"assistant_tag", "model"}}};
  EXPECT_NE(shown(sample(absent, source).conversation.messages).find("tool_calls"), std::string::npos);
}

// ms-swift has a turn for each call. The calls belong to the reply before them.
TEST(ToolRows, CallsAndResultsOfMsSwift) {
  const std::string begin = R"({"messages": [{"role": "user", "content": "q"}, )",
                    calls = R"({"role": "tool_call", "content": "{\"name\": \"f\", \"arguments\": {\"x\": 1}}"},
    {"role": "tool_call", "content": "{\"name\": \"g\", \"arguments\": {}}"}, )",
                    end = R"({"role": "tool_response", "content": "7"}, {"role": "tool_response", "content": "8"},
    {"role": "assistant", "content": "a"}]})",
                    joined = R"({"tool_calls":[{"type":"function","function":{"name":"f","arguments":{"x":1}}},)"
                             R"({"type":"function","function":{"name":"g","arguments":{}}}]})",
                    results = "\ntool: 7\ntool: 8\nassistant: a\n";
  const auto turns = [](const std::string& row) { return shown(sample(row.c_str()).conversation.messages); };
  EXPECT_EQ(turns(begin + calls + end), "user: q\nassistant: " + joined + results);
  EXPECT_EQ(turns(begin + R"({"role": "assistant", "content": "<think>why</think>"}, )" + calls + end),
            "user: q\nassistant: <think>why</think>" + joined + results);
  EXPECT_THROW(turns(begin + R"({"role": "assistant", "content": "b", "loss": false}, )" + calls + end), BadRow)
      << "the turns are not trained alike";
}

// LLaMA-Factory's function_call turns may have a thought before the calls, and tags around them.
TEST(ToolRows, AFunctionCallTurnMayHaveAThoughtAndTags) {
  const auto turn = [](const std::string& value) {
    const nlohmann::ordered_json row = {
        {"conversations", {{{"from", "human"}, {"value", "q"}}, {{"from", "function_call"}, {"value", value}}}}};
    return shown(sample(row.dump().c_str()).conversation.messages);
  };
  const std::string call = R"({"type":"function","function":{"name":"f","arguments":{"x":1}}})";
  const std::string thought = R"("reasoning_content":"why",)", json = R"({"name": "f", "arguments": {"x": 1}})";
  EXPECT_EQ(turn(json), "user: q\nassistant: {\"tool_calls\":[" + call + "]}\n");
  for (const char* llama : {R"({"name": "f", "parameters": {"x": 1}})",
                            R"({"type": "function", "name": "f", "parameters": {"x": 1}, "arguments": null})"})
    EXPECT_EQ(turn(llama), turn(json)) << llama;
  EXPECT_EQ(turn("<think>\nwhy\n</think>\n\n" + json),
            "user: q\nassistant: {" + thought + "\"tool_calls\":[" + call + "]}\n");
  const std::string tagged = "<tool_call>\n" + json + "\n</tool_call>";
  EXPECT_EQ(turn("<think>why</think>Let me see.\n" + tagged + "\n" + tagged),
            "user: q\nassistant: Let me see.{" + thought + "\"tool_calls\":[" + call + "," + call + "]}\n");
  EXPECT_EQ(turn(R"({"name": "f", "arguments": {"x": "<tool_call>1</tool_call>"}})"),
            "user: q\nassistant: {\"tool_calls\":[{\"type\":\"function\",\"function\":{\"name\":\"f\","
            "\"arguments\":{\"x\":\"<tool_call>1</tool_call>\"}}}]}\n");
  EXPECT_THROW(turn("<think>why</think>"), BadRow);
}

// OpenAI's former fields: `functions` for tools, function_call for a call, and the role `function` for its result.
TEST(ToolRows, CallsInOpenAisFormerFields) {
  const Sample row = sample(R"({"functions": [{"name": "f", "parameters": {}}], "messages": [
    {"role": "user", "content": "q"},
    {"role": "assistant", "content": null, "function_call": {"name": "f", "arguments": "{}"}},
    {"role": "function", "name": "f", "content": "7"},
    {"role": "assistant", "content": "a", "function_call": null}]})");
  EXPECT_EQ(row.conversation.tools_json, R"([{"type":"function","function":{"name":"f","parameters":{}}}])");
  EXPECT_EQ(shown(row.conversation.messages),
            "user: q\nassistant: {\"tool_calls\":[{\"type\":\"function\",\"function\":{\"name\":\"f\","
            "\"arguments\":\"{}\"}}]}\ntool: 7{\"name\":\"f\"}\nassistant: a\n");
  EXPECT_EQ(sample(R"({"functions": "sin, cos", "messages": [{"role": "user", "content": "q"},
                                                             {"role": "assistant", "content": "a"}]})")
                .conversation.tools_json,
            "")
      << "another column of this name";
  for (const char* replies : {R"("prompt": "q", "chosen": "a", "rejected": "b")",
                              R"("chosen": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}],
           "rejected": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "b"}])"})
    EXPECT_EQ(
        read_pair(nlohmann::ordered_json::parse(R"({"functions": [{"name": "f"}], )" + std::string(replies) + "}"), {})
            .conversation.tools_json,
        R"([{"type":"function","function":{"name":"f"}}])")
        << replies;
}

// As in LLaMA-Factory, an entry that describes the rows has only the columns that it names.
TEST(ToolRows, ToolsAndSystemAreReadIfTheEntryNamesThem) {
  const char* row = R"({"system": "S", "tools": [{"name": "f"}],
    "conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]})";
  const std::string tools = R"([{"type":"function","function":{"name":"f"}}])", turns = "user: q\nassistant: a\n";
  const auto read = [&](const DataSource& source) {
    const Sample one = sample(row, source);
    return shown(one.conversation.messages) + one.conversation.tools_json;
  };
  EXPECT_EQ(read({}), "system: S\n" + turns + tools);
  EXPECT_EQ(read({.formatting = "sharegpt"}), "system: S\n" + turns + tools);
  EXPECT_EQ(read({.formatting = "sharegpt", .columns = {{"messages", "conversations"}}}), turns);
  EXPECT_EQ(read({.formatting = "sharegpt", .columns = {{"messages", "conversations"}, {"tools", "tools"}}}),
            turns + tools);
}

// Returns the source of an entry that has only `columns`.
DataSource entry_with(const char* columns) {
  const TempFolder folder;
  const std::string file = folder.write("rows.jsonl", "{}\n").string();
  return find_source(fmt::format(R"({{"file_name": "{}", "columns": {}}})", file, columns), folder.path());
}

TEST(ToolRows, AnEntryMayNameOnlyTheSystemTextAndTheTools) {
  const DataSource source = entry_with(R"({"system": "rules", "tools": "functions_json"})");
  const std::string beside = R"(, "rules": "S", "functions_json": [{"name": "f"}]})",
                    tools = R"([{"type":"function","function":{"name":"f"}}])";
  for (const char* row :
       {R"({"prompt": "q", "completion": "a")", R"({"question": "q", "answer": "a")",
        R"({"query": "q", "response": "a")", R"({"instruction": "q", "output": "a")",
        R"({"conversation": [{"human": "q", "assistant": "a"}])",
        R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}])"}) {
    Sample read = sample((row + beside).c_str(), source);
    for (Message& one : read.conversation.messages) one.train = true;
    EXPECT_EQ(shown(read.conversation.messages), "system: S\nuser: q\nassistant: a\n") << row;
    EXPECT_EQ(read.conversation.tools_json, tools) << row;
  }
  for (const char* prompt : {"prompt", "instruction", "question"}) {
    const std::string row = fmt::format(R"({{"{}": "q", "chosen": "a", "rejected": "b")", prompt) + beside;
    const Sample pair = read_pair(nlohmann::ordered_json::parse(row), source);
    EXPECT_EQ(shown(pair.conversation.messages), "system(not trained): S\nuser(not trained): q\nassistant: a\n") << row;
    EXPECT_EQ(pair.conversation.tools_json, tools) << row;
  }
}

TEST(ToolRows, APairsPromptHasTheNamesOfTheEntry) {
  const DataSource source{.formatting = "sharegpt",
                          .columns = {{"messages", "talk"}},
                          .tags = {{"role_tag", "role"}, {"content_tag", "content"}, {"assistant_tag", "bot"}}};
  for (const char* prompt : {R"("Hi")", R"([{"role": "user", "content": "Hi"}])"}) {
    const std::string row =
        std::string(R"({"messages": [], "chosen": "Yo", "rejected": "No", "talk": )") + prompt + "}";
    const Sample pair = read_pair(nlohmann::ordered_json::parse(row), source);
    EXPECT_EQ(shown(pair.conversation.messages), "user(not trained): Hi\nassistant: Yo\n");
    EXPECT_EQ(pair.rejected.back().content, "No");
  }
  // Without names of fields, the messages show them.
  const DataSource list{.columns = {{"messages", "talk"}}};
  for (const char* reply :
       {R"("Yo")", R"({"role": "assistant", "content": "Yo"})", R"({"from": "gpt", "value": "Yo"})"}) {
    const std::string row = std::string(R"({"talk": "Hi", "chosen": )") + reply + R"(, "rejected": )" + reply + "}";
    EXPECT_EQ(shown(read_pair(nlohmann::ordered_json::parse(row), list).conversation.messages),
              "user(not trained): Hi\nassistant: Yo\n");
  }
}

// Returns the row's tokens as text, with the trained parts in [[ ]].
std::string rendered(const char* row, const DataSource& source, const Tokenizer& tokenizer, DataSpec spec = {}) {
  const RowTokeniser tokenise(spec, tokenizer, 0, false);
  Row one{.value = nlohmann::ordered_json::parse(row)};
  const Outcome outcome = tokenise(one, source, "rows:1");
  if (outcome.failure) std::rethrow_exception(outcome.failure);
  if (outcome.examples.size() != 1) return outcome.bad + outcome.dropped;
  const Example& example = outcome.examples[0];
  std::string text;
  bool trained = false;
  for (size_t i = 0; i <= example.input_ids.size(); ++i) {
    const bool now = i < example.labels.size() && example.labels[i] != kIgnore;
    if (now != trained) text += now ? "[[" : "]]";
    trained = now;
    if (i < example.input_ids.size()) text += tokenizer.decode(std::vector<int32_t>{example.input_ids[i]}, false);
  }
  return text;
}

TEST(ToolRows, AlpacasPromptTextWithoutATemplate) {
  const Tokenizer tokenizer = TestTokenizer{}.open();
  DataSource source;
  source.formatting = "alpaca_prompt";
  EXPECT_EQ(
      rendered(R"({"instruction": "Add.", "input": "2+2", "output": "4"})", source, tokenizer),
      "Below is an instruction that describes a task, paired with an input that provides further context. Write a "
      "response that appropriately completes the request.\n\n### Instruction:\nAdd.\n\n### Input:\n2+2\n\n"
      "### Response:\n[[4</s>]]");
  EXPECT_EQ(rendered(R"({"instruction": "Hi", "input": "", "output": "Yo"})", source, tokenizer),
            "Below is an instruction that describes a task. Write a response that appropriately completes the "
            "request.\n\n### Instruction:\nHi\n\n### Response:\n[[Yo</s>]]");
  EXPECT_EQ(rendered(R"({"instruction": "Hi", "output": " "})", source, tokenizer),
            "a reply is empty, so there is nothing to learn");
}

// Axolotl's `type: alpaca` reads only the columns instruction, input and output.
TEST(ToolRows, AlpacasPromptTextIgnoresASystemColumn) {
  const Tokenizer tokenizer = TestTokenizer{}.open();
  DataSource source;
  source.formatting = "alpaca_prompt";
  EXPECT_EQ(rendered(R"({"instruction": "Hi", "output": "Yo", "system": "S"})", source, tokenizer),
            rendered(R"({"instruction": "Hi", "output": "Yo"})", source, tokenizer));
}

// Custom prompts of Axolotl (`type` is a map) render as Axolotl's UserDefinedPrompter writes them.
TEST(ToolRows, APromptAsTheEntryDescribesIt) {
  const Tokenizer tokenizer = TestTokenizer{}.open();
  DataSource source;
  source.formatting = "alpaca_prompt";
  source.prompt = PromptFormat{.format = "[INST] {instruction} {{{input}}} [/INST]",
                               .no_input_format = "[INST] {instruction} [/INST]",
                               .system_format = "<<{system}>>",
                               .system_prompt = "Usual",
                               .no_input_system_prompt = "Usual"};
  source.columns = {{"prompt", "q"}, {"query", "more"}, {"response", "a"}, {"system", "sys"}};
  EXPECT_EQ(rendered(R"({"q": "Add", "more": "2+2", "a": "4"})", source, tokenizer),
            "<<Usual>>[INST] Add {2+2} [/INST][[4</s>]]");
  EXPECT_EQ(rendered(R"({"q": "Hi", "more": "", "a": "Yo", "sys": "S"})", source, tokenizer),
            "<<S>>[INST] Hi [/INST][[Yo</s>]]");
  EXPECT_EQ(rendered(R"({"q": "Hi", "a": "Yo", "sys": null})", source, tokenizer), "[INST] Hi [/INST][[Yo</s>]]");
  source.prompt = PromptFormat{};
  source.columns.clear();
  EXPECT_EQ(rendered(R"({"instruction": "Add", "input": "2", "output": "4", "system": "S:"})", source, tokenizer),
            "S:Add 2 [[4</s>]]");
  EXPECT_EQ(rendered(R"({"q": "Add", "output": "4"})", source, tokenizer),
            "the column 'instruction' is missing; the row has q, output");
}

TEST(ToolRows, TheSystemMessageIsLeftOutIfTheEntrySaysSo) {
  DataSource source;
  source.drop_system = true;
  const char* row = R"({"messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "Hi"},
                                     {"role": "assistant", "content": "Yo"}]})";
  EXPECT_EQ(shown(sample(row, source).conversation.messages), "user: Hi\nassistant: Yo\n");
  EXPECT_EQ(shown(sample(row).conversation.messages), "system: S\nuser: Hi\nassistant: Yo\n");
  for (const char* other : {R"({"system": "S", "instruction": "Hi", "output": "Yo"})",
                            R"({"system": "S", "question": "Hi", "answer": "Yo"})",
                            R"({"system": "S", "conversation": [{"human": "Hi", "assistant": "Yo"}]})",
                            R"({"prompt": [{"role": "system", "content": "S"}, {"role": "user", "content": "Hi"}],
                                "completion": "Yo"})"}) {
    for (Sample read : {sample(other, source), read_prompt(nlohmann::ordered_json::parse(other), source)}) {
      ASSERT_FALSE(read.conversation.messages.empty()) << other;
      EXPECT_EQ(read.conversation.messages[0].role, "user") << other;
    }
  }
}

// Axolotl's DPO recipes with `type: chat_template.default` read rows with these columns.
TEST(ToolRows, PairsOfAxolotl) {
  DataSource source;
  source.formatting = "openai";
  source.ranking = true;
  source.columns = {{"messages", "talk"}, {"chosen", "good"}, {"rejected", "poor"}};
  auto pair = [&](const char* row) {
    const Sample one = read_pair(nlohmann::ordered_json::parse(row), source);
    return shown(one.conversation.messages) + "| " + shown(one.rejected);
  };
  const std::string wanted = "user(not trained): Hi\nassistant: Yo\n| user(not trained): Hi\nassistant: No\n";
  EXPECT_EQ(pair(R"({"talk": [{"role": "user", "content": "Hi"}], "good": {"role": "assistant", "content": "Yo"},
                     "poor": {"role": "assistant", "content": "No"}})"),
            wanted);
  EXPECT_EQ(pair(R"({"talk": "Hi", "good": "Yo", "poor": "No"})"), wanted) << "a text is the user's turn";
  EXPECT_EQ(pair(R"({"talk": [{"role": "user", "content": "Hi"}],
                     "good": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yo"}],
                     "poor": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "No"}]})"),
            wanted)
      << "whole conversations beside the prompt";
}

TEST(ToolRows, ARowGivesVariablesToItsTemplate) {
  const Tokenizer tokenizer =
      TestTokenizer{.chat_template =
                        "{% for m in messages %}{% if m.role == 'assistant' and style %}<{{ style }}>"
                        "{% endif %}{{ m.content }}{% if m.role == 'assistant' %}</s>{% endif %}"
                        "{% endfor %}{% if add_generation_prompt and style %}<{{ style }}>{% endif %}"}
          .open();
  const char* plain = R"({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yo"}]})";
  const char* styled = R"({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yo"}],
                           "chat_template_kwargs": {"style": "short"}})";
  EXPECT_EQ(rendered(plain, {}, tokenizer), "Hi[[Yo</s>]]");
  EXPECT_EQ(rendered(styled, {}, tokenizer), "Hi<short>[[Yo</s>]]");
}

TEST(ToolRows, PlaceholdersInRepliesAreNoticed) {
  const Tokenizer tokenizer = TestTokenizer{}.open();
  DataSpec spec;
  spec.template_name = "none";
  const RowTokeniser tokenise(spec, tokenizer, 0, false);
  auto noticed = [&](const std::string& reply) {
    Row row{.value = {{"instruction", "Hi {{name}}"}, {"output", reply}}};
    return tokenise(row, {}, "rows:1").placeholder;
  };
  EXPECT_EQ(noticed("I am {{name}}."), "{{name}}");
  EXPECT_EQ(noticed("I am Ada."), "");
  EXPECT_EQ(noticed("{{ x + 1 }} and {{}}"), "");
}

}  // namespace
}  // namespace fettle
