// Tests training on preferences: what is logged, how a run resumes, and the messages for unusable rows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "run_fettle.h"

namespace fettle {
namespace {

using nlohmann::json;
using testing::ContainsRegex;
using testing::ElementsAreArray;
using testing::HasSubstr;

std::string pairs_text(int count) {
  std::string lines;
  for (int i = 0; i < count; ++i)
    lines += json{{"prompt", "ab " + std::to_string(i)}, {"chosen", "cd ef"}, {"rejected", "gh " + std::to_string(i)}}
                 .dump() +
             "\n";
  return lines;
}

// Returns train_words for stage `stage` over `rows`.
std::vector<std::string> preference_words(const TempFolder& folder, const std::string& output, const std::string& stage,
                                          const std::string& rows) {
  write_text(folder / "rows.jsonl", rows);
  const std::filesystem::path model = folder / "model";
  if (!std::filesystem::exists(model)) std::filesystem::copy(reference_model("llama"), model);
  write_text(model / "chat_template.jinja",
             "{% for m in messages %}{{ m.role[0] + '|' + m.content + '|' }}{% endfor %}"
             "{% if add_generation_prompt %}a|{% endif %}");
  return with(train_words(folder / output), {"model_name_or_path=" + model.string(), "cutoff_len=64",
                                             "dataset=" + (folder / "rows.jsonl").string(), "stage=" + stage});
}

// Before the first step nothing has been learned, so the loss is log 2 with every method.
TEST(Preferences, EveryMethodStartsAtItsReference) {
  for (const std::vector<std::string>& method : {std::vector<std::string>{"quantization_bit=8", "use_dora=true"},
                                                 {"additional_target=norm"},
                                                 {"finetuning_type=freeze", "freeze_trainable_layers=1"}}) {
    SCOPED_TRACE(testing::PrintToString(method));
    TempFolder folder;
    const Outcome run =
        run_fettle(folder, with(with(preference_words(folder, "out", "dpo", pairs_text(4)), {"max_steps=1"}), method));
    ASSERT_EQ(run.code, 0) << run.err;
    const json result = json::parse(read_text(folder / "out/all_results.json"));
    EXPECT_NEAR(result["train_loss"].get<double>(), std::log(2.0), 1e-3);
  }
}

// The step computes both models with the same settings.
TEST(Preferences, AReferenceWithOtherSettingsIsRefused) {
  TempFolder folder;
  const std::filesystem::path other = folder / "other";
  const auto words = with(preference_words(folder, "out", "dpo", pairs_text(4)), {"ref_model=" + other.string()});
  std::filesystem::copy(reference_model("llama"), other);
  json config = json::parse(read_text(other / "config.json"));
  ASSERT_EQ(run_fettle(folder, with(words, {"max_steps=1"})).code, 0);
  config.erase("rope_parameters");
  config["rope_theta"] = 3.0;
  config["rms_norm_eps"] = 0.5;
  write_text(other / "config.json", config.dump());
  const Outcome run = run_fettle(folder, with(words, {"max_steps=1", "output_dir=" + (folder / "next").string()}));
  EXPECT_EQ(run.code, 2);
  EXPECT_THAT(run.err, HasSubstr("its config.json has other values of rope_parameters, rms_norm_eps"));
}

TEST(Preferences, AreLoggedAsTrlLogsThem) {
  TempFolder folder;
  const Outcome run = run_fettle(folder, with(preference_words(folder, "out", "dpo", pairs_text(16)),
                                              {"val_size=4", "eval_strategy=steps", "eval_steps=3"}));
  ASSERT_EQ(run.code, 0) << run.err;
  const json state = json::parse(read_text(folder / "out/trainer_state.json"));
  const json& first = state["log_history"][0];
  EXPECT_NEAR(first["loss"], std::log(2.0), 1e-6) << "with a new adapter the model equals its reference";
  for (const char* name : {"rewards/chosen", "rewards/rejected", "rewards/accuracies", "rewards/margins",
                           "logps/chosen", "logps/rejected"})
    EXPECT_TRUE(first.contains(name)) << name;
  const json results = json::parse(read_text(folder / "out/all_results.json"));
  for (const char* name : {"eval_loss", "eval_rewards/margins", "eval_rewards/accuracies"})
    EXPECT_TRUE(results.contains(name)) << name;
  EXPECT_FALSE(results.contains("eval_perplexity"));
  EXPECT_THAT(run.err, HasSubstr("Num examples = 12\n")) << "pairs, not replies";
  EXPECT_EQ(json::parse(read_text(folder / "out/fettle_run.json"))["data"]["train_examples"], 12);
  EXPECT_THAT(run.err, ContainsRegex("step 3/.*grad [0-9.e-]+ \\| rewards/accuracies [0-9.]+ \\| rewards/margins"));
}

TEST(Preferences, ResumeIsBitIdentical) {
  for (const auto& [stage, type] : {std::pair{"dpo", "lora"}, {"dpo", "full"}, {"kto", "lora"}}) {
    TempFolder folder;
    std::string rows = pairs_text(24);
    if (stage == std::string("kto")) {
      rows.clear();
      for (int i = 0; i < 24; ++i)
        rows +=
            json{{"prompt", "ab " + std::to_string(i)}, {"completion", "cd ef"}, {"label", i % 3 != 0}}.dump() + "\n";
    }
    auto words = [&](const char* output) {
      return with(preference_words(folder, output, stage, rows),
                  {std::string("finetuning_type=") + type, "save_strategy=steps", "save_steps=3"});
    };
    const Outcome whole = run_fettle(folder, words("whole"));
    ASSERT_EQ(whole.code, 0) << whole.err;
    ASSERT_EQ(run_fettle(folder, words("cut")).code, 0);
    std::filesystem::remove_all(folder / "cut/checkpoint-6");
    EXPECT_THAT(run_fettle(folder, with(words("cut"), {"resume_from_checkpoint=true", "pref_beta=0.3"})).err,
                HasSubstr("pref_beta = 0.1, but this run has 0.3"));
    const Outcome resumed = run_fettle(folder, with(words("cut"), {"resume_from_checkpoint=true"}));
    ASSERT_EQ(resumed.code, 0) << resumed.err;
    EXPECT_THAT(logged_losses(folder / "cut"), ElementsAreArray(logged_losses(folder / "whole"))) << stage << type;
  }
}

// Without held-out rows of both kinds, evaluations have no rewards/margins.
TEST(Preferences, WithoutTheMetricOfTheBestModelTheRunEndsEarlyAndSaysWhy) {
  TempFolder folder;
  const auto row = [](int i, bool good) {
    return json{{"prompt", "ab " + std::to_string(i)}, {"completion", "cd ef"}, {"label", good}}.dump() + "\n";
  };
  std::string rows;
  for (int i = 0; i < 8; ++i) rows += row(i, i % 2 == 0);
  const std::string held_out = (folder / "held_out.jsonl").string();
  write_text(held_out, row(0, false) + row(1, false));
  const Outcome run = run_fettle(
      folder,
      with(preference_words(folder, "out", "kto", rows),
           {"eval_dataset=" + held_out, "eval_strategy=steps", "eval_steps=1", "save_strategy=steps", "save_steps=1",
            "metric_for_best_model=rewards/margins", "load_best_model_at_end=true", "early_stopping_patience=1"}));
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(run.err, HasSubstr("step 1 has no finite eval_rewards/margins, which needs held-out rows of both kinds"));
  EXPECT_THAT(run.err, HasSubstr("stopped at step 2: no evaluation had a finite eval_rewards/margins"));
  EXPECT_THAT(run.err, HasSubstr("so the result has the weights of the last step"));
}

TEST(Preferences, AreLearned) {
  TempFolder folder;
  const Outcome run = run_fettle(folder, with(preference_words(folder, "out", "dpo", pairs_text(16)),
                                              {"max_steps=20", "learning_rate=0.005", "logging_steps=20"}));
  ASSERT_EQ(run.code, 0) << run.err;
  const json log = json::parse(read_text(folder / "out/trainer_state.json"))["log_history"][0];
  EXPECT_GT(log["rewards/accuracies"], 0.9);
  EXPECT_LT(log["loss"], 0.4);
}

// Modules that are trained in full begin at the base's weights. The reference of an evaluation has these weights, too.
TEST(Preferences, AnEvaluationComparesWithTheBase) {
  TempFolder folder;
  std::vector<std::string> words = with(
      preference_words(folder, "out", "dpo", pairs_text(8)),
      {"additional_target=norm,lm_head", "max_steps=6", "learning_rate=0.01", "eval_strategy=steps", "eval_steps=6"});
  words.push_back("eval_dataset=" + (folder / "rows.jsonl").string());
  ASSERT_EQ(run_fettle(folder, words).code, 0);
  const json trained = json::parse(read_text(folder / "out/eval_results.json"));
  words[0] = "eval";
  words = with(words, {"adapter_name_or_path=" + (folder / "out").string(), "output_dir=", "--json"});
  const Outcome measured = run_fettle(folder, words);
  ASSERT_EQ(measured.code, 0) << measured.err;
  const json figures = json::parse(measured.out);
  EXPECT_GT(trained.at("eval_rewards/margins"), 0.1);
  for (const char* name : {"loss", "rewards/margins", "rewards/chosen"})
    EXPECT_NEAR(figures["sets"][0]["model"].at(name).get<double>(), trained.at("eval_" + std::string(name)), 1e-4)
        << name << measured.out;
}

TEST(Preferences, UnusableRowsAreRefused) {
  struct Case {
    const char *stage, *row, *said;
  };
  for (const Case& c :
       {Case{"dpo", R"({"prompt": "a", "chosen": "b"})", "rejected"},
        {"dpo", R"({"prompt": "a", "chosen": "b", "rejected": "b"})", "same"},
        {"sft", R"({"prompt": "a", "chosen": "b", "rejected": "c"})", "set stage: dpo, rm or kto to train on it"},
        {"kto", R"({"prompt": "a", "completion": "b"})", "true for a good reply"},
        {"kto", R"({"prompt": "a", "completion": "b", "label": "good"})", "must be true or false"}}) {
    TempFolder folder;
    const Outcome run = run_fettle(folder, preference_words(folder, "out", c.stage, std::string(c.row) + "\n"));
    EXPECT_EQ(run.code, 2) << c.row << run.err;
    EXPECT_THAT(run.err, HasSubstr(c.said)) << c.row;
  }
}

TEST(Preferences, PlanCountsTheReferenceModel) {
  TempFolder folder;
  auto frozen = [&](const std::string& type) {
    auto words = with(preference_words(folder, "out", "dpo", pairs_text(4)), {"finetuning_type=" + type});
    words[0] = "plan";
    words.push_back("--json");
    const Outcome run = run_fettle(folder, words);
    EXPECT_EQ(run.code, 0) << run.err;
    const json plan = json::parse(run.out);
    return std::pair<int64_t, int64_t>(plan.at("per_device").at("frozen_bytes"),
                                       plan.at("per_device").at("trained_bytes"));
  };
  const auto [lora, pairs] = frozen("lora");
  const auto [full, all] = frozen("full");
  EXPECT_EQ(full, all) << "a frozen copy of every weight";
  EXPECT_EQ(lora, full) << "the reference is the base alone";
}

}  // namespace
}  // namespace fettle
