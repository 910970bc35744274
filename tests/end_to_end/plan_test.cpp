// Tests `fettle plan` as scripts and people use it: the keys of the JSON, the exit codes, and `mesh: auto`.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "run_fettle.h"

namespace fettle {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::vector<std::string> plan_words(const std::vector<std::string>& more) {
  return with({"plan", "model_name_or_path=" + reference_model("llama").string(), "lora_rank=4",
               "per_device_train_batch_size=2", "cutoff_len=64"},
              more);
}

// Writes the target file of a card like the MI300X, on which `bytes` bytes are left after the allowance for libraries.
// The allowance of a machine with several such cards is larger. Returns the file's path.
std::string small_card(const TempFolder& folder, int64_t bytes, bool several = false) {
  const int64_t libraries = several ? 2'000'000'000 : 800'000'000;
  const std::filesystem::path file = folder.path() / "small.yaml";
  write_text(file, fmt::format("like: mi300x\ntitle: a small card\nmemory_gib: {:.9f}\n",
                               static_cast<double>(libraries + bytes) / (1 << 30)));
  return file.string();
}

TEST(Plan, ThisMachineAsJson) {
  TempFolder folder;
  const Outcome run = run_fettle(folder, plan_words({"plugin=cpu", "--json"}));
  ASSERT_EQ(run.code, 0) << run.err;
  const nlohmann::json json = nlohmann::json::parse(run.out);
  EXPECT_EQ(json["fits"], true);
  const nlohmann::json& device = json["per_device"];
  for (const char* key :
       {"peak_bytes", "limit_bytes", "frozen_bytes", "adapter_bytes", "optimizer_bytes", "temporary_bytes"})
    EXPECT_GT(device[key], 0) << key;
  EXPECT_EQ(device["optimizer_bytes"], 2 * device["adapter_bytes"].get<int64_t>());
  EXPECT_GT(json["step"]["flops"], 0);
  EXPECT_EQ(json["step"]["collective_bytes"], 0) << "one device";
  EXPECT_EQ(json["step"]["tokens"], 128);
  EXPECT_TRUE(json["step"]["seconds_bound"].is_null()) << "this machine's rates are not known";
  EXPECT_GT(json["compile_seconds"], 0);
}

TEST(Plan, ShowsATargetsTrafficBoundsAndMemoryShare) {
  TempFolder folder;
  const Outcome run =
      run_fettle(folder, plan_words({"--target", "mi300x:2", kFewWeights, "gpu_memory_utilization=0.5", "--json"}));
  ASSERT_EQ(run.code, 0) << run.err;
  const nlohmann::json json = nlohmann::json::parse(run.out);
  const nlohmann::json& step = json["step"];
  EXPECT_GT(step["seconds_bound"], 0);
  EXPECT_EQ(step["seconds_bound"],
            std::max({step["bounds"]["arithmetic_seconds"].get<double>(),
                      step["bounds"]["memory_seconds"].get<double>(), step["bounds"]["link_seconds"].get<double>()}));
  double sent = 0;
  for (const nlohmann::json& row : step["collectives"]) {
    EXPECT_EQ(row["axes"], "fsdp");
    sent += row["link_bytes"].get<double>();
  }
  EXPECT_GT(sent, 0);
  EXPECT_NEAR(step["collective_bytes"].get<double>(), sent, 1);
  EXPECT_GE(step["schedule"]["seconds"], step["seconds_bound"]);
  const nlohmann::json& device = json["per_device"];
  EXPECT_GT(device["allowance_bytes"], 0);
  EXPECT_EQ(device["gpu_memory_utilization"], 0.5);
  EXPECT_NEAR(device["limit_bytes"].get<double>(), 0.5 * device["memory_bytes"].get<double>(), 1);

  EXPECT_THAT(run.err, HasSubstr("compiling the step for 2 x AMD Instinct MI300X")) << "compilers may take minutes";
  EXPECT_EQ(json["gradient_checkpointing"], "attention") << "on a large card";
  const nlohmann::json& choice = json["gradient_checkpointing_choice"];
  EXPECT_EQ(choice["taken"], "attention");
  EXPECT_EQ(choice["candidates"][0]["peak_bytes"], device["peak_bytes"]);
  EXPECT_EQ(choice["candidates"][0]["compiled"], true);
}

TEST(Plan, ListsRemediesWhenTheStepDoesNotFit) {
  TempFolder folder;
  const std::vector<std::string> words =
      plan_words({"--target", small_card(folder, 3'000'000) + ":1", "per_device_train_batch_size=8"});
  const Outcome run = run_fettle(folder, words);
  EXPECT_EQ(run.code, 3) << run.err;
  EXPECT_THAT(run.out, AllOf(HasSubstr("a small card"), HasSubstr("it fits with any one of these changes"),
                             HasSubstr("per_device_train_batch_size: ")));
}

// With mesh: auto, a number of rows says something only together with the mesh that was chosen.
TEST(Plan, RemediesNameTheMeshThatAutoChose) {
  TempFolder folder;
  const Outcome run = run_fettle(folder, plan_words({"--target", small_card(folder, 3'000'000, true) + ":2",
                                                     "mesh=auto", "per_device_train_batch_size=8", "--json"}));
  ASSERT_EQ(run.code, 3) << run.err;
  const nlohmann::json remedies = nlohmann::json::parse(run.out)["remedies"];
  EXPECT_THAT(remedies.dump(), HasSubstr("mesh: {dp: 2} and per_device_train_batch_size: 4 with")) << run.out;
}

TEST(Plan, TheEvaluationsRowsGoWithTheMeshThatAutoChose) {
  TempFolder folder;
  const Outcome run =
      run_fettle(folder, plan_words({"--target", small_card(folder, 5'000'000, true) + ":2", "mesh=auto", kFewWeights,
                                     "eval_strategy=epoch", "val_size=4", "per_device_eval_batch_size=64"}));
  EXPECT_EQ(run.code, 3) << run.err;
  EXPECT_THAT(run.out, testing::ContainsRegex("To reduce it: mesh: \\{[a-z]+: 2\\} and a per_device_eval_batch_size"));
}

// With tp, each device of a card that is too small for the whole hidden states can store its part of them.
TEST(Plan, SplitsTheHiddenStateOverTpIfTheStepDoesNotFit) {
  TempFolder folder;
  const auto words = [](const std::string& target, std::vector<std::string> more) {
    more.insert(more.begin(), {"--target", target + ":2", "mesh={tp: 2}", "gradient_checkpointing=full", "--json"});
    return plan_words(more);
  };
  const auto peak = [&](std::vector<std::string> more) {
    const Outcome run = run_fettle(folder, words("mi300x", std::move(more)));
    EXPECT_EQ(run.code, 0) << run.err;
    return nlohmann::json::parse(run.out)["per_device"]["peak_bytes"].get<int64_t>();
  };
  const int64_t whole = peak({}), split = peak({"sharding={act_embed: tp}"});
  ASSERT_LT(split, whole);
  const Outcome run = run_fettle(folder, words(small_card(folder, (split + whole) / 2, true), {}));
  EXPECT_EQ(run.code, 3) << run.err;
  EXPECT_EQ(nlohmann::json::parse(run.out)["remedies"][0]["change"], "sharding: {act_embed: tp}") << run.out;
}

// Fewer bits for the largest part come before offload. If bf16 is enough, it comes before both.
TEST(Plan, NamesFewerBitsForTheLargestPart) {
  TempFolder folder;
  for (const auto& [bytes, method, change] : {std::tuple{500'000, "finetuning_type=lora", "quantization_bit: 4"},
                                              {1'300'000, "finetuning_type=full", "optim: adamw_8bit"}}) {
    const Outcome run = run_fettle(
        folder, plan_words({"--target", small_card(folder, bytes), "--json", method, "bf16=false", "cutoff_len=16",
                            "per_device_train_batch_size=1", "gradient_checkpointing=full"}));
    EXPECT_EQ(run.code, 3) << run.err;
    const nlohmann::json remedies = nlohmann::json::parse(run.out)["remedies"];
    const size_t first = remedies[0]["change"] == "bf16: true" ? 1 : 0;
    EXPECT_EQ(remedies[first]["change"], change) << run.out;
  }
}

TEST(Plan, SaysThatTheRecipeTurnsKernelsOff) {
  TempFolder folder;
  EXPECT_THAT(run_fettle(folder, plan_words({"plugin=cpu", "kernels=off"})).out,
              HasSubstr("kernels: off by the recipe; this device's defaults are cpu_attention, "));
}

// The batch of the evaluation is so much larger than that of the step that only the evaluation does not fit: the step
// needs 1.6 MB, the evaluation 12 MB.
TEST(Plan, CountsTheEvaluation) {
  TempFolder folder;
  const Outcome run =
      run_fettle(folder, plan_words({"--target", small_card(folder, 5'000'000), kFewWeights, "eval_strategy=epoch",
                                     "val_size=4", "per_device_eval_batch_size=64"}));
  EXPECT_EQ(run.code, 3) << run.err;
  EXPECT_THAT(run.out, AllOf(HasSubstr("(per_device_eval_batch_size: 64)"),
                             HasSubstr("it does not fit. To reduce it: a per_device_eval_batch_size below 64; ")));
}

TEST(Plan, FitFindsALargerBatch) {
  TempFolder folder;
  const std::string target = small_card(folder, 1'800'000) + ":1";
  const Outcome run =
      run_fettle(folder, plan_words({"--target", target, "--fit", "batch", "--json", "per_device_train_batch_size=1"}));
  ASSERT_EQ(run.code, 0) << run.err;
  const nlohmann::json json = nlohmann::json::parse(run.out);
  const int64_t rows = json["per_device_train_batch_size"];
  EXPECT_GT(rows, 1);
  EXPECT_EQ(json["fits"], true);
  // The policy is chosen for this size, as train would choose it.
  ASSERT_TRUE(json.contains("gradient_checkpointing_choice")) << run.out;
  EXPECT_EQ(json["gradient_checkpointing_choice"]["taken"], json["gradient_checkpointing"]);
  // The next size was compiled and did not fit.
  const size_t next = run.err.find(fmt::format("per_device_train_batch_size {}: ", rows + 1));
  ASSERT_NE(next, std::string::npos) << run.err;
  EXPECT_THAT(run.err.substr(next, run.err.find('\n', next) - next), HasSubstr("does not fit"));
}

// The step needs 1.7 MB with the first policy, so the card is too small for it. Another policy is chosen, which fits.
TEST(Plan, AutoTakesTheLeastRecomputationThatFits) {
  TempFolder folder;
  constexpr int64_t kRoom = 1'600'000;
  const Outcome run =
      run_fettle(folder, plan_words({"--target", small_card(folder, kRoom) + ":1", kFewWeights, "--json"}));
  ASSERT_EQ(run.code, 0) << run.err;
  const nlohmann::json json = nlohmann::json::parse(run.out);
  const nlohmann::json& choice = json["gradient_checkpointing_choice"];
  const nlohmann::json& first = choice["candidates"][0];
  EXPECT_EQ(first["policy"], "attention");
  EXPECT_GT(first["peak_bytes"], kRoom);
  EXPECT_NE(choice["taken"], "attention");
  EXPECT_EQ(json["gradient_checkpointing"], choice["taken"]);
  EXPECT_LE(json["per_device"]["peak_bytes"], kRoom);
}

// 64, the hidden size, is not divisible by 3. So fsdp cannot split the weights.
TEST(Train, MeshAutoTrainsAndEvaluatesOnThreeDevices) {
  TempFolder folder;
  const std::vector<std::string> three{"device_count=3", "mesh=auto", "per_device_train_batch_size=1"};
  const Outcome trained = run_fettle(folder, with(with(train_words(folder / "out"), three), {"max_steps=1"}));
  ASSERT_EQ(trained.code, 0) << trained.err;
  std::vector<std::string> words = with(train_words(folder / "eval"), three);
  words[0] = "eval";
  const Outcome measured = run_fettle(folder, with(words, {"adapter_name_or_path=" + (folder / "out").string()}));
  EXPECT_EQ(measured.code, 0) << measured.err;
  EXPECT_EQ(run_fettle(folder, plan_words({"plugin=cpu", "device_count=3", "mesh=auto", "--shards"})).code, 0);
}

double last_loss(const std::filesystem::path& output) {
  return nlohmann::json::parse(read_text(output / "all_results.json"))["train_loss"];
}

// The chosen mesh keeps the number of rows per step, so the losses stay the same.
TEST(Train, MeshAutoTrainsAsTheUsualMesh) {
  TempFolder folder;
  const std::vector<std::string> two{"device_count=2", "per_device_train_batch_size=1", "max_steps=3"};
  const Outcome usual = run_fettle(folder, with(train_words(folder.path() / "usual"), two));
  ASSERT_EQ(usual.code, 0) << usual.err;
  const Outcome chosen = run_fettle(folder, with(with(train_words(folder.path() / "auto"), two), {"mesh=auto"}));
  ASSERT_EQ(chosen.code, 0) << chosen.err;
  EXPECT_THAT(chosen.err, AllOf(HasSubstr("mesh: auto"), HasSubstr("taken")));
  EXPECT_NEAR(last_loss(folder.path() / "auto"), last_loss(folder.path() / "usual"), 1e-4);
}

}  // namespace
}  // namespace fettle
