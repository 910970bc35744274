// Tests that `fettle data` and `train` count the same steps and lay out batches in the same way, that `plan` compiles
// the same rows and length, and that `eval` lays out the same batches (for stages that train tokens).
#include <gtest/gtest.h>

#include "run_fettle.h"
#include "stage_rows.h"

namespace fettle {
namespace {

using nlohmann::json;

struct Case {
  std::string name;
  const Stage* stage;
  std::vector<std::string> words;
};

// Returns every stage on several devices, and other settings that change the layout of batches.
std::vector<Case> cases() {
  const Stage* sft = &stage_named("sft", "");
  std::vector<Case> out{{"AutoMesh", sft, {"mesh=auto", "device_count=2", "per_device_eval_batch_size=3"}},
                        {"Pipeline", sft, {"mesh={pp: 2}", "gradient_accumulation_steps=2"}},
                        {"SequenceAxis", sft, {"mesh={sp: 3}", "gradient_accumulation_steps=2"}},
                        {"SeveralDevices", sft, {"mesh={dp: 2, fsdp: 2}", "per_device_eval_batch_size=1"}},
                        {"Packed", sft, {"device_count=2", "packing=true"}},
                        {"RatedRepliesInParts", &stage_named("kto", ""), {"mesh={dp: 2, sp: 2}"}}};
  for (const Stage* stage : stages())
    out.push_back({"Stage_" + std::string(stage->name), stage, {"mesh={fsdp: 2}", "gradient_accumulation_steps=2"}});
  return out;
}

// Returns the text after `start` on the first line of `text` that contains it.
std::string after(const std::string& text, const std::string& start) {
  const size_t at = text.find(start);
  if (at == std::string::npos) return "no line has '" + start + "': " + text;
  const size_t first = at + start.size();
  return text.substr(first, text.find('\n', first) - first);
}

// Returns the reference model for `eval`. `eval` needs it if the stage has a reference model and there is no adapter.
std::vector<std::string> measure_words(const Stage& stage) {
  if (stage.compares == nullptr) return {};
  return {"ref_model=" + reference_model("llama").string()};
}

class SameSteps : public testing::TestWithParam<Case> {};

TEST_P(SameSteps, InAllCommands) {
  const TempFolder folder;
  const Stage& stage = *GetParam().stage;
  write_text(folder / "rows.jsonl", stage_rows(stage, 29));
  auto run = [&](const std::string& command, const std::vector<std::string>& more) {
    std::vector<std::string> words =
        with(train_words(folder / "out"),
             {"dataset=" + (folder / "rows.jsonl").string(), "template=none", "cutoff_len=128", "val_size=5",
              "num_train_epochs=1", "max_steps=-1", "stage=" + std::string(stage.name)});
    words[0] = command;
    const Outcome outcome = run_fettle(folder, with(with(words, GetParam().words), more));
    EXPECT_EQ(outcome.code, 0) << command << ": " << outcome.err;
    return outcome;
  };

  const std::string text = run("data", {}).out;
  Outcome outcome = run("data", {"--json"});
  ASSERT_EQ(outcome.code, 0);
  const json data = json::parse(outcome.out);
  outcome = run("plan", {"--json"});
  ASSERT_EQ(outcome.code, 0);
  const json plan = json::parse(outcome.out);
  const std::string train = run("train", {"plan_only=true"}).err;
  // An untrained classifier or reward model cannot be measured.
  const std::string eval = stage.head == Head::kTokens ? run("eval", measure_words(stage)).err : "";

  EXPECT_EQ(plan["step"]["rows"], data["batches"]["rows"]);
  EXPECT_EQ(plan["step"]["length"], data["batches"]["longest"]);
  EXPECT_EQ(after(train, "batches: "), after(text, "batches     "));
  EXPECT_EQ(after(train, "Total optimization steps = "), std::to_string(data["steps_per_epoch"].get<int64_t>()));
  if (!eval.empty()) {
    // With a pipeline, `train` and `eval` use other meshes for evaluation.
    const bool pipeline = data["assumed"]["mesh"].contains("pp");
    EXPECT_EQ(data.contains("eval_command_batches"), pipeline);
    EXPECT_EQ(after(eval, "evaluation: "), after(text, pipeline ? "with `fettle eval`: " : "to evaluate: "));
  }
  EXPECT_GT(data["eval_batches"]["steps"], 0);
}

INSTANTIATE_TEST_SUITE_P(Recipes, SameSteps, testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace fettle
