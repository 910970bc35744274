// Tests the messages of `fettle eval` for unusable rows and keys.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "correct/generate_models.h"
#include "eval/eval.h"
#include "temp_folder.h"

namespace fettle {
namespace {

using testing::HasSubstr;

class EvalErrors : public testing::Test {
 protected:
  EvalErrors() {
    recipe = reference_recipe("llama");
    recipe.stage = "pt";
    recipe.cutoff_len = 128;
    recipe.data_cache = "off";
  }
  std::string said_of(const std::string& row, const std::string& task = "auto",
                      const std::string& name = "rows.jsonl") {
    std::ofstream(temp / name) << row << "\n";
    recipe.eval_dataset = {(temp / name).string()};
    recipe.eval_task = {task};
    return user_error([&] {
      std::ostringstream out;
      run_eval(Request(recipe, Command::kEval), false, out);
    });
  }
  TempFolder temp;
  Recipe recipe;
};

TEST_F(EvalErrors, Rows) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"question": "q", "choices": ["x", "y"], "answer": 2})",
       "the answer '2' is not one of the choices; wanted a label (A to B), a number (0 to 1) or a choice's text"},
      {R"({"question": "q", "choices": ["x", "y"], "answer": "C"})", "the answer 'C' is not one"},
      {R"({"question": "q", "choices": ["x", "y"], "answer": "z"})", "or a choice's text"},
      {R"({"question": "q", "choices": ["x"], "answer": 0})", "found 1 choices, wanted two or more"},
      {R"({"question": "q", "choices": ["x", ""], "answer": 0})", "one of the choices is empty"},
      {R"({"question": "q", "choices": "x", "answer": 0})", "must be a list of texts"},
      {R"({"question": "q", "choices": {"text": ["x", "y"], "label": ["1"]}, "answer": "1"})",
       "2 choices but 1 labels"},
      {R"({"choices": ["x", "y"], "answer": 0})", "there is no question"},
      {R"({"question": "", "choices": ["x", "y"], "answer": 0})", "the question is empty"},
      {R"({"question": "q", "references": []})", "'references' is empty"},
  };
  for (const auto& [row, wanted] : cases) {
    const std::string said = said_of(row);
    EXPECT_THAT(said, HasSubstr(wanted)) << row;
    EXPECT_THAT(said, HasSubstr("rows.jsonl:1")) << row;
  }
  EXPECT_THAT(said_of(R"({"question": "q", "choices": ["x", "y"]})", "choice"), HasSubstr("there is no answer"));
  EXPECT_THAT(said_of(R"({"text": "q"})", "generation"), HasSubstr("no reply to compare with"));
  EXPECT_THAT(said_of("q?,1,2,3,4,B\nr?,1,2,3,4,E", "letters", "bare.csv"), HasSubstr("bare.csv:2: the answer 'E'"));
}

TEST_F(EvalErrors, BadRowsMayBeSkipped) {
  recipe.on_bad_row = "skip";
  EXPECT_THAT(said_of(R"({"question": "q", "choices": ["x", "y"], "answer": 2})"), HasSubstr("has no question"));
}

// The template writes the reference of a reply with a thought. This template leaves thoughts out.
TEST_F(EvalErrors, RepliesThatTheTemplateRefuses) {
  recipe.stage = "sft";
  recipe.template_name = "";
  const std::filesystem::path model = temp / "model";
  std::filesystem::copy(recipe.model_name_or_path, model, std::filesystem::copy_options::recursive);
  std::ofstream(model / "chat_template.jinja")
      << "{% for m in messages %}{{ m.role + m.content.split('</think>')[-1] + eos_token }}{% endfor %}";
  recipe.model_name_or_path = model.string();
  const std::string row =
      R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "<think>zzq</think>"}]})";
  EXPECT_THAT(said_of(row, "generation"), testing::AllOf(HasSubstr("rows.jsonl:1: "), HasSubstr("on_bad_row: skip")));
  recipe.on_bad_row = "skip";
  EXPECT_THAT(said_of(row, "generation"), HasSubstr("has no prompt"));
}

// Some templates refuse a system message. This is found before any device is opened.
TEST_F(EvalErrors, PromptsThatTheTemplateRefuses) {
  recipe.stage = "sft";
  recipe.template_name = "";
  recipe.plugin = "/nowhere/plugin.so";
  const std::filesystem::path model = temp / "model";
  std::filesystem::copy(recipe.model_name_or_path, model, std::filesystem::copy_options::recursive);
  std::ofstream(model / "chat_template.jinja")
      << "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
         "{{ m.role + m.content + eos_token }}{% endfor %}";
  recipe.model_name_or_path = model.string();
  const std::string row = R"({"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "q"}, )"
                          R"({"role": "assistant", "content": "a"}]})";
  EXPECT_THAT(said_of(row, "generation"),
              testing::AllOf(HasSubstr("rows.jsonl:1: "), HasSubstr("no system role"), HasSubstr("on_bad_row: skip")));
  recipe.on_bad_row = "skip";
  EXPECT_THAT(said_of(row, "generation"), HasSubstr("has no prompt"));
}

TEST_F(EvalErrors, TooLong) {
  recipe.cutoff_len = 4;
  EXPECT_THAT(said_of(R"({"question": "q", "choices": ["x", "a rather long choice of words"], "answer": 1})"),
              testing::AllOf(HasSubstr("choice 2 has"), HasSubstr("cutoff_len is 4")));
}

TEST_F(EvalErrors, Keys) {
  std::ofstream(temp / "a.jsonl") << R"({"text": "words"})"
                                  << "\n";
  auto said = [&] {
    return user_error([&] {
      std::ostringstream out;
      run_eval(Request(recipe, Command::kEval), false, out);
    });
  };
  EXPECT_THAT(said(), HasSubstr("neither eval_dataset nor dataset"));
  recipe.dataset = {(temp / "a.jsonl").string()};
  recipe.eval_task = {"generation"};
  EXPECT_THAT(said(), HasSubstr("eval_task: generation needs eval_dataset"));
  recipe.eval_dataset = {(temp / "a.jsonl").string()};
  recipe.eval_task = {"loss", "choice"};
  EXPECT_THAT(said(), HasSubstr("2 tasks for 1 data sets"));
  recipe.eval_task = {"auto"};
  recipe.eval_base_model = recipe.model_name_or_path;
  EXPECT_THAT(said(), HasSubstr("there is nothing to compare"));
}

TEST_F(EvalErrors, AnUnwritableFolderIsFoundBeforeTheDevicesAreOpened) {
  std::ofstream(temp / "file") << "x";
  recipe.plugin = "/nowhere/plugin.so";
  recipe.output_dir = (temp / "file" / "out").string();
  EXPECT_THAT(said_of(R"({"text": "words"})"), testing::AllOf(HasSubstr("cannot create"), HasSubstr("file/out")));
}

TEST_F(EvalErrors, FiguresOfBrokenWeightsAreAnError) {
  const std::filesystem::path model = temp / "model";
  std::filesystem::copy(recipe.model_name_or_path, model);
  std::fstream weights(model / "model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
  weights.seekp(-4096, std::ios::end);
  weights << std::string(4096, '\xff');  // NaN
  weights.close();
  recipe.model_name_or_path = model.string();
  for (const char* row : {R"({"text": "a few words"})", R"({"question": "q", "choices": ["x", "y"], "answer": 1})"})
    EXPECT_THAT(said_of(row),
                testing::AllOf(HasSubstr("rows.jsonl"), HasSubstr("not finite"), HasSubstr("weights are broken")));
}

TEST_F(EvalErrors, RowsOfTwoStagesNeedTwoCalls) {
  recipe.stage = "dpo";
  std::ofstream(temp / "pairs.jsonl") << R"({"prompt": "a", "chosen": "b", "rejected": "c"})";
  std::ofstream(temp / "gen.jsonl") << R"({"question": "q", "references": ["r"]})";
  const std::string pairs = (temp / "pairs.jsonl").string(), gen = (temp / "gen.jsonl").string();
  for (const std::vector<std::string>& sets : {std::vector{pairs, gen}, std::vector{gen, pairs}}) {
    recipe.eval_dataset = sets;
    EXPECT_THAT(user_error([&] {
                  std::ostringstream out;
                  run_eval(Request(recipe, Command::kEval), false, out);
                }),
                testing::AllOf(HasSubstr("stage dpo measures " + pairs + ", but not " + gen), HasSubstr("two calls")));
  }
}

}  // namespace
}  // namespace fettle
