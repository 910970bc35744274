// Tests which turns of a conversation are trained: system messages by either name, turns of other roles that the row
// marks, greetings, and templates that always write a prompt at the end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <span>

#include "data/tokenise.h"
#include "data_fixtures.h"

namespace fettle {
namespace {

using testing::HasSubstr;

constexpr const char* kTurns = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</s>{% endfor %}";
const std::string kAsked = std::string(kTurns) + "{% if add_generation_prompt %}<assistant>{% endif %}";

struct TrainedTurns : ::testing::Test {
  TestTokenizer files{.chat_template = kAsked};
  DataSpec spec;
  DataSource source;
  Outcome outcome;  // of the last row
  ChatTemplate::Counts counts;

  // Returns the row as text, with « and » around its trained parts.
  std::string shown(const std::string& row) {
    const Tokenizer tokenizer = files.open();
    const RowTokeniser tokenise(spec, tokenizer, 0, false);
    Row one{.text = row};
    outcome = tokenise(one, source, "rows:1");
    if (outcome.failure) std::rethrow_exception(outcome.failure);
    counts = tokenise.counts();
    if (!outcome.bad.empty()) return "bad: " + outcome.bad;
    if (outcome.examples.empty()) return "dropped: " + outcome.dropped;
    const Example& example = outcome.examples[0];
    std::string text;
    bool trained = false;
    for (size_t i = 0; i < example.input_ids.size(); ++i) {
      if ((example.labels[i] != kIgnore) != trained) text += (trained = !trained) ? "«" : "»";
      text += tokenizer.decode(std::span(example.input_ids).subspan(i, 1), false);
    }
    return text + (trained ? "»" : "");
  }
  // Returns a row of turns; each is a role, a text, and further fields.
  static std::string talk(const std::vector<std::array<std::string, 3>>& turns) {
    std::string out;
    for (const auto& [role, content, fields] : turns)
      out +=
          (out.empty() ? "" : ", ") + (R"({"role": ")" + role) + R"(", "content": ")" + content + "\"" + fields + "}";
    return "{\"messages\": [" + out + "]}";
  }
};

using Turns = std::vector<std::array<std::string, 3>>;
const Turns kTwoTurns = {{"user", "q", ""}, {"assistant", "a", ""}, {"user", "r", ""}, {"assistant", "b", ""}};

Turns with(const std::array<std::string, 3>& first, Turns turns) {
  turns.insert(turns.begin(), first);
  return turns;
}

TEST_F(TrainedTurns, AMessageOfTheDeveloperIsTheSystemMessage) {
  const std::string row = talk(with({"developer", "D", ""}, kTwoTurns));
  const std::string rest = "<user>q</s><assistant>«a</s>»<user>r</s><assistant>«b</s>»";
  spec.default_system = "S";
  EXPECT_EQ(shown(row), "<system>D</s>" + rest);
  source.drop_system = true;
  spec.default_system = "";
  EXPECT_EQ(shown(row), rest);
}

TEST_F(TrainedTurns, AMessageOfTheDeveloperSurvivesACut) {
  spec.mask_history = true;
  const std::string row = talk(with({"developer", "D", ""}, kTwoTurns));
  ASSERT_EQ(shown(row), "<system>D</s><user>q</s><assistant>a</s><user>r</s><assistant>«b</s>»");
  spec.cutoff_len = 40;
  EXPECT_EQ(shown(row), "<system>D</s><user>r</s><assistant>«b</s>»");
}

TEST_F(TrainedTurns, ATemplateThatNamesTheDeveloperKeepsTheRole) {
  files.chat_template = "{% if messages[0].role == 'developer' %}!{% endif %}" + kAsked;
  spec.default_system = "S";
  EXPECT_EQ(shown(talk({{"developer", "D", ""}, {"user", "q", ""}, {"assistant", "a", ""}})),
            "!<developer>D</s><user>q</s><assistant>«a</s>»");
}

TEST_F(TrainedTurns, AMarkedMessageOfTheUserIsTrainedWithItsEnd) {
  for (const char* mark : {R"(, "train": true)", R"(, "loss_weight": 1.0)", R"(, "loss": true)"}) {
    EXPECT_EQ(shown(talk({{"system", "s", ""}, {"user", "qq", mark}, {"assistant", "a", ""}})),
              "<system>s</s><user>«qq</s>»<assistant>«a</s>»")
        << mark;
    EXPECT_EQ(outcome.trained_by_role.at("user"), 3) << mark;
    EXPECT_EQ(outcome.tokens_by_role.at("assistant"), 2) << mark;
  }
  EXPECT_EQ(counts.without_end, 0);
  EXPECT_EQ(shown(talk({{"user", "q", R"(, "train": false)"}, {"assistant", "a", ""}})),
            "<user>q</s><assistant>«a</s>»");
}

TEST_F(TrainedTurns, AMarkedMessageOfTheUserMayHaveAWeightOrSpans) {
  EXPECT_EQ(shown(talk({{"user", "q", R"(, "weight": 0.5)"}, {"assistant", "a", ""}})),
            "<user>«q</s>»<assistant>«a</s>»");
  const auto end = static_cast<std::ptrdiff_t>(outcome.examples.at(0).weights.size());
  EXPECT_EQ(outcome.examples.at(0).weights[static_cast<size_t>(end) - 1], 1);
  EXPECT_EQ(outcome.examples.at(0).weights[6], 0.5F);
  EXPECT_EQ(shown(talk({{"user", "abc", R"(, "train_detail": [{"begin_offset": 1, "end_offset": 1, "train": true}])"},
                        {"assistant", "a", ""}})),
            "<user>a«b»c«</s>»<assistant>«a</s>»");
  EXPECT_EQ(shown(talk({{"user", "abc", R"(, "train_detail": [{"begin_offset": 1, "end_offset": 1, "train": false}])"},
                        {"assistant", "a", ""}})),
            "<user>abc</s><assistant>«a</s>»");
}

// The example of Axolotl's documentation.
TEST_F(TrainedTurns, TheRowOfAxolotlsDocumentation) {
  source.tags = {{"assistant_tag", "assistant"}, {"user_tag", "human"}};
  source.formatting = "sharegpt";
  EXPECT_EQ(
      shown(R"({"conversations": [{"from": "system", "value": "You are an AI assistant.", "train": false},
    {"from": "human", "value": "Hello", "train": false}, {"from": "assistant", "value": "Hello", "train": true},
    {"from": "human", "value": "How are you?", "train": true},
    {"from": "assistant", "value": "I'm doing very well, thank you!", "train_detail": [
      {"begin_offset": 0, "end_offset": 8, "train": false}, {"begin_offset": 9, "end_offset": 18, "train": true},
      {"begin_offset": 19, "end_offset": 30, "train": false}]},
    {"from": "human", "value": "I'm doing very well, thank you!", "train": true},
    {"from": "assistant", "value": "Hi there!", "train": true}]})"),
      "<system>You are an AI assistant.</s><user>Hello</s><assistant>«Hello</s>»<user>«How are you?</s>»<assistant>I'm "
      "doing« very well», thank you!«</s>»<user>«I'm doing very well, thank you!</s>»<assistant>«Hi there!</s>»");
}

TEST_F(TrainedTurns, MarksOfTheUserBesideOtherKeys) {
  const std::string row =
      talk({{"user", "q", R"(, "train": true)"}, {"assistant", "a", ""}, {"user", "r", ""}, {"assistant", "b", ""}});
  source.only_marked = true;
  EXPECT_EQ(shown(row), "<user>«q</s>»<assistant>a</s><user>r</s><assistant>b</s>");
  source.only_marked = false;
  spec.mask_history = true;
  EXPECT_EQ(shown(row), "<user>q</s><assistant>a</s><user>r</s><assistant>«b</s>»");
  spec.mask_history = false;
  EXPECT_EQ(shown(R"({"prompt": [{"role": "user", "content": "q", "train": true}],
                      "completion": [{"role": "assistant", "content": "a"}]})"),
            "<user>q</s><assistant>«a</s>»");
  spec.rows = RowKind::kRatedReplies;
  EXPECT_EQ(shown(R"({"label": true, )" + row.substr(1)), "<user>q</s><assistant>a</s><user>r</s><assistant>«b</s>»");
}

TEST_F(TrainedTurns, MarksOfTheUserInATemplateWithMarks) {
  files.chat_template =
      "{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' %}{% generation %}{{ m.content }}</s>"
      "{% endgeneration %}{% else %}{{ m.content }}</s>{% endif %}{% endfor %}"
      "{% if add_generation_prompt %}<assistant>{% endif %}";
  EXPECT_EQ(shown(talk({{"user", "q", R"(, "train": true)"}, {"assistant", "a", ""}})),
            "<user>«q</s>»<assistant>«a</s>»");
}

TEST_F(TrainedTurns, AMarkedMessageThatTheTemplateChangesMakesTheRowBad) {
  files.chat_template =
      "{% for m in messages %}<{{ m.role }}>{{ m.content if m.role == 'assistant' else m.content | length }}</s>"
      "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}";
  EXPECT_THAT(shown(talk({{"user", "q", R"(, "train": true)"}, {"assistant", "a", ""}})),
              HasSubstr("does not write the content of message 1 as it is, so the message cannot be trained; remove"));
}

TEST_F(TrainedTurns, AConversationMayBeginWithAGreetingThatIsNotTrained) {
  // This template refuses a prompt without messages.
  files.chat_template = "{% if not messages %}{{ raise_exception('no messages') }}{% endif %}" + kAsked;
  const std::array<std::string, 3> greeting = {"assistant", "hi", R"(, "train": false)"};
  const Turns turns = {{"user", "q", ""}, {"assistant", "a", ""}};
  const std::string text = "<assistant>hi</s><user>q</s><assistant>«a</s>»";
  EXPECT_EQ(shown(talk(with(greeting, turns))), text);
  EXPECT_EQ(shown(talk(with({"system", "s", ""}, with(greeting, turns)))), "<system>s</s>" + text);
  EXPECT_THAT(shown(talk(with({"assistant", "hi", ""}, turns))), HasSubstr("give it \"train\": false"));
}

TEST_F(TrainedTurns, AGreetingIsNotTrainedAsAPartOfThePrompt) {
  files.chat_template =  // the user's turns have no end, as in DeepSeek's templates
      "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% if m.role == 'assistant' %}</s>{% endif %}{% endfor %}"
      "{% if add_generation_prompt %}<assistant>{% endif %}";
  spec.train_on_prompt = true;
  EXPECT_EQ(shown(talk({{"assistant", "hi", R"(, "train": false)"}, {"user", "q", ""}, {"assistant", "a", ""}})),
            "«<assistant>»hi</s>«<user>q<assistant>a</s>»");
  EXPECT_EQ(outcome.tokens_by_role.at("assistant"), 3 + 2) << "hi, a and their ends";
}

// Some templates of Llama 3.1 do so.
TEST_F(TrainedTurns, APromptThatTheTemplateAlwaysWritesIsNotTrained) {
  files.chat_template = std::string(kTurns) + "<assistant>";
  const std::string row = talk(kTwoTurns);
  EXPECT_EQ(shown(row), "<user>q</s><assistant>«a</s>»<user>r</s><assistant>«b</s>»<assistant>");
  EXPECT_EQ(counts.without_end, 0);
  EXPECT_EQ(counts.rewritten, 0);
}

TEST_F(TrainedTurns, AThinkingPartIsTheThoughtOfTheReply) {
  files.chat_template =
      "{% for m in messages %}<{{ m.role }}>{% if m.reasoning_content %}({{ m.reasoning_content }}){% endif %}"
      "{{ m.content }}</s>{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}";
  const std::string text = "<user>q</s><assistant>«(hmm)a</s>»";
  const auto row = [](const std::string& reply) {
    return R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", )" + reply + "}]}";
  };
  EXPECT_EQ(shown(row(R"("content": "a", "reasoning_content": "hmm")")), text);
  for (const char* thought : {R"("hmm")", R"([{"type": "text", "text": "h"}, {"type": "text", "text": "mm"}])"})
    EXPECT_EQ(shown(row(R"("content": [{"type": "thinking", "thinking": )" + std::string(thought) +
                        R"(}, {"type": "text", "text": "a"}])")),
              text)
        << thought;
}

// A system message, an earlier reply and the last reply have thoughts among their texts.
constexpr const char* kThoughtsAmongTexts = R"({"messages": [
    {"role": "system", "content": [{"type": "text", "text": "s"},
        {"type": "thinking", "thinking": [{"type": "text", "text": "draft"}], "closed": true},
        {"type": "text", "text": "t"}]},
    {"role": "user", "content": "q"},
    {"role": "assistant", "content": [{"type": "thinking", "thinking": "one"}, {"type": "text", "text": "a"}]},
    {"role": "user", "content": "r"},
    {"role": "assistant", "content": [{"type": "thinking", "thinking": "two"}, {"type": "text", "text": "b"},
        {"type": "reasoning", "value": "three"}, {"type": "text", "text": "c"}]}]})";

// Templates of Ministral and Magistral write the parts of a content one after another, and then the calls.
constexpr const char* kReadsThinkingParts =
    "{% for m in messages %}<{{ m.role }}>{% if m.content is string %}{{ m.content }}{% else %}"
    "{% for part in m.content %}{% if part['type'] == 'thinking' %}({{ part['thinking'] + ')' }}"
    "{% else %}{{ part['text'] }}{% endif %}{% endfor %}{% endif %}"
    "{% for call in m.tool_calls %}[{{ call.function.name }}]{% endfor %}</s>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}";

TEST_F(TrainedTurns, ATemplateThatReadsThinkingPartsGetsThemInTheirPlaces) {
  files.chat_template = kReadsThinkingParts;
  EXPECT_EQ(shown(kThoughtsAmongTexts),
            "<system>s(draft)t</s><user>q</s><assistant>«(one)a</s>»<user>r</s><assistant>«(two)b(three)c</s>»");
  EXPECT_EQ(counts.lost_thoughts, 0);
}

TEST_F(TrainedTurns, ATextBesideAThoughtMayBeLeftOut) {
  files.chat_template = kReadsThinkingParts;
  EXPECT_EQ(shown(R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "one"}, {"type": "text", "text": "bad", "train": false},
                {"type": "text", "text": "good", "train": true}]}]})"),
            "<user>q</s><assistant>«(one)»bad«good</s>»");
}

TEST_F(TrainedTurns, ACallBesideAThoughtIsWrittenOnce) {
  files.chat_template = kReadsThinkingParts;
  EXPECT_EQ(shown(R"({"conversations": [{"from": "human", "value": "q"}, {"from": "function_call", "value": [
                {"type": "thinking", "thinking": "one"},
                {"type": "text", "text": "{\"name\": \"f\", \"arguments\": {}}"}]}]})"),
            "<user>q</s><assistant>«(one)[f]</s>»");
}

TEST_F(TrainedTurns, OtherTemplatesGetAllThoughtsOfAReplyInOneField) {
  files.chat_template =
      "{% set mode = 'chat' %}{% if mode == 'thinking' %}<think>{% endif %}"
      "{% for m in messages %}<{{ m.role }}>{% if m.reasoning_content %}({{ m.reasoning_content }}){% endif %}"
      "{{ m.content }}</s>{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}";
  const std::string row = kThoughtsAmongTexts;
  EXPECT_EQ(shown("{\"messages\": [" + row.substr(row.find(R"({"role": "user")"))),
            "<user>q</s><assistant>«(one)a</s>»<user>r</s><assistant>«(two\n\nthree)bc</s>»");
  EXPECT_EQ(shown(row),
            "bad: the model's chat template does not render thoughts in messages of role 'system'; put a "
            "chat_template.jinja that renders them into the model's folder");
}

TEST_F(TrainedTurns, TokensOfAPlainPromptAreCountedByRoleAndAfterTheCut) {
  source.formatting = "alpaca_prompt";
  spec.train_on_prompt = true;
  const std::string row = R"({"instruction": "ab", "output": "cd"})";
  EXPECT_THAT(shown(row), HasSubstr("### Instruction:"));
  EXPECT_EQ(outcome.trained_by_role, outcome.tokens_by_role);
  EXPECT_EQ(outcome.trained_by_role.at("assistant"), 3);
  spec.cutoff_len = outcome.examples.at(0).length() - 1;
  shown(row);
  EXPECT_EQ(outcome.trained_by_role.at("assistant"), 2);
  EXPECT_EQ(outcome.tokens_by_role.at("assistant"), 2);
}

}  // namespace
}  // namespace fettle
