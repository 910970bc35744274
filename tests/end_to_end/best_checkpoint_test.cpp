// Tests runs that keep the best evaluation's weights instead of the last step's, and runs that stop when they no longer
// improve.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "environment.h"
#include "run_fettle.h"

namespace fettle {
namespace {

using nlohmann::json;
using testing::HasSubstr;

// In this run, the evaluation loss rises after a few steps, because the held-out rows differ from the trained rows.
class BestCheckpoint : public testing::Test {
 protected:
  std::vector<std::string> words(const std::vector<std::string>& more) const {
    std::string rows, others;
    for (int i = 0; i < 12; ++i) rows += json{{"prompt", "ab"}, {"completion", "c" + std::to_string(i)}}.dump() + "\n";
    for (int i = 0; i < 3; ++i) others += json{{"prompt", "xy"}, {"completion", "zz q"}}.dump() + "\n";
    write_text(folder_ / "rows.jsonl", rows);
    write_text(folder_ / "held_out.jsonl", others);
    return with(with(train_words(folder_ / "out"),
                     {"dataset=" + (folder_ / "rows.jsonl").string(), "template=none", "learning_rate=0.02",
                      "eval_dataset=" + (folder_ / "held_out.jsonl").string(), "eval_strategy=steps", "eval_steps=2",
                      "save_strategy=steps", "save_steps=2", "max_steps=12"}),
                more);
  }
  json state() const { return json::parse(read_text(folder_ / "out/trainer_state.json")); }
  std::string weights(const std::string& name = "") const {
    return read_text(folder_ / "out" / name / "adapter_model.safetensors");
  }
  // Returns the step of the smallest evaluation loss in the log.
  int64_t best_step() const {
    int64_t step = 0;
    double least = INFINITY;
    const json log = state()["log_history"];
    for (const json& record : log)
      if (record.contains("eval_loss") && record["eval_loss"] < least)
        least = record["eval_loss"], step = record["step"];
    return step;
  }

  TempFolder folder_;
};

TEST_F(BestCheckpoint, IsTheResult) {
  const Outcome run = run_fettle(folder_, words({"load_best_model_at_end=true", "save_total_limit=2"}));
  ASSERT_EQ(run.code, 0) << run.err;
  const std::string name = "checkpoint-" + std::to_string(best_step());
  ASSERT_LT(best_step(), 12) << "the best evaluation is not the last one";
  EXPECT_EQ(weights(), weights(name));
  EXPECT_NE(weights(), weights("checkpoint-12"));
  EXPECT_EQ(state()["best_global_step"], best_step());
  EXPECT_EQ(std::filesystem::path(state()["best_model_checkpoint"]).filename(), name);
}

// Checkpoints then have no optimizer state, so no run can resume from them.
TEST_F(BestCheckpoint, IsTheResultWithoutOptimizerState) {
  for (const std::vector<std::string>& more : {std::vector<std::string>{}, {"pissa_init=true", "lora_dropout=0"}}) {
    const auto keys = words(with(more, {"load_best_model_at_end=true", "overwrite_output_dir=true"}));
    ASSERT_EQ(run_fettle(folder_, keys).code, 0);
    const std::string wanted = weights(), name = "checkpoint-" + std::to_string(best_step());
    ASSERT_LT(best_step(), 12);
    const Outcome run = run_fettle(folder_, with(keys, {"save_only_model=true", "save_total_limit=2"}));
    ASSERT_EQ(run.code, 0) << run.err;
    EXPECT_EQ(weights(), wanted);
    EXPECT_EQ(weights(), weights(name));
    EXPECT_TRUE(std::filesystem::exists(folder_ / "out" / name / "weights/manifest.json"));
    EXPECT_FALSE(std::filesystem::exists(folder_ / "out" / name / "state"));
    const Outcome again = run_fettle(folder_, words(with(more, {"resume_from_checkpoint=true"})));
    EXPECT_EQ(again.code, 2);
    EXPECT_THAT(again.err, HasSubstr("save_only_model"));
  }
}

// The figures of the result belong to its weights, not to those of the last step.
TEST_F(BestCheckpoint, HasItsOwnFigures) {
  const Outcome run = run_fettle(folder_, words({"load_best_model_at_end=true"}));
  ASSERT_EQ(run.code, 0) << run.err;
  const json figures = json::parse(read_text(folder_ / "out/eval_results.json"));
  ASSERT_LT(best_step(), 12);
  EXPECT_NEAR(figures["eval_loss"].get<double>(), state()["best_metric"].get<double>(), 1e-6);
}

// output_dir may be spelt in another way when a run is resumed. Resuming into another folder finds the best checkpoint
// in the earlier folder.
TEST_F(BestCheckpoint, IsKeptAndFoundUnderAnotherSpelling) {
  const std::vector<std::string> keys{"load_best_model_at_end=true", "save_total_limit=1", "eval_steps=1",
                                      "save_steps=1"};
  ASSERT_EQ(run_fettle(folder_, words(with(keys, {"max_steps=8"}))).code, 0);
  const std::string best = "checkpoint-" + std::to_string(best_step());
  ASSERT_LT(best_step(), 8);
  const std::string spelt = "output_dir=" + (folder_ / "." / "out").string();
  const Outcome run = run_fettle(folder_, words(with(keys, {"resume_from_checkpoint=true", spelt})));
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(weights(), weights(best));

  const std::string moved = "output_dir=" + (folder_ / "moved").string();
  const Outcome elsewhere = run_fettle(
      folder_,
      words(with(keys, {"resume_from_checkpoint=" + (folder_ / "out/checkpoint-12").string(), moved, "max_steps=13"})));
  ASSERT_EQ(elsewhere.code, 0) << elsewhere.err;
  EXPECT_EQ(read_text(folder_ / "moved/adapter_model.safetensors"), weights(best));
  // The checkpoint from which the run continues is the best one so far.
  const std::string again = "output_dir=" + (folder_ / "again").string();
  const Outcome from_best =
      run_fettle(folder_, words(with(keys, {"resume_from_checkpoint=" + (folder_ / "out" / best).string(), again})));
  ASSERT_EQ(from_best.code, 0) << from_best.err;
  EXPECT_EQ(read_text(folder_ / "again/adapter_model.safetensors"), weights(best));
  std::filesystem::remove_all(folder_ / "out" / best);
  const Outcome missing = run_fettle(folder_, words(with(keys, {"resume_from_checkpoint=true", "max_steps=14"})));
  EXPECT_EQ(missing.code, 2);
  EXPECT_THAT(missing.err, HasSubstr("the best checkpoint so far is missing"));
}

// Step 3 has the best evaluation but no checkpoint. Of the steps with a checkpoint, the best one counts.
TEST_F(BestCheckpoint, IsTheBestOfThoseThatWereSaved) {
  const Outcome run = run_fettle(folder_, words({"load_best_model_at_end=true", "eval_steps=1", "save_steps=4"}));
  ASSERT_EQ(run.code, 0) << run.err;
  ASSERT_NE(best_step() % 4, 0) << "the best evaluation has no checkpoint";
  int64_t best = 0;
  double least = INFINITY;
  const json log = state()["log_history"];
  for (const json& record : log)
    if (record.contains("eval_loss") && record["step"].get<int64_t>() % 4 == 0 && record["eval_loss"] < least)
      least = record["eval_loss"], best = record["step"];
  EXPECT_EQ(weights(), weights("checkpoint-" + std::to_string(best)));
}

TEST_F(BestCheckpoint, EndsTheRunEarlyAndAResumedRunEndsTheSame) {
  const std::vector<std::string> keys{"early_stopping_patience=2", "load_best_model_at_end=true"};
  const Outcome whole = run_fettle(folder_, words(keys));
  ASSERT_EQ(whole.code, 0) << whole.err;
  const int64_t last = state()["global_step"];
  EXPECT_EQ(last, best_step() + 4) << "two evaluations after the best one";
  EXPECT_THAT(whole.err, HasSubstr("stopped at step " + std::to_string(last) + ": eval_loss was not better than"));
  const std::string result = weights();
  std::filesystem::remove_all(folder_ / "out" / ("checkpoint-" + std::to_string(last)));
  const Outcome resumed = run_fettle(folder_, words(with(keys, {"resume_from_checkpoint=true"})));
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_EQ(state()["global_step"], last);
  EXPECT_EQ(weights(), result);
}

TEST_F(BestCheckpoint, AnEarlyEndSavesItsStep) {
  const auto keys = words({"early_stopping_patience=2", "eval_steps=1", "save_steps=50"});
  const Outcome run = run_fettle(folder_, keys);
  ASSERT_EQ(run.code, 0) << run.err;
  const int64_t last = state()["global_step"];
  ASSERT_LT(last, 12);
  EXPECT_EQ(weights("checkpoint-" + std::to_string(last)), weights());
  const Outcome again = run_fettle(folder_, with(keys, {"resume_from_checkpoint=true"}));
  EXPECT_EQ(again.code, 0);
  EXPECT_THAT(again.err, HasSubstr("nothing to do; raise early_stopping_patience to continue"));
}

// The newest checkpoint of such a run is seldom its last step. A chain of jobs must not train the rest again.
TEST_F(BestCheckpoint, AFinishedRunIsNotTrainedAgainFromIt) {
  for (const std::vector<std::string>& more : {std::vector<std::string>{}, {"early_stopping_patience=2"}}) {
    const std::vector<std::string> keys =
        words(with(more, {"save_strategy=best", "load_best_model_at_end=true", "resume_from_checkpoint=true"}));
    std::filesystem::remove_all(folder_ / "out");
    ASSERT_EQ(run_fettle(folder_, keys).code, 0);
    const json before = state();
    ASSERT_LT(best_step(), before["global_step"]);
    const std::string log = read_text(folder_ / "out/trainer_log.jsonl");
    const Outcome again = run_fettle(folder_, keys);
    EXPECT_EQ(again.code, 0) << again.err;
    EXPECT_THAT(again.err, HasSubstr("the run has ended at step " + before["global_step"].dump()));
    EXPECT_EQ(state(), before);
    EXPECT_EQ(read_text(folder_ / "out/trainer_log.jsonl"), log);
    EXPECT_EQ(json::parse(read_text(folder_ / "out/fettle_run.json"))["state"], "finished");
    if (!more.empty()) continue;
    const Outcome further = run_fettle(folder_, with(keys, {"max_steps=14"}));
    EXPECT_EQ(further.code, 0) << further.err;
    EXPECT_EQ(state()["global_step"], 14);
  }
}

// Returns the step of the smallest evaluation loss in `log` among the steps in `saved`.
int64_t best_of(const json& log, const std::set<int64_t>& saved) {
  int64_t step = 0;
  double least = INFINITY;
  for (const json& record : log)
    if (record.contains("eval_loss") && saved.contains(record["step"]) && record["eval_loss"] < least)
      least = record["eval_loss"], step = record["step"];
  return step;
}

// Axolotl keeps the best model without a key that says so. Shares of the run may become steps that do not fit together.
TEST_F(BestCheckpoint, OfAnAxolotlRecipeHasTheStepOfAnEvaluationAndACheckpoint) {
  write_text(folder_ / "axolotl.yaml", "base_model: m\nmicro_batch_size: 2\nearly_stopping_patience: 9\n");
  std::vector<std::string> keys = words({"finetuning_type=lora", "bf16=false", "save_steps=0.25", "eval_steps=0.125"});
  keys.insert(keys.begin() + 1, (folder_ / "axolotl.yaml").string());
  const Outcome run = run_fettle(folder_, keys);
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(run.err, HasSubstr("an evaluation every 2 steps and a checkpoint every 3 steps"));
  EXPECT_EQ(weights(), weights("checkpoint-" + std::to_string(best_of(state()["log_history"], {6, 12}))));
  const Outcome asked = run_fettle(folder_, with(keys, {"load_best_model_at_end=true", "overwrite_output_dir=true"}));
  EXPECT_EQ(asked.code, 2);
  EXPECT_THAT(asked.err, HasSubstr("make one a multiple of the other"));
}

// The checkpoint of the best evaluation cannot be written. The best of the others is kept and becomes the result.
TEST_F(BestCheckpoint, ThatCannotBeWrittenDoesNotCount) {
  ASSERT_EQ(run_fettle(folder_, words({"output_dir=" + (folder_ / "first").string()})).code, 0);
  const json log = json::parse(read_text(folder_ / "first/trainer_state.json"))["log_history"];
  const std::set<int64_t> all{2, 4, 6, 8, 10, 12};
  const int64_t best = best_of(log, all);
  std::set<int64_t> others = all;
  others.erase(best);
  const Environment faults[] = {{"LD_PRELOAD", FETTLE_FAULTS},
                                {"FAULT_CALL", "open"},
                                {"FAULT_PATH", "/checkpoint-" + std::to_string(best) + ".tmp"},
                                {"FAULT_ERRNO", "EIO"},
                                {"FAULT_NTH", "1"},
                                {"FAULT_COUNT", "all"}};
  const Outcome run = run_fettle(folder_, words({"load_best_model_at_end=true", "save_total_limit=1"}));
  ASSERT_EQ(run.code, 0) << run.err;
  ASSERT_THAT(run.err, HasSubstr("checkpoint-" + std::to_string(best) + " could not be saved"));
  const std::string name = "checkpoint-" + std::to_string(best_of(log, others));
  EXPECT_EQ(weights(), weights(name));
  EXPECT_EQ(std::filesystem::path(state()["best_model_checkpoint"]).filename(), name);
}

// The first part of the run chose nothing, or chose by another metric.
TEST_F(BestCheckpoint, IsFoundAmongThoseOfEarlierParts) {
  for (const std::vector<std::string>& before :
       {std::vector<std::string>{}, {"early_stopping_patience=9", "greater_is_better=true"}}) {
    ASSERT_EQ(run_fettle(folder_, words(with(before, {"max_steps=10", "overwrite_output_dir=true"}))).code, 0);
    const Outcome run = run_fettle(folder_, words({"load_best_model_at_end=true", "resume_from_checkpoint=true"}));
    ASSERT_EQ(run.code, 0) << run.err;
    const std::string name = "checkpoint-" + std::to_string(best_step());
    ASSERT_LT(best_step(), 10);
    EXPECT_EQ(weights(), weights(name));
    EXPECT_EQ(std::filesystem::path(state()["best_model_checkpoint"]).filename(), name);
  }
}

TEST_F(BestCheckpoint, BecomesTheResultOfARunThatHasEnded) {
  ASSERT_EQ(run_fettle(folder_, words({})).code, 0);
  EXPECT_EQ(weights(), weights("checkpoint-12"));
  const std::string name = "checkpoint-" + std::to_string(best_step());
  ASSERT_LT(best_step(), 12);
  const Outcome run = run_fettle(folder_, words({"load_best_model_at_end=true", "resume_from_checkpoint=true"}));
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(weights(), weights(name));
  const Outcome again = run_fettle(folder_, words({"load_best_model_at_end=true", "resume_from_checkpoint=true"}));
  EXPECT_THAT(again.err, HasSubstr("so there is nothing to do"));
  const Outcome back = run_fettle(folder_, words({"resume_from_checkpoint=true"}));
  ASSERT_EQ(back.code, 0) << back.err;
  EXPECT_EQ(weights(), weights("checkpoint-12"));
}

// The best evaluation is the last one, so neither start loads other weights or evaluates a step.
TEST_F(BestCheckpoint, OfAClassifierThatHasEndedHasAReport) {
  write_text(folder_ / "rows.csv", "text,label\nred one,red\nblue two,blue\nred three,red\nblue four,blue\n");
  const std::string rows = (folder_ / "rows.csv").string();
  const std::vector<std::string> keys{"stage=cls", "dataset=" + rows, "eval_dataset=" + rows, "max_steps=4"};
  ASSERT_EQ(run_fettle(folder_, words(keys)).code, 0);
  ASSERT_EQ(best_step(), 4);
  const std::string report = read_text(folder_ / "out/classification_report.json");
  for (const char* best : {"load_best_model_at_end=true", "load_best_model_at_end=false"}) {
    const Outcome run = run_fettle(folder_, words(with(keys, {"resume_from_checkpoint=true", best})));
    ASSERT_EQ(run.code, 0) << run.err;
    ASSERT_THAT(run.err, testing::Not(HasSubstr("nothing to do"))) << best;
    EXPECT_EQ(read_text(folder_ / "out/classification_report.json"), report) << best;
    EXPECT_TRUE(std::filesystem::exists(folder_ / "out/confusion.svg")) << best;
  }
}

// The new rows are harder, so each of their evaluations is worse than those of the first part.
TEST_F(BestCheckpoint, IsChosenAmongEvaluationsOfTheSameRows) {
  ASSERT_EQ(run_fettle(folder_, words({"max_steps=4", "eval_dataset=" + (folder_ / "rows.jsonl").string()})).code, 0);
  const std::vector<std::string> keys = words({"load_best_model_at_end=true", "resume_from_checkpoint=true"});
  const Outcome run = run_fettle(folder_, with(keys, {"max_steps=8"}));
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(run.err, HasSubstr("the held-out rows have changed since the checkpoint of step 4"));
  EXPECT_GT(state()["best_global_step"], 4);
  const Outcome next = run_fettle(folder_, with(keys, {"max_steps=10"}));
  ASSERT_EQ(next.code, 0) << next.err;
  EXPECT_THAT(next.err, testing::Not(HasSubstr("the held-out rows have changed")));
  EXPECT_GT(state()["best_global_step"], 4);
  EXPECT_EQ(weights(), weights("checkpoint-" + std::to_string(state()["best_global_step"].get<int64_t>())));
}

TEST_F(BestCheckpoint, IsTheOnlyOneThatIsSaved) {
  const Outcome run = run_fettle(folder_, words({"save_strategy=best", "load_best_model_at_end=true"}));
  ASSERT_EQ(run.code, 0) << run.err;
  const std::string best = "checkpoint-" + std::to_string(best_step());
  EXPECT_TRUE(std::filesystem::exists(folder_ / "out" / best));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "out/checkpoint-12"));
  EXPECT_EQ(weights(), weights(best));
}

TEST_F(BestCheckpoint, WishesThatContradictAreRefused) {
  const std::vector<std::pair<std::vector<std::string>, const char*>> cases{
      {{"load_best_model_at_end=true", "eval_strategy=no"}, "set eval_strategy: steps or epoch"},
      {{"early_stopping_patience=2", "eval_strategy=no"}, "set eval_strategy: steps or epoch"},
      {{"load_best_model_at_end=true", "save_strategy=no"}, "set both to the same value, or set save_strategy: best"},
      {{"load_best_model_at_end=true", "save_steps=3"}, "make one a multiple of the other"},
      {{"early_stopping_patience=2", "metric_for_best_model=bleu"}, "use one of loss, accuracy, perplexity"}};
  for (const auto& [keys, said] : cases) {
    const Outcome run = run_fettle(folder_, words(keys));
    EXPECT_EQ(run.code, 2) << said;
    EXPECT_THAT(run.err, HasSubstr(said));
  }
}

}  // namespace
}  // namespace fettle
