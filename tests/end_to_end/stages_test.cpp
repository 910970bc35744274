// Tests every stage: it trains and is evaluated. The loss and the metrics of the training step equal those of an
// evaluation of the same rows and weights.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "run_fettle.h"
#include "stage_rows.h"

namespace fettle {
namespace {

using nlohmann::json;

class StageRuns : public testing::TestWithParam<const Stage*> {
 protected:
  // Returns the words of a run: one step over all eight rows, then an evaluation of the same rows.
  std::vector<std::string> words() const {
    const std::string rows = (folder_ / "rows.jsonl").string();
    write_text(rows, stage_rows(stage_, 8));
    return with(
        train_words(folder_ / "out"),
        {"stage=" + std::string(stage_.name), "dataset=" + rows, "eval_dataset=" + rows, "template=none",
         "cutoff_len=128", "per_device_train_batch_size=8", "max_steps=1", "eval_strategy=steps", "eval_steps=1"});
  }
  // Returns the first record of the log that has this metric.
  json logged(const std::string& figure) const {
    const json state = json::parse(read_text(folder_ / "out/trainer_state.json"));
    for (const json& record : state["log_history"])
      if (record.contains(figure)) return record;
    return {};
  }

  TempFolder folder_;
  const Stage& stage_ = *GetParam();
};

TEST_P(StageRuns, TheStepsLossIsThatOfAnEvaluation) {
  const Outcome run = run_fettle(folder_, with(words(), {"learning_rate=1e-30"}));
  ASSERT_EQ(run.code, 0) << run.err;
  const json step = logged("loss"), evaluation = logged("eval_loss");
  ASSERT_TRUE(step.is_object() && evaluation.is_object());
  EXPECT_GT(step["loss"], 0);
  EXPECT_GT(step["grad_norm"], 0) << "the loss has a gradient";
  EXPECT_NEAR(step["loss"].get<double>(), evaluation["eval_loss"].get<double>(), 1e-5);
  if (stage_.metrics == nullptr) return;
  int figures = 0;
  for (const auto& [name, value] : evaluation.items()) {
    const std::string own = name.substr(name.find('_') + 1);
    if (!name.starts_with("eval_") || own == "loss" || !step.contains(own)) continue;
    EXPECT_NEAR(step[own].get<double>(), value.get<double>(), 1e-4) << own;
    ++figures;
  }
  EXPECT_GT(figures, 0);
}

// The loss falls when the same rows are trained repeatedly.
TEST_P(StageRuns, Learns) {
  const Outcome run = run_fettle(folder_, with(words(), {"learning_rate=0.005", "max_steps=12", "eval_steps=12"}));
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_LT(logged("eval_loss")["eval_loss"].get<double>(), 0.95 * logged("loss")["loss"].get<double>());
}

// `eval` of the trained adapter gives the same figures as the last evaluation of the training run.
TEST_P(StageRuns, EvalFindsTheSameFigures) {
  ASSERT_EQ(run_fettle(folder_, with(words(), {"learning_rate=0.005", "max_steps=3", "eval_steps=3"})).code, 0);
  const json wanted = logged("eval_loss");
  std::vector<std::string> eval = with(words(), {"adapter_name_or_path=" + (folder_ / "out").string(),
                                                 "output_dir=" + (folder_ / "eval").string(), "--json"});
  eval[0] = "eval";
  const Outcome run = run_fettle(folder_, eval);
  ASSERT_EQ(run.code, 0) << run.err;
  const json found = json::parse(run.out);
  SCOPED_TRACE(found.dump(1));
  const json& figures = found["sets"][0][found["models"].contains("tuned") ? "tuned" : "model"];
  EXPECT_NEAR(figures["loss"].get<double>(), wanted["eval_loss"].get<double>(), 1e-5);
  for (const auto& [name, value] : figures.items()) {
    if (!name.starts_with("rewards/") || name == "rewards/accuracies") continue;
    EXPECT_NEAR(value.get<double>(), wanted["eval_" + name].get<double>(), 1e-5) << name;
  }
  EXPECT_EQ(figures.contains("rewards/chosen"), wanted.contains("eval_rewards/chosen"));
  for (const char* name : {"perplexity", "token_accuracy"})
    EXPECT_EQ(figures.contains(name), wanted.contains("eval_perplexity")) << name;
}

INSTANTIATE_TEST_SUITE_P(Stages, StageRuns, testing::ValuesIn(stages()),
                         [](const auto& info) { return std::string(info.param->name); });

}  // namespace
}  // namespace fettle
