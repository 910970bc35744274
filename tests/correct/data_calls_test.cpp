// Tests that the calls of functions in a row reach the text that is trained.
#include <gtest/gtest.h>

#include <algorithm>
#include <span>

#include "base/error.h"
#include "data/chat/chat.h"
#include "data/tokenise.h"
#include "data_fixtures.h"

namespace fettle {
namespace {

// The calls of DeepSeek's templates: only without content, with arguments as text.
constexpr const char* kDeepSeek =
    "{% for m in messages %}{% if m['role'] == 'assistant' and m['content'] is none %}"
    "{% for c in m['tool_calls'] %}{{ '<call>' + c['function']['name'] + '\\n' + c['function']['arguments'] }}{% "
    "endfor %}"
    "{% else %}{{ m['content'] }}{% endif %}{% if m['role'] == 'assistant' %}{{ eos_token }}{% endif %}"
    "{% endfor %}";

// Returns the row's text with the reply, which is trained, in [[ ]], or why the row is not used.
std::string rendered(const std::string& row, const std::string& chat_template) {
  const Tokenizer tokenizer = TestTokenizer{.chat_template = chat_template}.open();
  const DataSpec spec;
  const RowTokeniser tokenise(spec, tokenizer, 0, false);
  Row one{.text = row};
  const Outcome outcome = tokenise(one, {}, "rows:1");
  if (outcome.failure) std::rethrow_exception(outcome.failure);
  if (outcome.examples.size() != 1) return outcome.bad + outcome.dropped;
  const Example& example = outcome.examples[0];
  const auto trained = std::ranges::find_if(example.labels, [](int32_t label) { return label != kIgnore; });
  const std::span<const int32_t> ids = example.input_ids;
  const auto prompt = static_cast<size_t>(trained - example.labels.begin());
  return tokenizer.decode(ids.first(prompt), false) + "[[" + tokenizer.decode(ids.subspan(prompt), false) + "]]";
}

// Returns a row in which the assistant calls `f`. `content` is a member with a comma, or "".
std::string call_row(const std::string& content, const std::string& arguments, const std::string& more = "") {
  return R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", )" + content +
         R"("tool_calls": [{"function": {"name": "f", "arguments": )" + arguments + "}}]}]" + more + "}";
}

const std::string kNull = R"("content": null, )", kEmpty = R"("content": "", )", kText = R"("content": "t", )";

TEST(Calls, TheFormIsTheOneThatTheTemplateWrites) {
  const std::string object = R"({"x": [1, {"é": true}]})", text = R"("{\"x\":1}")";
  for (const std::string& content : {kNull, kEmpty, std::string()}) {
    EXPECT_EQ(rendered(call_row(content, text), kDeepSeek), "q[[<call>f\n{\"x\":1}</s>]]") << "the row's own text";
    EXPECT_EQ(rendered(call_row(content, object), kDeepSeek), "q[[<call>f\n{\"x\": [1, {\"é\": true}]}</s>]]");
  }
  // This template prints any argument, but objects as Python does.
  const std::string printing =
      "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}{{ c.function.name ~ "
      "c.function.arguments "
      "}}{% endfor %}{% if m.role == 'assistant' %}{{ eos_token }}{% endif %}{% endfor %}";
  EXPECT_EQ(rendered(call_row(kEmpty, text), printing), "q[[f{\"x\":1}</s>]]");
  EXPECT_EQ(rendered(call_row(kEmpty, R"({"x": 1})"), printing), "q[[f{'x': 1}</s>]]") << "as in Transformers";
  EXPECT_EQ(rendered(call_row(kNull, text), printing), "q[[f{\"x\":1}</s>]]") << "not None, which the template prints";
  // This template writes JSON itself, and asks whether there is a content.
  const std::string writing =
      "{% for m in messages %}{{ '<none>' if m.content is none else m.content }}{% for c in m.tool_calls or [] %}"
      "{{ c.function.name }}{{ c.function.arguments | tojson }}{% endfor %}{% if m.role == 'assistant' %}"
      "{{ eos_token }}{% endif %}{% endfor %}";
  EXPECT_EQ(rendered(call_row(kNull, text), writing), "q[[f{\"x\": 1}</s>]]") << "no content, as in Transformers";
  EXPECT_EQ(rendered(call_row(kEmpty, text), writing), "q[[f{\"x\": 1}</s>]]");
}

// Transformers leaves out fields that are null. So do rows, unless the template needs another form to write the call.
TEST(Calls, ANullContentIsLeftOut) {
  const auto text = [](const std::string& content, const std::string& template_content) {
    return rendered(call_row(content, R"({"x": 1})"),
                    "{% for m in messages %}" + template_content +
                        "{% for c in m.tool_calls or [] %}{{ c.function.name }}{{ c.function.arguments | tojson }}"
                        "{% endfor %}{% if m.role == 'assistant' %}{{ eos_token }}{% endif %}{% endfor %}");
  };
  for (const std::string& content : {kNull, std::string()}) {
    EXPECT_EQ(text(content, "{{ 'has' if 'content' in m else 'no' }}"), "has[[nof{\"x\": 1}</s>]]");
    EXPECT_EQ(text(content, "{% if m.content is not none %}[{{ m.content | trim }}]{% endif %}"),
              "[q][[[]f{\"x\": 1}</s>]]");
    EXPECT_EQ(text(content, "{{ m.content.strip() }}"), "q[[f{\"x\": 1}</s>]]") << "a template that needs a text";
  }
  EXPECT_EQ(text(kEmpty, "{{ 'has' if 'content' in m else 'no' }}"), "has[[hasf{\"x\": 1}</s>]]");
}

TEST(Calls, ACallThatTheTemplateLeavesOutIsABadRow) {
  const std::string row = rendered(call_row(kText, R"({"x": 1})"), kDeepSeek);
  EXPECT_NE(row.find("does not write the call of 'f' in message 2"), std::string::npos) << row;
  const std::string first_only =
      "{% for m in messages %}{{ m.content }}{% if m.tool_calls %}{{ m.tool_calls[0].function.name ~ "
      "m.tool_calls[0].function.arguments | tojson }}{% endif %}{% if m.role == 'assistant' %}{{ eos_token }}{% endif "
      "%}{% endfor %}";
  const std::string twice =
      R"({"messages": [{"role": "user", "content": "f"}, {"role": "assistant", "content": "", "tool_calls": [
          {"function": {"name": "f", "arguments": {}}}, {"function": {"name": "f", "arguments": {}}}]}]})";
  EXPECT_NE(rendered(twice, first_only).find("does not write the call of 'f'"), std::string::npos);
}

// The template leaves out thoughts before the last question, and a prompt opens a thought. So the earlier turns, which
// have calls but no content, are not where their prompts end.
TEST(Calls, TurnsWithoutContentAreFoundAmongThoughts) {
  const std::string thinking =
      "{% set last = namespace(user=0) %}{% for m in messages %}{% if m.role == 'user' %}{% set last.user = "
      "loop.index0 %}{% endif %}{% endfor %}{% for m in messages %}{% if m.role == 'assistant' %}{{ '<A>' }}"
      "{% if loop.index0 > last.user and m.reasoning_content %}{{ '<think>' ~ m.reasoning_content ~ '</think>' }}"
      "{% endif %}{% if m.content is not none %}{{ m.content }}{% endif %}{% for c in m.tool_calls or [] %}"
      "{{ '<call>' ~ c.function.name ~ (c.function.arguments | tojson) }}{% endfor %}{{ eos_token }}{% else %}"
      "{{ '<' ~ m.role ~ '>' ~ m.content }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<A><think>' }}"
      "{% endif %}";
  const auto call = [](const std::string& name) {
    return R"({"role": "assistant", "content": null, "reasoning_content": "h", "tool_calls": [{"function": {"name": ")" +
           name + R"(", "arguments": {}}}]}, {"role": "tool", "content": "r"}, )";
  };
  const std::string row = R"({"messages": [{"role": "user", "content": "q"}, )" + call("f") + call("g") +
                          R"({"role": "assistant", "content": "a"}, {"role": "user", "content": "p"},
                          {"role": "assistant", "content": "b", "reasoning_content": "h"}]})";
  EXPECT_EQ(rendered(row, thinking),
            "<user>q<A>[[<call>f{}</s><tool>r<A><call>g{}</s><tool>r<A>a</s><user>p<A><think>h</think>b</s>]]");
}

TEST(Calls, AnIdMayStandForTheName) {
  const std::string kimi =
      "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}{{ c.id }}{{ c.function.arguments | "
      "tojson }}{% endfor %}{% if m.role == 'assistant' %}{{ eos_token }}{% endif %}{% endfor %}";
  EXPECT_EQ(
      rendered(R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "", "tool_calls": [
      {"id": "c0", "function": {"name": "f", "arguments": {}}}]}]})",
               kimi),
      "q[[c0{}</s>]]");
}

// A row without tools is rendered by the model's default template, also if there is another one for tools.
TEST(Calls, TheTemplateThatRendersMustHaveCalls) {
  const std::string end = "{% if m.role == 'assistant' %}{{ eos_token }}{% endif %}{% endfor %}";
  const std::string with_calls =
      "{{ tools | length if tools }}{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}"
      "{{ c.function.name }}{{ c.function.arguments | tojson }}{% endfor %}" +
      end;
  const nlohmann::json two = {{{"name", "default"}, {"template", "{% for m in messages %}{{ m.content }}" + end}},
                              {{"name", "tool_use"}, {"template", with_calls}}};
  const TempFolder folder;
  TestTokenizer{}.save(folder.path());
  const auto file = folder.path() / "tokenizer_config.json";
  auto config = nlohmann::json::parse(std::ifstream(file));
  config["chat_template"] = two;
  std::ofstream(file) << config;
  const Tokenizer tokenizer = Tokenizer::open(folder.path());
  const ChatTemplate chat("", tokenizer);
  const std::vector<Message> messages = {
      {.role = "user", .content = "q"},
      {.role = "assistant", .extra_json = R"({"tool_calls":[{"function":{"name":"f","arguments":{}}}]})"}};
  EXPECT_EQ(chat.text({messages, R"([{"name": "f"}])"}), "1qf{}</s>");
  try {
    chat.text({messages});
    ADD_FAILURE() << "the call was left out";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("does not render tool calls"), std::string::npos) << error.what();
  }
}

TEST(Calls, LargeIntegersKeepTheirDigitsOrAreRefused) {
  const std::string printing =
      "{{ tools | tojson if tools }}{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}"
      "{{ c.function.name }}{{ c.function.arguments | tojson }}{% endfor %}{% if m.role == 'assistant' %}{{ eos_token "
      "}}"
      "{% endif %}{% endfor %}";
  EXPECT_EQ(
      rendered(call_row(kEmpty, R"({"x": 18446744073709551615, "y": -9223372036854775808, "z": 1e21})"), printing),
      "q[[f{\"x\": 18446744073709551615, \"y\": -9223372036854775808, \"z\": 1e+21}</s>]]");
  for (const std::string& bad :
       {call_row(kEmpty, R"({"x": 1000000000000000000000})"), call_row(kEmpty, R"("{\"x\": 1000000000000000000000}")"),
        call_row(kEmpty, "{}", R"(, "tools": [{"name": "f", "most": 1000000000000000000000}])"),
        call_row(kEmpty, "{}", R"(, "tools": "[{\"name\": \"f\", \"most\": 1000000000000000000000}]")"),
        call_row(kEmpty, "{}", R"(, "chat_template_kwargs": {"n": 1000000000000000000000})")}) {
    const std::string why = rendered(bad, printing);
    EXPECT_NE(why.find("the integer 1000000000000000000000"), std::string::npos) << why;
    EXPECT_NE(why.find("more than 64 bits"), std::string::npos) << why;
  }
  EXPECT_EQ(rendered(call_row(kEmpty, "{}", R"(, "id": 1000000000000000000000)"), printing), "q[[f{}</s>]]")
      << "no template writes this column";
}

TEST(Calls, ANullArgumentOfATrainedCallIsNamed) {
  const Tokenizer tokenizer = TestTokenizer{.chat_template = kDeepSeek}.open();
  const DataSpec spec;
  const RowTokeniser tokenise(spec, tokenizer, 0, false);
  const auto named = [&](const std::string& arguments, const std::string& more = "") {
    Row one{.text = call_row(kNull + more, arguments)};
    return tokenise(one, {}, "rows:1").null_argument;
  };
  EXPECT_EQ(named(R"({"x": 1, "y": null})"), "'y' of a call of 'f'");
  EXPECT_EQ(named(R"({"x": [{"z": null}]})"), "'x' of a call of 'f'");
  EXPECT_EQ(named(R"({"x": [null], "y": ":null"})"), "") << "no field is null";
  EXPECT_EQ(named(R"("{\"y\": null}")"), "") << "the row's own text";
  EXPECT_EQ(named(R"({"y": null})", R"("train": false, )"), "");
}

TEST(Calls, AReplyIsEmptyUnlessItHasCallsOrAThought) {
  const std::string talk =
      "{% for m in messages %}{{ m.content }}{{ m.reasoning_content }}{% if m.role == 'assistant' %}{{ eos_token }}"
      "{% endif %}{% endfor %}";
  const auto row = [&](const std::string& field) {
    return rendered(
        R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": " ", )" + field + "}]}",
        talk);
  };
  for (const char* field : {R"("name": "bot")", R"("id": 3, "timestamp": "now")", R"("tool_calls": [])",
                            R"("reasoning_content": " \n")", R"("thinking": null)"})
    EXPECT_EQ(row(field), "a reply is empty, so there is nothing to learn") << field;
  for (const char* field : {R"("reasoning_content": "why")", R"("thinking": "why")", R"("reasoning": "why")"})
    EXPECT_EQ(row(field), "q[[ why</s>]]") << field;
}

}  // namespace
}  // namespace fettle
