// Tests lists that a row has as JSON text, as in CSV files: messages, replies and calls of tools.
#include <gtest/gtest.h>

#include "data/dataset.h"
#include "data/tokenise.h"
#include "data_fixtures.h"

namespace fettle {
namespace {

using nlohmann::ordered_json;

struct JsonTexts : ::testing::Test {
  TempFolder folder;
  Tokenizer tokenizer =
      TestTokenizer{.chat_template =
                        "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% for c in m.tool_calls or [] %}"
                        "{{ c.function.name }}({{ c.function.arguments | tojson }}){% endfor %}</s>{% endfor %}"
                        "{% if add_generation_prompt %}<assistant>{% endif %}"}
          .open();
  DataSpec spec;

  JsonTexts() { spec.cache = "off"; }
  std::vector<std::string> texts(const std::string& name, const std::string& rows) {
    spec.sets = {folder.write(name, rows + "\n").string()};
    const Examples all = load_datasets(spec, tokenizer, 0).train;
    std::vector<std::string> out;
    for (size_t i = 0; i < all.size(); ++i)
      out.push_back(tokenizer.decode(all[static_cast<int64_t>(i)].input_ids, false));
    return out;
  }
  // Requires that the row with each column as JSON text is read like the row itself: in JSONL and in CSV.
  void expect_equal(const ordered_json& row) {
    const auto lists = texts("rows.jsonl", row.dump());
    ordered_json as_text = row;
    std::string head, cells;
    for (auto& [column, value] : as_text.items()) {
      if (!value.is_string()) value = value.dump();
      head += (head.empty() ? "" : ",") + column;
      std::string cell = value;
      for (size_t at = 0; (at = cell.find('"', at)) != std::string::npos; at += 2) cell.insert(at, 1, '"');
      cells += (cells.empty() ? "\"" : ",\"") + cell + "\"";
    }
    EXPECT_EQ(texts("rows.jsonl", as_text.dump()), lists) << row;
    EXPECT_EQ(texts("rows.csv", head + "\n" + cells), lists) << row;
  }
};

ordered_json turn(const char* role, const char* content) {
  return {{"role", role}, {"content", content}};
}

TEST_F(JsonTexts, OfMessagesAreLists) {
  for (const char* column : {"messages", "conversations"})
    expect_equal({{column, ordered_json::array({turn("user", "q"), turn("assistant", "a")})}});
  expect_equal({{"conversations", ordered_json::array({ordered_json{{"from", "human"}, {"value", "q"}},
                                                       ordered_json{{"from", "gpt"}, {"value", "a"}}})}});
  expect_equal({{"prompt", ordered_json::array({turn("system", "s"), turn("user", "q")})},
                {"completion", ordered_json::array({turn("assistant", "a")})}});
}

TEST_F(JsonTexts, OfRepliesAreLists) {
  spec.rows = RowKind::kPreferencePairs;
  const auto replies = [](ordered_json row) {
    row["chosen"] = ordered_json::array({turn("assistant", "a")});
    row["rejected"] = ordered_json::array({turn("assistant", "b")});
    return row;
  };
  expect_equal(replies({{"prompt", "q"}}));
  expect_equal(replies({{"prompt", ordered_json::array({turn("user", "q")})}}));
  expect_equal(replies({{"messages", ordered_json::array({turn("user", "q")})}}));
  expect_equal({{"chosen", ordered_json::array({turn("user", "q"), turn("assistant", "a")})},
                {"rejected", ordered_json::array({turn("user", "q"), turn("assistant", "b")})}});
}

TEST_F(JsonTexts, OfCallsAreLists) {
  const auto row = [](const ordered_json& calls) {
    ordered_json reply = turn("assistant", "");
    reply["tool_calls"] = calls;
    return ordered_json{{"messages", ordered_json::array({turn("user", "q"), reply})}}.dump();
  };
  const ordered_json calls =
      ordered_json::array({{{"type", "function"}, {"function", {{"name", "f"}, {"arguments", {{"x", 1}}}}}}});
  EXPECT_EQ(texts("rows.jsonl", row(calls.dump())), texts("rows.jsonl", row(calls)));
}

// A reply may be a text in the form of JSON.
TEST_F(JsonTexts, OfOtherListsStayTexts) {
  for (const char* reply : {R"([1, 2])", R"([12345678901234567890123])", R"([{"role": "admin", "content": "x"}])",
                            R"([{"role": "user"}])", "[{'role': 'user', 'content': 'x'}] is what you pass"})
    EXPECT_EQ(texts("rows.jsonl", ordered_json{{"prompt", "q"}, {"completion", reply}}.dump()),
              std::vector<std::string>{"<user>q</s><assistant>" + std::string(reply) + "</s>"});
}

TEST_F(JsonTexts, ThatPythonPrintedAreBadRows) {
  for (const char* column : {"messages", "conversations", "prompt", "completion", "chosen", "rejected"}) {
    ordered_json row = {{"prompt", "q"}, {"completion", "a"}, {"chosen", "a"}, {"rejected", "b"}};
    row[column] = "[{'role': 'user', 'content': \"It's\"}]";
    const RowTokeniser tokenise(spec, tokenizer, 0, false);
    Row one{.text = row.dump()};
    EXPECT_EQ(tokenise(one, {}, "rows:1").bad,
              "'" + std::string(column) +
                  "' has messages as Python prints them, not as JSON; write the column with json.dumps");
  }
}

TEST_F(JsonTexts, OfMessagesStayTextsWhereTheEntryDescribesTexts) {
  const std::string list = ordered_json::array({turn("user", "q")}).dump();
  const RowTokeniser tokenise(spec, tokenizer, 0, false);
  const DataSource alpaca{.formatting = "alpaca", .columns = {{"prompt", "prompt"}, {"response", "completion"}}};
  Row prompted{.text = ordered_json{{"prompt", list}, {"completion", "a"}}.dump()};
  const Outcome read = tokenise(prompted, alpaca, "rows:1");
  ASSERT_EQ(read.bad, "");
  EXPECT_EQ(tokenizer.decode(read.examples.at(0).input_ids, false), "<user>" + list + "</s><assistant>a</s>");
}

}  // namespace
}  // namespace fettle
