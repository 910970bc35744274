// Tests `fettle eval` on a reference model. Its metrics are compared with those computed from PyTorch's
// log-probabilities (tests/reference/choices.py), and with known values for given texts.
#include "correct/eval_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>

#include "base/log.h"
#include "eval/measure.h"
#include "step/evaluate.h"

namespace fettle {
namespace {

using Json = nlohmann::ordered_json;
using testing::HasSubstr;

TEST_F(EvalCommand, ChoicesByLikelihoodAsRecorded) {
  recipe.eval_dataset = {choices_file()};
  tune();
  const Json out = json();
  const Json& set = out["sets"][0];
  EXPECT_EQ(set["task"], "choice");
  EXPECT_EQ(set["items"], 40);
  for (const char* model : {"base", "tuned"})
    for (const char* figure : {"accuracy", "accuracy_norm"})
      EXPECT_DOUBLE_EQ(set[model][figure], recorded[model][figure]) << model << ' ' << figure;
}

TEST_F(EvalCommand, LogProbabilitiesOfChoicesAsRecorded) {
  for (const char* name : {"base", "tuned"}) {
    if (std::string(name) == "tuned") tune();
    Loaded model(recipe);
    const Session session(Request(recipe, Command::kGenerate), Session::Template::kIfThere);
    std::vector<Example> examples;
    std::vector<double> wanted;
    for (const Json& row : recorded["rows"]) {
      const Question question{row["question"], row["choices"], row["answer"], "row"};
      std::ranges::move(choice_examples(question, Task::kChoice, session, 128), std::back_inserter(examples));
      for (size_t i = 0; i < question.choices.size(); ++i) wanted.push_back(row[name][i]);
    }
    const std::vector<double> losses = Evaluator(model.devices, model.run, examples).losses(model.state);
    ASSERT_EQ(losses.size(), wanted.size());
    for (size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(-losses[i], wanted[i], 1e-3) << name << ' ' << i;
  }
}

TEST_F(EvalCommand, AnswersAreNumbersLettersLabelsOrTexts) {
  recipe.eval_dataset = {file("q.jsonl", R"({"question": "q", "choices": ["x", "y"], "answer": 1}
{"query": "q", "options": ["x", "y"], "gold": "B"}
{"question": "q", "choices": {"text": ["x", "y"], "label": ["1", "2"]}, "answerKey": "2"}
{"prompt": "q", "choices": ["x", "y"], "target": "y"}
)")};
  const std::vector<Question> questions = read_questions(DataSpec{}, find_source(recipe.eval_dataset[0], "data"));
  ASSERT_EQ(questions.size(), 4u);
  for (const Question& question : questions) EXPECT_EQ(question.answer, 1u) << question.where;
}

TEST_F(EvalCommand, MmluFilesHaveLettersAndMayLackAHead) {
  const std::string row = "\"Which, of these?\",one,two,three,four,C\n";
  recipe.eval_dataset = {file("headed.csv", "question,A,B,C,D,answer\n" + row),
                         file("bare.csv", "first?,1,2,3,4,B\n" + row)};
  const DataSource headed = find_source(recipe.eval_dataset[0], "data"),
                   bare = find_source(recipe.eval_dataset[1], "data");
  EXPECT_EQ(detect_task(headed), Task::kLetters);
  EXPECT_EQ(detect_task(bare), Task::kLetters);
  const std::vector<Question> one = read_questions(DataSpec{}, headed), two = read_questions(DataSpec{}, bare);
  ASSERT_EQ(one.size(), 1u);
  ASSERT_EQ(two.size(), 2u);
  EXPECT_EQ(two[0].text, "first?");
  EXPECT_EQ(two[0].answer, 1u);
  for (const Question& question : {one[0], two[1]}) {
    EXPECT_EQ(question.text, "Which, of these?");
    EXPECT_THAT(question.choices, testing::ElementsAre("one", "two", "three", "four"));
    EXPECT_EQ(question.answer, 2u);
  }
  const Session session(Request(recipe, Command::kGenerate), Session::Template::kIfThere);
  const std::vector<Example> examples = choice_examples(one[0], Task::kLetters, session, 128);
  ASSERT_EQ(examples.size(), 4u);
  const Example& example = examples[2];
  std::vector<int32_t> trained;
  for (int32_t label : example.labels)
    if (label != kIgnore) trained.push_back(label);
  EXPECT_EQ(session.tokenizer().decode(trained, true), " C");
  EXPECT_EQ(session.tokenizer().decode(example.input_ids, true),
            "Which, of these?\nA. one\nB. two\nC. three\nD. four\nAnswer: C");
}

// Returns a row with the prompt and one more token, which alone is trained.
Example with_next(std::vector<int32_t> prompt, int32_t next) {
  prompt.push_back(next);
  Example out{.input_ids = prompt, .labels = std::vector<int32_t>(prompt.size(), kIgnore)};
  out.labels.back() = next;
  return out;
}

// The logits of a question's letters differ from their log-probabilities by the same number.
TEST_F(EvalCommand, LogitsOfLettersDifferAsTheirLogProbabilities) {
  const std::vector<std::vector<int32_t>> prompts{{5, 9, 30, 11, 7}, {14, 3}, {8, 21, 40, 17, 12, 33, 6, 19}};
  const std::vector<int32_t> letters{35, 10, 25, 18};
  // Gemma 2 caps its logits, Phi's head has a bias, Granite divides its logits, Baichuan normalises its head.
  for (const std::string model : {"llama", "gemma2", "phi", "granite", "baichuan7b"}) {
    SCOPED_TRACE(model);
    Recipe of_model = reference_recipe(model);
    of_model.stage = "pt";
    if (model == "llama") of_model.mesh = {{"fsdp", 2}, {"sp", 2}, {"tp", 2}};
    Loaded loaded(of_model);
    std::vector<std::vector<Example>> by_question;
    std::vector<Example> all, first;
    for (const std::vector<int32_t>& prompt : prompts) {
      by_question.emplace_back();
      for (const int32_t letter : letters) by_question.back().push_back(with_next(prompt, letter));
      all.insert(all.end(), by_question.back().begin(), by_question.back().end());
      first.push_back(by_question.back()[0]);
    }
    ASSERT_EQ(letter_tokens(by_question), letters);
    const std::vector<double> losses = Evaluator(loaded.devices, loaded.run, all).losses(loaded.state);
    const std::vector<float> logits = Evaluator(loaded.devices, loaded.run, first, letters).logits(loaded.state);
    ASSERT_EQ(logits.size(), losses.size());
    for (size_t i = 0; i < logits.size(); ++i) {
      const size_t question = i / letters.size() * letters.size();
      EXPECT_NEAR(logits[i] - logits[question], losses[question] - losses[i], 1e-5) << i;
      if (i > question) {
        EXPECT_NE(logits[i], logits[question]);
      }
    }
  }
}

TEST_F(EvalCommand, TokensOfLetters) {
  const Example first = with_next({1, 2}, 7), second = with_next({1, 2}, 8);
  EXPECT_THAT(letter_tokens({{first, second}, {with_next({5}, 7)}}), testing::ElementsAre(7, 8));
  EXPECT_THAT(letter_tokens({{first, with_next({1, 3}, 8)}}), testing::IsEmpty());         // other prompts
  EXPECT_THAT(letter_tokens({{first, with_next({2}, 8)}}), testing::IsEmpty());            // other lengths
  EXPECT_THAT(letter_tokens({{first, second}, {with_next({5}, 8)}}), testing::IsEmpty());  // other letters
}

// The accuracy is that of the letters' log-probabilities. The questions have 2, 3 and 4 letters.
TEST_F(EvalCommand, LettersGiveTheAnswer) {
  std::vector<Question> questions;
  for (const Json& row : recorded["rows"]) {
    std::vector<std::string> choices = row["choices"];
    choices.resize(2 + questions.size() % 3, "none of these");
    questions.push_back({row["question"], choices, 1, "row"});
    if (questions.size() == 12) break;
  }
  for (const std::string stage : {"pt", "sft"}) {
    SCOPED_TRACE(stage);
    recipe.stage = stage;
    if (stage == "sft") recipe.template_name = "vicuna";
    std::string lines;
    size_t right = 0;
    {
      Loaded model(recipe);
      const Session session(Request(recipe, Command::kGenerate), Session::Template::kIfThere);
      for (size_t q = 0; q < questions.size(); ++q) {
        Question& question = questions[q];
        const std::vector<Example> letters = choice_examples(question, Task::kLetters, session, recipe.cutoff_len);
        ASSERT_EQ(letter_tokens({letters}).size(), question.choices.size());
        const std::vector<double> losses = Evaluator(model.devices, model.run, letters).losses(model.state);
        const auto best = static_cast<size_t>(std::ranges::min_element(losses) - losses.begin());
        question.answer = q % 2 == 0 ? best : (best + 1) % question.choices.size();
        right += best == question.answer ? 1 : 0;
        lines += Json{{"question", question.text}, {"choices", question.choices}, {"answer", question.answer}}.dump();
        lines += "\n";
      }
    }
    ASSERT_EQ(right, 6u);
    recipe.eval_dataset = {file(stage + ".jsonl", lines)};
    recipe.eval_task = {"letters"};
    const Json set = json()["sets"][0];
    EXPECT_EQ(set["task"], "letters");
    EXPECT_DOUBLE_EQ(set["model"]["accuracy"], 50);
  }
}

TEST_F(EvalCommand, RepliesBesideReferences) {
  const Json greedy = reference_of("llama")["greedy"];
  std::string lines;
  for (const Json& prompt : greedy)
    lines += Json{{"question", prompt["text"]}, {"references", {"other", prompt["base"]["text"]}}}.dump() + "\n";
  recipe.eval_dataset = {file("replies.jsonl", lines)};
  recipe.max_new_tokens = 24;
  recipe.output_dir = (temp / "out").string();
  tune();
  const Json out = json();
  const Json& set = out["sets"][0];
  EXPECT_EQ(set["task"], "generation");
  for (const char* figure : {"exact_match", "bleu"}) EXPECT_NEAR(set["base"][figure], 100.0, 1e-9) << figure;
  if (greedy[0]["base"]["text"] != greedy[0]["tuned"]["text"]) {
    EXPECT_LT(set["tuned"]["exact_match"], 100.0);
  }
  EXPECT_EQ(Json::parse(std::ifstream(temp / "out/evaluation.json")), out);
  std::ifstream in(temp / "out/generated_predictions.jsonl");
  std::string line;
  std::getline(in, line);
  const Json first = Json::parse(line);
  EXPECT_EQ(first["predict"], greedy[0]["tuned"]["text"]);
  EXPECT_EQ(first["base"], greedy[0]["base"]["text"]);
  EXPECT_EQ(first["prompt"], greedy[0]["text"]);
}

TEST_F(EvalCommand, ReferencesStandInColumnsOrInTheLastReply) {
  recipe.eval_dataset = {file("p.jsonl", R"({"question": "q", "reference": "r"}
{"question": "q", "references": ["r", "s"]}
{"question": "q", "answer": "r"}
{"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "r"}]}
{"instruction": "q", "output": "r"}
)")};
  const std::vector<Prompt> prompts = read_prompts(DataSpec{}, find_source(recipe.eval_dataset[0], "data"));
  ASSERT_EQ(prompts.size(), 5u);
  for (const Prompt& prompt : prompts) {
    ASSERT_EQ(prompt.conversation.messages.size(), 1u) << prompt.where;
    EXPECT_EQ(prompt.conversation.messages[0].content, "q") << prompt.where;
    EXPECT_EQ(prompt.references[0], "r") << prompt.where;
  }
}

TEST_F(EvalCommand, RowsAreChosenAsInTraining) {
  std::string rows;
  for (int i = 0; i < 10; ++i)
    rows += fmt::format(R"({{"question": "{}", "reference": "r", "choices": ["a", "b"], "answer": 0}})", i) + "\n";
  file("rows.jsonl", rows);
  const auto chosen = [&](const std::string& entry) {
    file("dataset_info.json", R"({"mine": {"file_name": "rows.jsonl", )" + entry + "}}");
    const DataSource source = find_source("mine", temp.path());
    std::string prompts, questions;
    for (const Prompt& prompt : read_prompts(DataSpec{}, source)) prompts += prompt.conversation.messages[0].content;
    for (const Question& question : read_questions(DataSpec{}, source)) questions += question.text;
    EXPECT_EQ(prompts, questions);
    return prompts;
  };
  EXPECT_EQ(chosen(R"("split": "train[:20%]")"), "01");
  EXPECT_EQ(chosen(R"("split": "train[:3]")"), "012");
  EXPECT_EQ(chosen(R"("num_samples": 3)").size(), 3u);
  EXPECT_THAT(chosen(R"("num_samples": 12)"), testing::StartsWith("0123456789"));
}

// The template decides how calls of tools and thoughts are written, so the reference is the text that is trained.
TEST_F(EvalCommand, AReferenceWithCallsOrThoughtsIsTheTrainedText) {
  recipe.stage = "sft";
  const std::filesystem::path model = temp / "model";
  std::filesystem::copy(recipe.model_name_or_path, model, std::filesystem::copy_options::recursive);
  std::ofstream(model / "chat_template.jinja")
      << "{% for m in messages %}{% if m.role == 'assistant' %}{{ m.reasoning_content ~ ': ' if m.reasoning_content }}"
         "{{ m.content }}{% for c in m.tool_calls %}call {{ c.function.name }}{% endfor %}{{ eos_token }}"
         "{% else %}ask {{ m.content }}\n{% endif %}{% endfor %}";
  recipe.model_name_or_path = model.string();
  const Session session(Request(recipe, Command::kEval), Session::Template::kIfThere);
  const Message question{.role = "user", .content = "q"};
  EXPECT_EQ(session.reply_text({{question}},
                               {.role = "assistant", .content = "r", .extra_json = R"({"reasoning_content": "t"})"}),
            "t: r");
  recipe.eval_dataset = {
      file("p.jsonl", R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": null, )"
                      R"("tool_calls": [{"type": "function", "function": {"name": "f", "arguments": {}}}]}]})"
                      "\n")};
  const Prompt prompt = read_prompts(DataSpec{}, find_source(recipe.eval_dataset[0], "data")).at(0);
  ASSERT_TRUE(prompt.reply);
  EXPECT_EQ(session.reply_text(prompt.conversation, *prompt.reply), "call f");
}

TEST_F(EvalCommand, OtherFieldsOfALastReplyDoNotChangeTheReference) {
  const std::string rows =
      file("p.jsonl", R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "r", )"
                      R"("name": "n", "tool_calls": [], "reasoning": " "}]})"
                      "\n"
                      R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": )"
                      R"("<think>t</think>r"}]})"
                      "\n");
  const std::vector<Prompt> prompts = read_prompts(DataSpec{}, find_source(rows, "data"));
  ASSERT_EQ(prompts.size(), 2u);
  EXPECT_FALSE(prompts[0].reply);
  EXPECT_EQ(prompts[0].references[0], "r");
  EXPECT_TRUE(prompts[1].reply) << "the template decides how a thought is written";
}

TEST_F(EvalCommand, MessagesMayBeJsonText) {
  const std::string rows = file("p.csv",
                                "messages\n"
                                R"("[{""role"": ""user"", ""content"": ""q""}, {""role"": ""assistant"", )"
                                R"(""content"": ""r""}]")"
                                "\n");
  const Prompt prompt = read_prompts(DataSpec{}, find_source(rows, "data")).at(0);
  EXPECT_EQ(prompt.conversation.messages.at(0).content, "q");
  EXPECT_EQ(prompt.references.at(0), "r");
}

TEST_F(EvalCommand, ARowsVariablesOfItsTemplateAreKept) {
  const std::string rows =
      file("p.jsonl", R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": )"
                      R"("r"}], "chat_template_kwargs": {"style": "short"}})"
                      "\n");
  const Prompt prompt = read_prompts(DataSpec{}, find_source(rows, "data")).at(0);
  EXPECT_EQ(prompt.conversation.variables_json, R"({"style":"short"})");
}

// The rows of prompts get the model's name and author as the rows of training do.
TEST_F(EvalCommand, PromptsNameTheModelAndItsAuthor) {
  const std::string rows =
      file("p.jsonl", R"({"messages": [{"role": "user", "content": "Who is {{NAME}}?"}, {"role": "assistant", )"
                      R"("content": "I am {{NAME}} of {{AUTHOR}}."}]})"
                      "\n");
  const DataSpec data{.self_name = {"Bot"}, .self_author = {"Acme, Inc."}};
  const Prompt prompt = read_prompts(data, find_source(rows, "data")).at(0);
  EXPECT_EQ(prompt.conversation.messages.at(0).content, "Who is Bot?");
  EXPECT_EQ(prompt.references.at(0), "I am Bot of Acme, Inc..");
}

// Rows of Axolotl's `type: alpaca` have plain text as prompts.
TEST_F(EvalCommand, RepliesToPromptsAsPlainText) {
  const Json greedy = reference_of("llama")["greedy"];
  std::string lines;
  for (const Json& prompt : greedy)
    lines += Json{{"instruction", prompt["text"]}, {"output", prompt["base"]["text"]}}.dump() + "\n";
  recipe.eval_dataset = {Json{{"file_name", file("prompted.jsonl", lines)},
                              {"formatting", "alpaca_prompt"},
                              {"prompt", {{"no_input_format", "{instruction}"}}}}
                             .dump()};
  recipe.eval_task = {"generation"};
  recipe.max_new_tokens = 24;
  recipe.output_dir = (temp / "out").string();
  EXPECT_NEAR(json()["sets"][0]["model"]["exact_match"], 100.0, 1e-9);
  std::ifstream in(temp / "out/generated_predictions.jsonl");
  std::string line;
  std::getline(in, line);
  EXPECT_EQ(Json::parse(line)["prompt"], greedy[0]["text"]);
}

TEST_F(EvalCommand, SeveralSetsBesideTheBaseShowWhatIsLost) {
  recipe.eval_dataset = {choices_file(), file("rows.jsonl", R"({"text": "some words of another kind"})")};
  recipe.eval_task = {"choice", "auto"};
  tune();
  const std::string table = text();
  EXPECT_THAT(table, HasSubstr("accuracy_norm"));
  EXPECT_THAT(table, HasSubstr("perplexity"));
  EXPECT_THAT(table, HasSubstr("change"));
  EXPECT_TRUE(table.find("better") != std::string::npos || table.find("worse") != std::string::npos) << table;
  const Json out = json();
  const Json& loss = out["sets"][1];
  EXPECT_EQ(loss["task"], "loss");
  EXPECT_NEAR(loss["change"]["loss"], loss["tuned"]["loss"].get<double>() - loss["base"]["loss"].get<double>(), 1e-12);
  EXPECT_NEAR(loss["base"]["perplexity"], std::exp(loss["base"]["loss"].get<double>()), 1e-6);
  // A merged model is compared with the folder of the base from which it was made.
  recipe.adapter_name_or_path.clear();
  recipe.eval_base_model = recipe.model_name_or_path;
  recipe.model_name_or_path = (temp / "copy").string();
  std::filesystem::copy(recipe.eval_base_model, temp / "copy");
  const Json same = json();
  EXPECT_EQ(same["sets"][0]["change"]["accuracy"], 0);
  EXPECT_EQ(same["sets"][1]["base"]["loss"], loss["base"]["loss"]);
}

// The base is measured with the weights of the tuned model if its adapter can be switched off, otherwise with its own.
TEST_F(EvalCommand, TheBaseBesideAnAdapterHasTheFiguresOfTheBaseAlone) {
  struct Case {
    const char* model;
    const char* adapter;
    int loads;
    bool bf16 = false;
    int64_t bits = 0;
  };
  for (const Case& one : {Case{"llama", "adapter_final", 1, true}, Case{"llama", "adapter_final", 1, false, 4},
                          Case{"granite4", "variants/experts_final", 1}, Case{"llama", "variants/saved", 2},
                          Case{"llama", "variants/dora", 2}}) {
    SCOPED_TRACE(fmt::format("{} {} bf16={} bits={}", one.model, one.adapter, one.bf16, one.bits));
    recipe.model_name_or_path = (kReferenceModels / one.model).string();
    recipe.bf16 = one.bf16;
    recipe.quantization_bit = one.bits;
    recipe.eval_dataset = {file("rows.jsonl", R"({"text": "some words of another kind"})")};
    recipe.adapter_name_or_path.clear();
    const Json alone = json()["sets"][0]["model"];
    recipe.adapter_name_or_path = {(kReferenceModels / one.model / one.adapter).string()};
    set_log_level(LogLevel::kDebug);
    testing::internal::CaptureStderr();
    const Json both = json()["sets"][0];
    const std::string said = testing::internal::GetCapturedStderr();
    set_log_level(LogLevel::kInfo);
    EXPECT_EQ(both["base"], alone);
    int loads = 0;
    for (size_t at = 0; (at = said.find("loaded the weights", at)) != std::string::npos; ++at) ++loads;
    EXPECT_EQ(loads, one.loads) << said;
  }
}

TEST_F(EvalCommand, WithoutABaseThereIsOneColumn) {
  recipe.dataset = {file("rows.jsonl", R"({"text": "some words of another kind"})")};
  EXPECT_THAT(text(), testing::AllOf(HasSubstr("model"), testing::Not(HasSubstr("change"))));
}

TEST_F(EvalCommand, EightDevicesAsOne) {
  recipe.eval_dataset = {choices_file()};
  const Json one = json();
  recipe.mesh = {{"fsdp", 4}, {"tp", 2}};
  recipe.device_count = 8;
  EXPECT_EQ(json()["sets"], one["sets"]);
}

}  // namespace
}  // namespace fettle
