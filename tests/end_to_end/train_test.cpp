// Runs training as a user does. Tests the files that a run writes, how it stops and how it continues.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "checkpoint/peft/adapter_files.h"
#include "checkpoint/safetensors.h"
#include "environment.h"
#include "run_fettle.h"
#include "train/retry.h"

namespace fettle {
namespace {

using testing::AllOf;
using testing::ElementsAreArray;
using testing::HasSubstr;
using testing::Not;

TEST(Train, WritesTheFilesThatPeftAndTheTrainerWrite) {
  TempFolder folder;
  const auto words = with(train_words(folder / "out"), {"save_strategy=steps", "save_steps=2", "save_total_limit=2",
                                                        "val_size=8", "eval_strategy=steps", "eval_steps=3"});
  const Outcome run = run_fettle(folder, words);
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(run.out, "") << "results go to files, messages to stderr";
  for (const char* file :
       {"adapter_config.json", "adapter_model.safetensors", "tokenizer.json", "trainer_state.json", "trainer_log.jsonl",
        "training_loss.png", "training_loss.svg", "all_results.json", "fettle_run.json", "report.html"})
    EXPECT_TRUE(std::filesystem::exists(folder / "out" / file)) << file;
  EXPECT_FALSE(std::filesystem::exists(folder / "out/checkpoint-2"));
  for (const char* kept : {"checkpoint-4", "checkpoint-6"}) {
    EXPECT_TRUE(std::filesystem::exists(folder / "out" / kept / "state/manifest.json")) << kept;
    EXPECT_TRUE(std::filesystem::exists(folder / "out" / kept / "adapter_model.safetensors")) << kept;
  }
  const AdapterFolder adapter = read_adapter(folder / "out");
  EXPECT_EQ(adapter.config.r, 4);
  EXPECT_EQ(adapter.tensors.size(), 2u * 7 * 2);
  EXPECT_EQ(logged_losses(folder / "out").size(), 6u);
  const auto state = nlohmann::json::parse(read_text(folder / "out/trainer_state.json"));
  EXPECT_EQ(state["global_step"], 6);
  const auto results = nlohmann::json::parse(read_text(folder / "out/all_results.json"));
  EXPECT_TRUE(results.contains("eval_loss") && results.contains("train_loss"));
  // train_words: 2 rows a step
  EXPECT_NEAR(results["train_samples_per_second"], 2 * results["train_steps_per_second"].get<double>(), 1e-9);
  EXPECT_NEAR(results["eval_steps_per_second"].get<double>() * results["eval_runtime"].get<double>(), 4, 1e-9);
  EXPECT_EQ(nlohmann::json::parse(read_text(folder / "out/eval_results.json"))["epoch"], results["epoch"]);
  EXPECT_THAT(run.err, HasSubstr("the adapter is in "));
  EXPECT_EQ(run.err.find("AutoModelForImageTextToText"), std::string::npos);
  const size_t said = run.err.find("train_steps_per_second");
  ASSERT_NE(said, std::string::npos);
  EXPECT_NEAR(std::stod(run.err.substr(run.err.find('=', said) + 1)), results["train_steps_per_second"], 5.1e-5)
      << "the screen and the file have the same run time";
}

TEST(Train, NamesTheClassThatLoadsTheBase) {
  TempFolder folder;
  const std::string model = "model_name_or_path=" + reference_model("qwen3_5").string();
  const Outcome run =
      run_fettle(folder, with(train_words(folder / "out"), {model, "max_steps=1", "lora_target=q_proj"}));
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(run.err, HasSubstr("load the adapter's base with AutoModelForImageTextToText"));
}

// Returns the words of a run with dropout, shuffling, accumulation and a schedule. All of these must continue where
// they stopped.
std::vector<std::string> resumable(const std::filesystem::path& output) {
  return with(train_words(output), {"save_strategy=steps", "save_steps=3", "lora_dropout=0.1", "max_steps=8",
                                    "gradient_accumulation_steps=2", "lr_scheduler_type=cosine", "warmup_steps=2"});
}

TEST(Resume, LossesAreBitIdenticalToTheUninterruptedRun) {
  for (const char* method : {"finetuning_type=lora", "finetuning_type=full", "quantization_bit=4"}) {
    TempFolder folder;
    ASSERT_EQ(run_fettle(folder, with(resumable(folder / "whole"), {method})).code, 0);
    ASSERT_EQ(run_fettle(folder, with(resumable(folder / "cut"), {method})).code, 0);
    std::filesystem::remove_all(folder / "cut/checkpoint-8");
    std::filesystem::remove_all(folder / "cut/checkpoint-6");
    const Outcome resumed =
        run_fettle(folder, with(resumable(folder / "cut"), {method, "resume_from_checkpoint=true"}));
    ASSERT_EQ(resumed.code, 0) << resumed.err;
    EXPECT_THAT(logged_losses(folder / "cut"), ElementsAreArray(logged_losses(folder / "whole"))) << method;
    const std::string weights =
        method == std::string("finetuning_type=full") ? "model.safetensors" : "adapter_model.safetensors";
    EXPECT_EQ(read_text(folder / "cut" / weights), read_text(folder / "whole" / weights)) << method;
  }
}

// A resumed run that does not set gradient_checkpointing takes the setting from the run that wrote the checkpoint. So
// the losses are the same.
TEST(Resume, KeepsWhatTheLayersSave) {
  TempFolder folder;
  const std::string key = "gradient_checkpointing=linear";
  const Outcome whole = run_fettle(folder, with(resumable(folder / "whole"), {key}));
  ASSERT_EQ(whole.code, 0) << whole.err;
  const Outcome cut = run_fettle(folder, with(resumable(folder / "cut"), {key}));
  ASSERT_EQ(cut.code, 0) << cut.err;
  std::filesystem::remove_all(folder / "cut/checkpoint-8");
  std::filesystem::remove_all(folder / "cut/checkpoint-6");
  const Outcome resumed = run_fettle(folder, with(resumable(folder / "cut"), {"resume_from_checkpoint=true"}));
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_THAT(resumed.err, HasSubstr("gradient_checkpointing: linear, as in the run that wrote the checkpoint"));
  EXPECT_EQ(logged_losses(folder / "cut"), logged_losses(folder / "whole"));
  const Outcome other = run_fettle(
      folder, with(resumable(folder / "cut"), {"resume_from_checkpoint=true", "gradient_checkpointing=none"}));
  EXPECT_THAT(other.err, HasSubstr("was written by a run with gradient_checkpointing: linear, this run has none"));
}

TEST(Resume, WithOtherKernelsContinuesAndReportsIt) {
  TempFolder folder;
  // Kernels are used for sequences of 256 positions or more.
  const std::vector<std::string> words =
      with(resumable(folder / "out"), {"packing=true", "cutoff_len=256", "kernels=cpu_attention"});
  const Outcome whole = run_fettle(folder, words);
  ASSERT_EQ(whole.code, 0) << whole.err;
  const std::vector<std::string> losses = logged_losses(folder / "out");
  std::filesystem::remove_all(folder / "out/checkpoint-8");
  std::filesystem::remove_all(folder / "out/checkpoint-6");
  const Outcome resumed = run_fettle(folder, with(words, {"kernels=off", "resume_from_checkpoint=true"}));
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_THAT(resumed.err, HasSubstr("was written by a run with kernels cpu_attention/2, this run has no kernels"));
  const std::vector<std::string> without = logged_losses(folder / "out");
  ASSERT_EQ(without.size(), losses.size());
  EXPECT_NE(without, losses) << "the kernel was not called";
  for (size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(std::stod(without[i]), std::stod(losses[i]), 1e-5) << i;
}

// Returns the lines of trainer_log.jsonl without the fields that contain times or measured memory, and without
// resumed_step.
std::vector<std::string> timeless_log(const std::filesystem::path& output) {
  std::vector<std::string> lines;
  std::ifstream in(output / "trainer_log.jsonl");
  for (std::string line; std::getline(in, line);) {
    auto record = nlohmann::json::parse(line);
    for (const char* key : {"elapsed_time", "remaining_time", "throughput", "eval_runtime", "eval_samples_per_second",
                            "eval_steps_per_second", "host_memory_bytes", "resumed_step"})
      record.erase(key);
    lines.push_back(record.dump());
  }
  return lines;
}

TEST(Resume, BetweenTwoLoggingStepsTheLogIsThatOfTheUninterruptedRun) {
  TempFolder folder;
  const auto words = [&](const char* output) {
    return with(train_words(folder / output), {"save_strategy=steps", "save_steps=2", "max_steps=8", "logging_steps=3",
                                               "val_size=8", "eval_strategy=steps", "eval_steps=3"});
  };
  ASSERT_EQ(run_fettle(folder, words("whole")).code, 0);
  ASSERT_EQ(run_fettle(folder, words("cut")).code, 0);
  for (const char* later : {"cut/checkpoint-6", "cut/checkpoint-8"}) std::filesystem::remove_all(folder / later);
  const Outcome resumed = run_fettle(folder, with(words("cut"), {"resume_from_checkpoint=true"}));
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  const auto wanted = timeless_log(folder / "whole");
  ASSERT_EQ(wanted.size(), 6u) << "training and evaluation at 3, 6 and 8";
  EXPECT_THAT(timeless_log(folder / "cut"), ElementsAreArray(wanted));
  const std::string log = read_text(folder / "cut/trainer_log.jsonl");
  EXPECT_THAT(log, HasSubstr(R"("resumed_step":4)"));
  EXPECT_EQ(log.find("resumed_step"), log.rfind("resumed_step")) << "only the first line of a process has it";
  const auto result = [&](const char* output, const char* key) {
    return nlohmann::json::parse(read_text(folder / output / "all_results.json"))[key];
  };
  EXPECT_EQ(result("cut", "train_loss"), result("whole", "train_loss"));
  EXPECT_EQ(result("cut", "eval_loss"), result("whole", "eval_loss"));
}

// An evaluation of an earlier state of the model is not reported as one of the result.
TEST(Resume, ReportsTheStepOfAnOlderEvaluation) {
  TempFolder folder;
  const auto run = [&](const std::vector<std::string>& more) {
    return run_fettle(folder, with(with(train_words(folder / "out"), {"save_strategy=steps", "save_steps=1",
                                                                      "val_size=8", "resume_from_checkpoint=true"}),
                                   more));
  };
  const auto results = [&] { return nlohmann::json::parse(read_text(folder / "out/all_results.json")); };
  ASSERT_EQ(run({"eval_strategy=steps", "eval_steps=3", "max_steps=3"}).code, 0);
  EXPECT_TRUE(results().contains("eval_loss") && !results().contains("eval_step"));
  const auto loss = results()["eval_loss"];

  const Outcome longer = run({"max_steps=4"});
  ASSERT_EQ(longer.code, 0) << longer.err;
  EXPECT_THAT(longer.err, Not(HasSubstr("eval metrics")));
  EXPECT_FALSE(results().contains("eval_loss"));
  EXPECT_FALSE(std::filesystem::exists(folder / "out/eval_results.json"));

  std::filesystem::remove(folder / "out/trainer_state.json");  // the result is not complete
  const Outcome again = run({"eval_strategy=steps", "eval_steps=3", "max_steps=4"});
  ASSERT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(results()["eval_step"], 3);
  const auto of_evaluation = nlohmann::json::parse(read_text(folder / "out/eval_results.json"));
  EXPECT_NEAR(of_evaluation["epoch"].get<double>() * 4, results()["epoch"].get<double>() * 3, 1e-9);
  EXPECT_EQ(results()["eval_loss"], loss);
}

TEST(Resume, WithoutACheckpointStartsANewRunAndReportsIt) {
  TempFolder folder;
  const Outcome run = run_fettle(folder, with(train_words(folder / "out"), {"resume_from_checkpoint=true"}));
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(run.err, HasSubstr("starting a new run"));
}

TEST(Resume, AnotherRunsCheckpointIsRefused) {
  TempFolder folder;
  ASSERT_EQ(run_fettle(folder, resumable(folder / "out")).code, 0);
  const Outcome run =
      run_fettle(folder, with(resumable(folder / "out"), {"resume_from_checkpoint=true", "seed=7", "max_steps=9"}));
  EXPECT_EQ(run.code, 2);
  EXPECT_THAT(run.err, HasSubstr("seed"));
}

TEST(Interrupt, SavesACheckpointFromWhichTheRunContinues) {
  for (const auto& [signal, code] : {std::pair{SIGINT, 130}, {SIGTERM, 143}, {SIGHUP, 129}, {SIGUSR1, 138}}) {
    TempFolder folder;
    const auto words = with(resumable(folder / "out"), {"save_steps=100000", "max_steps=5000"});
    Running running(folder.path(), words);
    ASSERT_TRUE(wait_until([&] { return logged_losses(folder / "out").size() >= 2; }));
    running.send(signal);
    const Outcome stopped = running.wait();
    EXPECT_EQ(stopped.code, code) << stopped.err;
    EXPECT_THAT(stopped.err, HasSubstr("stopping after this step, then a checkpoint is saved; Ctrl-C again ends at"));
    EXPECT_THAT(stopped.err, HasSubstr("resume_from_checkpoint"));
    const size_t done = logged_losses(folder / "out").size();
    const Outcome resumed = run_fettle(
        folder,
        with(resumable(folder / "out"), {"resume_from_checkpoint=true", "max_steps=" + std::to_string(done + 1)}));
    EXPECT_EQ(resumed.code, 0) << resumed.err;
    EXPECT_EQ(logged_losses(folder / "out").size(), done + 1);
  }
}

// The evaluation after the last step would take much longer than a scheduler waits. It is given up for the checkpoint,
// and the next start begins with it.
TEST(Interrupt, EndsAnEvaluationWhichTheNextStartRepeats) {
  const TempFolder folder;
  std::string rows;
  for (int i = 0; i < 3000; ++i)
    rows += nlohmann::json{{"prompt", "row"}, {"completion", std::to_string(i)}}.dump() + "\n";
  write_text(folder / "held_out.jsonl", rows);
  const auto words = [&](const char* output) {
    return with(train_words(folder / output),
                {"dataset=" + (folder / "held_out.jsonl").string(), "template=none", "save_strategy=steps",
                 "save_steps=2", "max_steps=2", "eval_strategy=steps", "eval_steps=2", "per_device_eval_batch_size=1",
                 "eval_dataset=" + (folder / "held_out.jsonl").string()});
  };
  const Running running(folder.path(), words("cut"));
  ASSERT_TRUE(wait_until([&] { return logged_losses(folder / "cut").size() == 2; }));
  running.send(SIGTERM);
  const Outcome stopped = running.wait();
  EXPECT_EQ(stopped.code, 143) << stopped.err;
  EXPECT_THAT(stopped.err, Not(HasSubstr("eval at step"))) << "the test machine evaluates too fast";
  EXPECT_THAT(stopped.err, HasSubstr("interrupted: step 2 is saved"));
  EXPECT_FALSE(std::filesystem::exists(folder / "cut/adapter_model.safetensors"));

  // A signal comes just after the evaluation, before a step. The evaluation is not lost.
  const auto again = with(words("cut"), {"resume_from_checkpoint=true"});
  {
    const Environment faults[] = {{"LD_PRELOAD", FETTLE_FAULTS},
                                  {"FAULT_CALL", "write"},
                                  {"FAULT_PATH", "trainer_log.jsonl"},
                                  {"FAULT_ERRNO", "TERM_AFTER"},
                                  {"FAULT_NTH", "1"}};
    const Outcome evaluated = run_fettle(folder, with(again, {"save_steps=4", "max_steps=4"}));
    EXPECT_EQ(evaluated.code, 143) << evaluated.err;
    EXPECT_THAT(evaluated.err, AllOf(HasSubstr("eval at step 2"), HasSubstr("interrupted: step 2 is saved")));
  }
  const Outcome resumed = run_fettle(folder, again);
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_THAT(resumed.err, Not(HasSubstr("eval at step 2")));
  ASSERT_EQ(run_fettle(folder, words("whole")).code, 0);
  for (const char* file : {"", "checkpoint-2"}) {
    const auto losses = [&](const char* output) {
      std::vector<nlohmann::json> out;
      const auto state = nlohmann::json::parse(read_text(folder / output / file / "trainer_state.json"));
      for (const auto& record : state["log_history"])
        out.push_back({record["step"], record.value("loss", 0.0), record.value("eval_loss", 0.0)});
      return out;
    };
    EXPECT_EQ(losses("cut").size(), 3u);
    EXPECT_EQ(losses("cut"), losses("whole")) << file;
  }
}

TEST(Interrupt, BeforeTheFirstStepSavesNothing) {
  const TempFolder folder;
  const Running running(folder.path(), train_words(folder / "out"));
  ASSERT_TRUE(wait_until([&] {
    const std::filesystem::path said = folder / "stderr";
    return std::filesystem::exists(said) && read_text(said).find("batches: ") != std::string::npos;
  }));
  running.send(SIGTERM);
  const Outcome run = running.wait();
  EXPECT_EQ(run.code, 143) << run.err;
  EXPECT_THAT(run.err, HasSubstr("interrupted before the first step, so there is nothing to save"));
  EXPECT_TRUE(logged_losses(folder / "out").empty());
  EXPECT_FALSE(std::filesystem::exists(folder / "out/checkpoint-0"));
}

TEST(Train, StopsAtALossThatIsNotFiniteAndNamesTheRows) {
  TempFolder folder;
  const Outcome run = run_fettle(folder, with(train_words(folder / "out"), {"learning_rate=1e30", "max_grad_norm=0",
                                                                            "finetuning_type=full", "max_steps=50"}));
  EXPECT_EQ(run.code, 2);
  EXPECT_THAT(run.err, HasSubstr("not finite"));
  EXPECT_THAT(run.err, HasSubstr("rows.jsonl:"));
  EXPECT_THAT(run.err, HasSubstr("learning_rate"));
  EXPECT_FALSE(std::filesystem::exists(folder / "out/model.safetensors"));
}

// Returns the words of a run of 4 steps. Row 7, which is in step 4, has a token whose embedding is NaN, so the loss of
// this row is never finite.
std::vector<std::string> words_with_bad_row(const TempFolder& folder) {
  const std::filesystem::path model = folder / "model";
  std::filesystem::copy(reference_model("llama"), model);
  {
    const auto weights = SafetensorsFile::open(model / "model.safetensors");
    const TensorEntry table = *weights.find("model.embed_tokens.weight");
    const auto vocabulary = nlohmann::json::parse(read_text(model / "tokenizer.json"))["model"]["vocab"];
    const int64_t row = table.bytes / table.shape.dims[0];
    std::fstream out(model / "model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
    out.seekp(table.offset + vocabulary["Q"].get<int64_t>() * row);
    out << std::string(static_cast<size_t>(row), '\xff');  // NaN in every float type
  }
  std::string rows;
  for (const char* text :
       {"one row", "two rows", "three rows", "four rows", "5 rows", "six rows", "the Q row", "8 rows"})
    rows += nlohmann::json{{"text", text}}.dump() + "\n";
  write_text(folder / "rows.jsonl", rows);
  return with(train_words(folder / "out"),
              {"model_name_or_path=" + model.string(), "dataset=" + (folder / "rows.jsonl").string(),
               "disable_shuffling=true", "stage=pt", "packing=false", "save_strategy=steps", "save_steps=2",
               "save_total_limit=1", "max_steps=4", "plot_loss=false"});
}

TEST(Train, ARowWithoutAFiniteLossCanBeLeftOutOnResume) {
  const TempFolder folder;
  const auto words = words_with_bad_row(folder);
  const std::string bad = (folder / "rows.jsonl").string() + ":7";
  const Outcome stopped = run_fettle(folder, words);
  EXPECT_EQ(stopped.code, 2) << stopped.err;
  EXPECT_THAT(stopped.err, HasSubstr("skip_rows: [" + bad + "]"));
  EXPECT_THAT(stopped.err, HasSubstr("step 3 is saved in " + (folder / "out/checkpoint-3").string()));
  EXPECT_TRUE(std::filesystem::exists(folder / "out/checkpoint-2")) << "no earlier checkpoint is deleted";
  const Outcome alone = run_fettle(folder, with(words, {"output_dir=" + (folder / "alone").string(),
                                                        "per_device_train_batch_size=1", "max_steps=8"}));
  EXPECT_THAT(alone.err, HasSubstr("skip_rows: [" + bad + "]")) << "the step has no other row";
  const Outcome wrong = run_fettle(folder, with(words, {"resume_from_checkpoint=true", "skip_rows=" + bad + "0"}));
  EXPECT_EQ(wrong.code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("skip_rows: '" + bad + "0' is not a row to train"));
  const Outcome resumed = run_fettle(folder, with(words, {"resume_from_checkpoint=true", "skip_rows=" + bad}));
  EXPECT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_THAT(resumed.err, HasSubstr("Continuing from step = 3"));
  EXPECT_EQ(logged_losses(folder / "out").size(), 4u);
}

// The checkpoint of step 3 cannot be written. When step 4 fails because of its rows, the run saves step 3 again.
TEST(Train, AFailedCheckpointIsSavedAgainBeforeBadRows) {
  const TempFolder folder;
  const std::string attempts = std::to_string(std::size(kRetryPauses) + 1);
  const Environment faults[] = {
      {"LD_PRELOAD", FETTLE_FAULTS}, {"FAULT_CALL", "mkdir"}, {"FAULT_PATH", "/checkpoint-3.tmp"},
      {"FAULT_ERRNO", "EIO"},        {"FAULT_NTH", "1"},      {"FAULT_COUNT", attempts}};
  const Outcome stopped = run_fettle(folder, with(words_with_bad_row(folder), {"save_steps=3"}));
  EXPECT_EQ(stopped.code, 2) << stopped.err;
  EXPECT_THAT(stopped.err, AllOf(HasSubstr("checkpoint-3 could not be saved"), HasSubstr("checkpoint-3 saved"),
                                 HasSubstr("step 3 is saved in " + (folder / "out/checkpoint-3").string())));
}

TEST(Train, AnEarlierRunIsNotOverwrittenUnlessAsked) {
  TempFolder folder;
  ASSERT_EQ(run_fettle(folder, train_words(folder / "out")).code, 0);
  const Outcome again = run_fettle(folder, train_words(folder / "out"));
  EXPECT_EQ(again.code, 2);
  EXPECT_THAT(again.err, HasSubstr("overwrite_output_dir"));
  const Outcome replaced =
      run_fettle(folder, with(train_words(folder / "out"), {"overwrite_output_dir=true", "max_steps=2"}));
  EXPECT_EQ(replaced.code, 0) << replaced.err;
  EXPECT_EQ(logged_losses(folder / "out").size(), 2u);
}

TEST(Resume, OfAFinishedRunChangesNoFiles) {
  const TempFolder folder;
  const std::vector<std::string> words = with(train_words(folder / "out"), {"save_strategy=steps", "save_steps=3"});
  ASSERT_EQ(run_fettle(folder, words).code, 0);
  const std::string figures = read_text(folder / "out/all_results.json");
  const Outcome again = run_fettle(folder, with(words, {"resume_from_checkpoint=true"}));
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_THAT(again.err, HasSubstr("so there is nothing to do; raise max_steps"));
  EXPECT_EQ(read_text(folder / "out/all_results.json"), figures);
}

TEST(Train, ANewAdapterOnAMergedOneNamesItsBase) {
  const TempFolder folder;
  ASSERT_EQ(run_fettle(folder, train_words(folder / "first")).code, 0);
  const std::string first = (folder / "first").string();
  const Outcome second = run_fettle(
      folder, with(train_words(folder / "second"), {"adapter_name_or_path=" + first, "create_new_adapter=true"}));
  EXPECT_EQ(second.code, 0) << second.err;
  EXPECT_THAT(second.err, HasSubstr("set adapter_name_or_path: " + first + ", " + (folder / "second").string()));
  const auto earlier = nlohmann::json::parse(read_text(folder / "second/earlier_adapters.json"));
  EXPECT_EQ(earlier["adapter_name_or_path"], nlohmann::json{first});
  EXPECT_EQ(earlier["create_new_adapter"], true);
  EXPECT_FALSE(std::filesystem::exists(folder / "first/earlier_adapters.json"));
}

// PEFT writes such adapters when tokens were added, and keeps the tables as they are.
TEST(Train, TablesThatAnAdapterOnlyStoresAreKept) {
  const TempFolder folder;
  const std::string first = (folder / "first").string();
  ASSERT_EQ(
      run_fettle(folder, with(train_words(first), {"additional_target=embed_tokens,lm_head", "max_steps=1"})).code, 0);
  nlohmann::json config = nlohmann::json::parse(read_text(folder / "first/adapter_config.json"));
  config["modules_to_save"] = nullptr;
  write_text(folder / "first/adapter_config.json", config.dump());
  const auto train_to = [&](int steps) {
    const Outcome run =
        run_fettle(folder, with(train_words(folder / "next"),
                                {"adapter_name_or_path=" + first, "resume_from_checkpoint=true", "save_strategy=steps",
                                 "save_steps=1", "max_steps=" + std::to_string(steps)}));
    EXPECT_EQ(run.code, 0) << run.err;
    EXPECT_EQ(nlohmann::json::parse(read_text(folder / "next/adapter_config.json"))["modules_to_save"], nullptr);
    const SafetensorsFile before = SafetensorsFile::open(folder / "first/adapter_model.safetensors"),
                          after = SafetensorsFile::open(folder / "next/adapter_model.safetensors");
    EXPECT_EQ(after.entries().size(), before.entries().size());
    for (const TensorEntry& entry : before.entries()) {
      const TensorEntry* found = after.find(entry.name);
      ASSERT_NE(found, nullptr) << entry.name;
      const HostArray a = before.read(entry), b = after.read(*found);
      const bool same = std::ranges::equal(a.as<float>(), b.as<float>());
      EXPECT_EQ(same, entry.name.find("lora_") == std::string::npos) << entry.name;
    }
  };
  train_to(1);
  train_to(2);
}

TEST(Train, KeysWithoutEffectAreNamed) {
  const TempFolder folder;
  const Outcome full = run_fettle(folder, with(train_words(folder / "out"), {"finetuning_type=full", "max_steps=1"}));
  EXPECT_EQ(full.code, 0) << full.err;
  EXPECT_THAT(full.err, HasSubstr("lora_rank has no effect: finetuning_type: full trains no LoRA matrices"));
}

}  // namespace
}  // namespace fettle
