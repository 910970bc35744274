// Tests the output of `fettle generate` and `fettle chat` on the reference models for given input.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <set>
#include <sstream>
#include <thread>

#include "base/text.h"
#include "correct/generate_models.h"
#include "data/example.h"
#include "generate/chat.h"
#include "generate/generate.h"
#include "generate/session.h"
#include "temp_folder.h"

namespace fettle {
namespace {

using testing::HasSubstr;

// This template writes one character per role, because the reference models have only 128 positions.
constexpr const char* kTemplate =
    "{% for m in messages %}{{ m.role[0] + '|' + m.content + '|' }}{% endfor %}"
    "{% if add_generation_prompt %}a|{% endif %}";

// Copies a reference model's folder so that tests can change it.
class Commands : public testing::Test {
 protected:
  Commands() {
    std::filesystem::copy(kReferenceModels / "llama", folder());
    recipe = reference_recipe("llama");
    recipe.model_name_or_path = folder().string();
    recipe.max_new_tokens = 24;
  }
  std::filesystem::path folder() const { return temp / "model"; }
  std::string greedy_prompt(int i) const { return reference["greedy"][i]["text"]; }
  std::string greedy_text(int i) const { return reference["greedy"][i]["base"]["text"]; }

  std::string generate(const std::string& input = "", bool terminal = false) const {
    std::istringstream in(input);
    std::ostringstream out;
    run_generate(Request(recipe, Command::kGenerate), in, terminal ? LinesFrom::kTerminal : LinesFrom::kPipe, out);
    return out.str();
  }
  struct Chat {
    std::string out, remarks;
    int code;
  };
  Chat chat(const std::string& input, bool terminal = false) const {
    std::istringstream in(input);
    std::ostringstream out, remarks;
    const int code = run_chat(Request(recipe, Command::kChat), in, terminal, out, remarks);
    return {out.str(), remarks.str(), code};
  }
  // Returns how the model continues `text` without a template. With a template, the reply must be the same if the
  // template renders the prompt as `text`.
  std::string continued(const std::string& text) const {
    Commands raw;
    raw.recipe = recipe;
    raw.recipe.stage = "pt";
    raw.recipe.prompt = text;
    std::string out = raw.generate();
    out.pop_back();
    return out;
  }
  void TestBody() override {}

  TempFolder temp;
  Recipe recipe;
  const nlohmann::json reference = reference_of("llama");
};

TEST_F(Commands, OnePromptIsContinuedByTheBaseAndByTheAdapter) {
  recipe.prompt = greedy_prompt(0);
  EXPECT_EQ(generate(), greedy_text(0) + "\n");
  recipe.adapter_name_or_path = {(folder() / "adapter_final").string()};
  std::filesystem::copy(kReferenceModels / "llama/adapter_final", folder() / "adapter_final");
  EXPECT_EQ(generate(), reference["greedy"][0]["tuned"]["text"].get<std::string>() + "\n");
}

TEST_F(Commands, EachLineOfInputIsAPrompt) {
  EXPECT_EQ(generate(greedy_prompt(0) + "\r\n\n  \n" + greedy_prompt(1)),
            greedy_text(0) + "\n" + greedy_text(1) + "\n");
}

TEST_F(Commands, RowsOfTheDatasetAreAnsweredWithoutTheirAnswers) {
  const std::vector<int32_t> ids = reference["greedy"][1]["prompt"];
  nlohmann::json row{{"input_ids", ids}, {"labels", std::vector<int32_t>(ids.size(), kIgnore)}};
  row["input_ids"].push_back(5);
  row["labels"].push_back(5);
  const nlohmann::json text{{"text", greedy_prompt(0)}};
  write_text(temp / "rows.jsonl", text.dump() + "\n" + row.dump() + "\n" + text.dump() + "\n");
  recipe.dataset = {(temp / "rows.jsonl").string()};
  recipe.max_samples = 2;
  const std::string file = (temp / "rows.jsonl").string();
  const std::string both =
      "==> " + file + ":1 <==\n" + greedy_text(0) + "\n\n==> " + file + ":2 <==\n" + greedy_text(1) + "\n";
  EXPECT_EQ(generate(), both);
  EXPECT_EQ(generate("", true), both);
  EXPECT_EQ(generate(greedy_prompt(1)), greedy_text(1) + "\n");
}

TEST_F(Commands, RowsAreChosenAsInTraining) {
  const std::string row = nlohmann::json{{"text", greedy_prompt(0)}}.dump() + "\n";
  write_text(temp / "rows.jsonl", row + row + row + row + R"({"text": ")" + std::string(5000, 'a') + "\"}\n");
  recipe.max_new_tokens = 1;
  recipe.dataset_dir = temp.path().string();
  recipe.dataset = {"mine"};
  const auto answered = [&](const std::string& entry) {
    write_text(temp / "dataset_info.json", R"({"mine": {"file_name": "rows.jsonl", )" + entry + "}}");
    const std::string out = generate();
    int64_t count = 0;
    for (size_t at = 0; (at = out.find("==> ", at)) != std::string::npos; ++at) ++count;
    return count;
  };
  EXPECT_EQ(answered(R"("split": "train[:40%]")"), 2) << "the last row is too long, but it is not chosen";
  EXPECT_EQ(answered(R"("split": "train[:3]")"), 3);
  write_text(temp / "rows.jsonl", row + row + row + row);
  EXPECT_EQ(answered(R"("num_samples": 3)"), 3);
}

TEST_F(Commands, LinesOfAFileAreAnsweredTogetherInTheirOrder) {
  std::istringstream in(greedy_prompt(1) + "\n\n" + greedy_prompt(0) + "\n" + greedy_prompt(1) + "\n");
  std::ostringstream out;
  recipe.per_device_eval_batch_size = 2;
  run_generate(Request(recipe, Command::kGenerate), in, LinesFrom::kFile, out);
  EXPECT_EQ(out.str(), greedy_text(1) + "\n" + greedy_text(0) + "\n" + greedy_text(1) + "\n");
}

TEST_F(Commands, StopsAtTheEndTokensOfTheGenerationConfig) {
  const std::vector<int32_t> ids = reference["greedy"][0]["base"]["ids"];
  recipe.prompt = greedy_prompt(0);
  const std::string whole = greedy_text(0);
  for (const nlohmann::json& eos : {nlohmann::json(ids[5]), nlohmann::json{255, ids[5]}}) {
    write_text(folder() / "generation_config.json", nlohmann::json{{"eos_token_id", eos}}.dump());
    Session session(Request(recipe, Command::kGenerate), Session::Template::kIfThere);
    std::string streamed;
    const Reply reply = session.reply(session.prompt(recipe.prompt), 0, [&](const std::string& text) {
      streamed += text;
      return true;
    });
    EXPECT_EQ(reply.ids, std::vector<int32_t>(ids.begin(), ids.begin() + 5));
    EXPECT_EQ(reply.end, ReplyEnd::kStopToken);
    EXPECT_EQ(streamed, reply.text);
    EXPECT_TRUE(whole.starts_with(reply.text)) << reply.text;
    EXPECT_EQ(generate(), reply.text + "\n");
  }
}

TEST_F(Commands, EndsAtTheLimitAtTheLastPositionAndOnRequest) {
  Session session(Request(recipe, Command::kGenerate), Session::Template::kIfThere);
  const std::vector<int32_t> prompt = reference["greedy"][0]["prompt"];
  auto on = [](const std::string&) { return true; };
  const Reply limited = session.reply(prompt, 0, on);
  EXPECT_EQ(limited.end, ReplyEnd::kMaxNewTokens);
  EXPECT_EQ(limited.ids, reference["greedy"][0]["base"]["ids"].get<std::vector<int32_t>>());
  int told = 0;
  const Reply stopped = session.reply(prompt, 0, [&](const std::string&) { return ++told < 3; });
  EXPECT_EQ(stopped.end, ReplyEnd::kCaller);
  EXPECT_EQ(stopped.ids.size(), 3u);
  std::vector<int32_t> full = prompt;
  full.resize(126, 7);
  const Reply filled = session.reply(full, 0, on);
  EXPECT_EQ(filled.end, ReplyEnd::kMaxPositions);
  EXPECT_EQ(filled.ids.size(), 3u);  // the last token needs no position
}

// A server may run for weeks.
TEST_F(Commands, APromptHasTheTimeAtWhichItIsMade) {
  recipe.template_name = "{{ strftime_now('%H:%M:%S') }}{% for m in messages %}{{ m.content }}{% endfor %}";
  const Session session(Request(recipe, Command::kGenerate), Session::Template::kIfThere);
  const std::vector<int32_t> first = session.prompt("a");
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  EXPECT_NE(session.prompt("a"), first);
}

TEST_F(Commands, WithoutATemplateAReplyContinuesThePrompt) {
  const auto continues = [&] {
    return Session(Request(recipe, Command::kGenerate), Session::Template::kIfThere).options(0).continues_text;
  };
  EXPECT_TRUE(continues());
  recipe.template_name = kTemplate;
  EXPECT_FALSE(continues());
}

TEST_F(Commands, SamplingIsAFunctionOfTheSeed) {
  recipe.do_sample = true;
  recipe.temperature = 3;
  recipe.top_p = 1;
  recipe.prompt = greedy_prompt(0);
  const std::string first = generate();
  EXPECT_EQ(generate(), first);
  recipe.seed = 7;
  EXPECT_NE(generate(), first);
  recipe.seed = 42;
  recipe.prompt.clear();
  const std::string line = greedy_prompt(0) + "\n";
  const std::string twice = generate(line + line);
  EXPECT_TRUE(twice.starts_with(first)) << twice;
  EXPECT_NE(twice, first + first);
}

// A penalty this large forbids each token that the prompt or the reply already has, so no token comes twice.
TEST_F(Commands, PenalisesTokensThatTheTextAlreadyHas) {
  recipe.do_sample = false;
  recipe.max_new_tokens = 100;
  const std::vector<int32_t> prompt = reference["greedy"][0]["prompt"];
  const auto repeats = [&] {
    Session session(Request(recipe, Command::kGenerate), Session::Template::kIfThere);
    std::vector<int32_t> ids = session.reply(prompt, 0, [](const std::string&) { return true; }).ids;
    ids.insert(ids.end(), prompt.begin(), prompt.end());
    return std::ssize(ids) - std::ssize(std::set<int32_t>(ids.begin(), ids.end()));
  };
  const int64_t without = repeats();
  recipe.repetition_penalty = 1e6;
  EXPECT_LT(repeats(), without);
  EXPECT_EQ(repeats(), std::ssize(prompt) - std::ssize(std::set<int32_t>(prompt.begin(), prompt.end())));
}

// With min_p: 1, only the most likely token remains, whatever the seed.
TEST_F(Commands, MinPKeepsOnlyLikelyTokens) {
  recipe.do_sample = true;
  recipe.temperature = 3;
  recipe.top_k = 0;
  recipe.top_p = 1;
  recipe.min_p = 1;
  recipe.prompt = greedy_prompt(0);
  const std::string drawn = generate();
  recipe.do_sample = false;
  EXPECT_EQ(drawn, generate());
}

TEST_F(Commands, PromptsGoThroughTheTemplateUnlessTheStageIsPt) {
  write_text(folder() / "chat_template.jinja", kTemplate);
  recipe.prompt = "hello";
  EXPECT_EQ(generate(), continued("u|hello|a|") + "\n");
  recipe.default_system = "be";
  EXPECT_EQ(generate(), continued("s|be|u|hello|a|") + "\n");
  recipe.stage = "pt";
  EXPECT_EQ(generate(), continued("hello") + "\n");
}

// An export of the adapter has the same template.
TEST_F(Commands, PromptsGoThroughTheTemplateOfTheAdapter) {
  std::filesystem::copy(kReferenceModels / "llama/adapter_final", folder() / "adapter_final");
  write_text(folder() / "chat_template.jinja", "{{ messages[0].content }}");
  write_text(folder() / "adapter_final/chat_template.jinja", kTemplate);
  recipe.prompt = "hello";
  EXPECT_EQ(generate(), continued("hello") + "\n");
  recipe.adapter_name_or_path = {(folder() / "adapter_final").string()};
  EXPECT_EQ(generate(), continued("u|hello|a|") + "\n");
}

TEST_F(Commands, DatasetConversationsEndBeforeTheLastAnswer) {
  write_text(folder() / "chat_template.jinja", kTemplate);
  write_text(temp / "rows.jsonl",
             R"({"messages": [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"},
{"role": "user", "content": "three"}, {"role": "assistant", "content": "four"}]})"
             "\n");
  std::string rows = read_text(temp / "rows.jsonl");
  std::erase(rows, '\n');
  write_text(temp / "rows.jsonl", rows + "\n");
  recipe.dataset = {(temp / "rows.jsonl").string()};
  EXPECT_EQ(generate(), continued("u|one|a|two|u|three|a|") + "\n");
}

TEST_F(Commands, RowsNeedNoReply) {
  write_text(folder() / "chat_template.jinja", kTemplate);
  recipe.dataset = {(temp / "rows.jsonl").string()};
  recipe.max_new_tokens = 4;
  const std::string answer = continued("u|one|a|") + "\n";
  for (const char* row : {R"({"messages": [{"role": "user", "content": "one"}]})", R"({"instruction": "one"})",
                          R"({"messages": "[{\"role\": \"user\", \"content\": \"one\"}]"})", R"({"query": "one"})",
                          R"({"conversations": [{"from": "human", "value": "one"}]})", R"({"prompt": "one"})",
                          R"({"prompt": [{"role": "user", "content": "one"}]})",
                          R"({"prompt": [{"role": "user", "content": "one"}], "completion": null})",
                          R"({"prompt": "one", "chosen": "two", "rejected": "three"})"}) {
    write_text(temp / "rows.jsonl", std::string(row) + "\n");
    EXPECT_EQ(generate(), answer) << row;
  }
  write_text(temp / "rows.jsonl",
             R"({"messages": [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}, )"
             R"({"role": "user", "content": "three"}]})"
             "\n");
  EXPECT_EQ(generate(), continued("u|one|a|two|u|three|a|") + "\n");
}

// Training on these rows also has this prompt.
TEST_F(Commands, PreferencePairsAreAnsweredFromTheirPrompt) {
  write_text(folder() / "chat_template.jinja", kTemplate);
  recipe.dataset = {(temp / "rows.jsonl").string()};
  recipe.max_new_tokens = 4;
  const auto answer_to = [&](const std::string& row) {
    write_text(temp / "rows.jsonl", row + "\n");
    return generate();
  };
  const std::string answer = continued("u|one|a|") + "\n";
  for (const char* row :
       {R"({"question": "one", "chosen": "two", "rejected": "three"})",
        R"({"chosen": [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}],
            "rejected": [{"role": "user", "content": "one"}, {"role": "assistant", "content": "three"}]})",
        R"({"chosen": "\n\nHuman: one\n\nAssistant: two", "rejected": "\n\nHuman: one\n\nAssistant: three"})"}) {
    std::string line = row;
    std::erase(line, '\n');
    EXPECT_EQ(answer_to(line), answer) << row;
  }
  // Stage sft trains on the messages of such a row, so its columns of replies do not make it a pair.
  EXPECT_EQ(answer_to(R"({"messages": [{"role": "user", "content": "one"}, {"role": "assistant", "content": "yo"}], )"
                      R"("chosen": "x", "rejected": "y"})"),
            answer);
  const std::string pair = R"("instruction": "one", "input": "more", "system": "be")";
  recipe.dataset = {nlohmann::json{{"file_name", (temp / "rows.jsonl").string()},
                                   {"ranking", true},
                                   {"columns",
                                    {{"prompt", "instruction"},
                                     {"query", "input"},
                                     {"system", "system"},
                                     {"chosen", "chosen"},
                                     {"rejected", "rejected"}}}}
                        .dump()};
  const std::string described = continued("s|be|u|one\nmore|a|") + "\n";
  EXPECT_EQ(answer_to("{" + pair + R"(, "chosen": "two", "rejected": "three"})"), described);
  EXPECT_EQ(answer_to("{" + pair + "}"), described) << "a row needs no replies";
}

TEST_F(Commands, MaxSamplesCountsTheRowsOfEachDataSet) {
  const std::string row = "{\"text\": \"#\"}\n";
  recipe.max_samples = 1;
  recipe.max_new_tokens = 1;
  for (const char* name : {"a.jsonl", "b.jsonl"}) {
    write_text(temp / name, row + row);
    recipe.dataset.push_back((temp / name).string());
  }
  const std::string out = generate();
  EXPECT_THAT(out, testing::AllOf(HasSubstr("a.jsonl:1 <=="), HasSubstr("b.jsonl:1 <==")));
  EXPECT_EQ(out.find("jsonl:2"), std::string::npos) << out;
}

// A row of Axolotl's `type: alpaca` is answered without a template. The prompt is the same as in training.
TEST_F(Commands, PromptsAsPlainTextEndBeforeTheReply) {
  write_text(folder() / "chat_template.jinja", kTemplate);
  write_text(temp / "rows.jsonl", R"({"instruction": "one", "output": "two"})"
                                  "\n");
  recipe.dataset = {nlohmann::json{{"file_name", (temp / "rows.jsonl").string()},
                                   {"formatting", "alpaca_prompt"},
                                   {"prompt", {{"no_input_format", "Q: {instruction} A:"}}}}
                        .dump()};
  EXPECT_EQ(generate(), continued("Q: one A:") + "\n");
}

TEST_F(Commands, ARowGivesVariablesToItsTemplate) {
  write_text(folder() / "chat_template.jinja",
             "{% for m in messages %}{{ m.role[0] + '|' + m.content + '|' }}{% endfor %}"
             "{% if add_generation_prompt %}a|{{ style }}{% endif %}");
  write_text(temp / "rows.jsonl",
             R"({"messages": [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}], )"
             R"("chat_template_kwargs": {"style": "short"}})"
             "\n");
  recipe.dataset = {(temp / "rows.jsonl").string()};
  EXPECT_EQ(generate(), continued("u|one|a|short") + "\n");
}

TEST_F(Commands, ChatKeepsTheConversation) {
  write_text(folder() / "chat_template.jinja", kTemplate);
  recipe.max_new_tokens = 8;
  const std::string first = continued("u|hello|a|"), second = continued("u|hello|a|" + first + "|u|and|a|");
  const Chat talk = chat("hello\nand\n/clear\nhello\n/exit\nnever\n");
  EXPECT_EQ(talk.out, first + "\n" + second + "\n" + first + "\n");
  EXPECT_EQ(talk.code, 0);
  EXPECT_THAT(talk.remarks, HasSubstr("a new conversation starts"));
}

// The prompt opens a block of reasoning, and the model never closes it.
TEST_F(Commands, ThoughtsAreSetApartAndKeptInAFieldOfTheirOwn) {
  write_text(folder() / "chat_template.jinja",
             "{# </think> #}{% for m in messages %}{{ m.role[0] + '|' + m.content + '|' + m.reasoning_content | "
             "default('') }}{% endfor %}{% if add_generation_prompt %}a|<think>{% endif %}");
  recipe.max_new_tokens = 8;
  const auto thought = [&](const std::string& text) { return std::string(trimmed(continued(text))); };
  const auto shown = [](const std::string& text) { return "<think>\n" + text + "\n</think>\n"; };
  const std::string first = thought("u|hello|a|<think>");
  EXPECT_EQ(chat("hello\nand\n").out, shown(first) + shown(thought("u|hello|a||" + first + "u|and|a|<think>")));
  recipe.prompt = "hello";
  EXPECT_EQ(generate(), shown(first));
}

// Some templates refuse a reply without text.
TEST_F(Commands, AThoughtWithoutAnAnswerIsKeptAsText) {
  write_text(folder() / "chat_template.jinja",
             "{# </think> #}{% for m in messages %}{% if not m.content %}{{ raise_exception('no text') }}{% endif %}"
             "{{ m.role[0] + '|' + m.content + '|' }}{% endfor %}{% if add_generation_prompt %}a|<think>{% endif %}");
  recipe.max_new_tokens = 8;
  const std::string first = continued("u|hello|a|<think>");
  const Chat talk = chat("hello\nand\n");
  EXPECT_THAT(talk.out, HasSubstr(std::string(trimmed(continued("u|hello|a|" + first + "|u|and|a|<think>")))));
}

TEST_F(Commands, ChatSetsAndRemovesTheSystemMessage) {
  write_text(folder() / "chat_template.jinja", kTemplate);
  recipe.max_new_tokens = 8;
  recipe.default_system = "kind";
  const Chat talk = chat("hi\n/clear\n/system  brief \nhi\n/clear\n/system\nhi");
  EXPECT_EQ(talk.out,
            continued("s|kind|u|hi|a|") + "\n" + continued("s|brief|u|hi|a|") + "\n" + continued("u|hi|a|") + "\n");
}

TEST_F(Commands, ChatReportsUnknownCommandsAndLongInput) {
  write_text(folder() / "chat_template.jinja", kTemplate);
  recipe.max_new_tokens = 8;
  const Chat talk = chat("/claer\n" + std::string(300, '#') + "\n\nhi\n", true);
  EXPECT_EQ(talk.out, continued("u|hi|a|") + "\n");
  EXPECT_THAT(talk.remarks,
              testing::AllOf(HasSubstr("unknown command /claer"), HasSubstr("the model takes at most 128"),
                             HasSubstr("\n> "), HasSubstr("stopped at max_new_tokens")));
}

// Gemma 2's template refuses a system message.
TEST_F(Commands, AMessageThatTheTemplateRefusesDoesNotEndTheChat) {
  write_text(folder() / "chat_template.jinja",
             "{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}" +
                 std::string(kTemplate));
  recipe.max_new_tokens = 8;
  const Chat talk = chat("/system x\nhello\n/system\nhi\n");
  EXPECT_EQ(talk.out, continued("u|hi|a|") + "\n");
  EXPECT_THAT(talk.remarks, testing::AllOf(HasSubstr("no system role"), HasSubstr("/system to remove")));
  EXPECT_EQ(talk.code, 0);
}

// Raises a signal when the first text of line number `nth` is written.
class RaisingBuffer : public std::stringbuf {
 public:
  RaisingBuffer(int signal, int nth) : signal_(signal), nth_(nth) {}

 protected:
  std::streamsize xsputn(const char* text, std::streamsize size) override {
    if (lines_ == nth_ && !std::exchange(raised_, true)) std::raise(signal_);
    return std::stringbuf::xsputn(text, size);
  }
  int overflow(int c) override {
    if (c == '\n') ++lines_;
    return std::stringbuf::overflow(c);
  }

 private:
  int signal_, nth_, lines_ = 0;
  bool raised_ = false;
};

TEST_F(Commands, AnInterruptStopsTheReplyAndTheChatGoesOn) {
  write_text(folder() / "chat_template.jinja", kTemplate);
  recipe.max_new_tokens = 8;
  const std::string whole = continued("u|hello|a|");
  for (const int signal : {SIGINT, SIGTERM}) {
    RaisingBuffer buffer(signal, 0);
    std::ostream out(&buffer);
    std::ostringstream remarks;
    std::istringstream in("hello\n/clear\nhello\n");
    const int code = run_chat(Request(recipe, Command::kChat), in, false, out, remarks);
    const std::string text = buffer.str(), first = text.substr(0, text.find('\n'));
    EXPECT_TRUE(whole.starts_with(first) && first.size() < whole.size() && !first.empty()) << text;
    EXPECT_THAT(remarks.str(), HasSubstr("(stopped)"));
    EXPECT_EQ(text.substr(first.size() + 1), signal == SIGINT ? whole + "\n" : "");
    EXPECT_EQ(code, signal == SIGINT ? 0 : 128 + SIGTERM);
  }
}

}  // namespace
}  // namespace fettle
