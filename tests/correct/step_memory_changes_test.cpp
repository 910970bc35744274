// Tests which changes a step allows. `train` names these changes, and `plan` tries them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "memory_tables.h"
#include "step/memory/memory_changes.h"
#include "step/memory/require_fit.h"

namespace fettle {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
using Part = MemoryChange::Part;

MemoryTable table_of(const Run& run, int64_t peak, const MemoryShare& share) {
  return table_of(run, {.peak = peak}, share, "a card");
}

std::vector<std::string> texts(const std::vector<MemoryChange>& changes) {
  std::vector<std::string> out;
  for (const MemoryChange& change : changes)
    if (change.named) out.push_back(change.text);
  return out;
}

// Returns the texts of the trials.
std::vector<std::string> trials(const std::vector<MemoryChange>& changes) {
  std::vector<std::string> out;
  for (const MemoryChange& change : changes)
    for (const MemoryTrial& trial : change.trials) out.push_back(trial.text);
  return out;
}

// A step that does not fit, and the beginnings of its changes.
struct Case {
  std::string name;
  Recipe recipe;
  RunTarget target;
  int64_t peak, limit;
  std::vector<std::string> changes;
};

std::vector<Case> cases() {
  const RunTarget gpu{.platform = "cuda"};
  Recipe lora;
  lora.lora_rank = 1;
  lora.cutoff_len = 1024;
  Recipe full = lora;
  full.finetuning_type = "full";
  full.per_device_train_batch_size = 1;
  full.gradient_checkpointing = "none";
  Recipe disk = full;
  disk.bf16 = true;
  disk.offload_dir = "/tmp";
  Recipe split = lora;
  split.bf16 = true;
  split.mesh = {{"tp", 2}};
  const std::string rows = "a per_device_train_batch_size below 8 (raise", length = "a cutoff_len below 1024",
                    devices = "more devices (", param = "offload_param: true (", lora_type = "finetuning_type: lora";
  return {{"LoRA", lora, gpu, 500'000, 480'000, {rows, length, "bf16", "quantization_bit: 4", param, devices}},
          {"LoRA on a CPU", lora, {}, 500'000, 480'000, {rows, length, "bf16", "quantization_bit: 4"}},
          {"LoRA on tp",
           split,
           {.count = 2, .platform = "cuda"},
           180'000,
           150'000,
           {"sharding: {act_embed: tp}", rows, length, "quantization_bit: 4", param, devices}},
          {"full tuning",
           full,
           gpu,
           1'200'000,
           1'190'000,
           {"gradient_checkpointing: full", length, "bf16", "optim: adamw_8bit", "offload_optimizer: true (", param,
            devices, lora_type}},
          {"state on a disk",
           disk,
           gpu,
           500'000,
           400'000,
           {"gradient_checkpointing: full", length, "offload_dir_weights: true (", param, devices}}};
}

TEST(MemoryChanges, AreTheOnesThatAStepAllows) {
  for (const Case& step : cases()) {
    const auto run = job_for(step.recipe, step.target);
    const std::vector<MemoryChange> changes = memory_changes(run, table_of(run, step.peak, {.limit = step.limit}));
    std::vector<testing::Matcher<std::string>> wanted;
    for (const std::string& text : step.changes) wanted.emplace_back(StartsWith(text));
    EXPECT_THAT(texts(changes), testing::ElementsAreArray(wanted)) << step.name;
  }
}

// Both commands name the same changes: each text of the message is a change that `plan` tries.
TEST(MemoryChanges, TrainNamesTheOnesThatPlanTries) {
  for (const Case& step : cases()) {
    const auto run = job_for(step.recipe, step.target);
    const MemoryTable table = table_of(run, step.peak, {.limit = step.limit});
    std::string message;
    try {
      require_fit(run, table);
    } catch (const DoesNotFit& error) {
      message = error.what();
    }
    size_t named = std::string("; ").size();
    for (const MemoryChange& change : memory_changes(run, table)) {
      if (change.named) {
        EXPECT_THAT(message, HasSubstr(change.text)) << step.name;
        named += change.text.size() + 2;
      }
      EXPECT_NE(change.trials.empty(), change.more_devices == false) << step.name << ": " << change.text;
      for (const MemoryTrial& trial : change.trials)
        EXPECT_THAT(change.text, HasSubstr(trial.text.substr(0, trial.text.find(':')))) << step.name;
    }
    const std::string start = "To reduce it: ";
    EXPECT_EQ(message.size() - message.find(start) - start.size() + 4, named) << step.name << ": " << message;
  }
}

// A trial keeps the changes with which the step was resolved, and adds its own.
TEST(MemoryChanges, TrialsKeepEarlierChanges) {
  Recipe recipe;
  recipe.cutoff_len = 600;
  recipe.gradient_accumulation_steps = 2;
  const auto run = job_for(recipe);
  const Variant from{.gradient_checkpointing = "full", .mesh = {{{"fsdp", 4}, {"tp", 1}}}};
  // 2 of the 8 rows should fit: temporaries are 2 MB, and 0.5 MB of it are left.
  MemoryTable table = table_of(run, 0, {.limit = 1'000'000});
  table.temporaries = 2'000'000;
  table.peak = 2'500'000;
  const std::vector<MemoryChange> changes = memory_changes(run, table, from);
  for (const MemoryChange& change : changes)
    for (const MemoryTrial& trial : change.trials) {
      EXPECT_EQ(trial.variant.gradient_checkpointing, "full") << trial.text;
      EXPECT_EQ(trial.variant.mesh, from.mesh) << trial.text;
    }
  const std::string kept = " (the same number of rows per step)", mesh = "mesh: {fsdp: 4} and ";
  EXPECT_THAT(trials(changes),
              AllOf(Contains(mesh + "per_device_train_batch_size: 2 with gradient_accumulation_steps: 8" + kept),
                    Contains(mesh + "per_device_train_batch_size: 1 with gradient_accumulation_steps: 16" + kept),
                    Contains("cutoff_len: 300"), Contains("cutoff_len: 150"), Not(Contains("cutoff_len: 75"))));
  EXPECT_THAT(texts(changes), Contains(StartsWith(mesh + "a per_device_train_batch_size below 8 (")));
  EXPECT_EQ(changes[0].trials[0].variant.per_device_train_batch_size, 2);
  EXPECT_EQ(changes[0].trials[0].variant.gradient_accumulation_steps, 8);
}

// The card has 24 GB. The recipe's share is 22.8 GB, and a step may use 23 GB. The step itself stays as it is.
TEST(MemoryChanges, ALargerShareHasATrialThatFits) {
  const MemoryShare share = MemoryShare{.total = 24'000'000'000, .allowance = 1'000'000'000}.with_utilization(0.95);
  const auto run = job_for({});
  const auto shares = [&](int64_t peak) {
    std::vector<MemoryTrial> out;
    for (const MemoryChange& change : memory_changes(run, table_of(run, peak, share)))
      for (const MemoryTrial& trial : change.trials)
        if (trial.share) out.push_back(trial);
    return out;
  };
  ASSERT_EQ(shares(22'900'000'000).size(), 1u);
  const MemoryTrial trial = shares(22'900'000'000)[0];
  EXPECT_EQ(trial.text, "gpu_memory_utilization: 0.96");
  EXPECT_EQ(trial.share->limit, 23'000'000'000);
  EXPECT_TRUE(shares(23'000'000'001).empty());
}

// On the CPU, arrays in host memory take the same memory. A pipeline's arrays stay on its devices.
TEST(MemoryChanges, OnlyAGpuCanOffload) {
  Recipe usual;
  usual.finetuning_type = "full";
  Recipe pipeline = usual;
  pipeline.mesh = {{"pp", 2}};
  const auto offloads = [&](const Recipe& recipe, const std::string& platform) {
    const auto run = job_for(recipe, {.count = 2, .platform = platform});
    EXPECT_EQ(run.target.on_host(), platform == "cpu");
    const MemoryTable held{.optimizer = 1, .host_optimizer = 2};
    EXPECT_EQ(evaluation_peak(run, held, {.peak = 4}), platform == "cpu" ? 7 : 5);
    const MemoryTable table = table_of(run, 600'000, {.limit = 590'000});
    for (const std::string& text : texts(memory_changes(run, table)))
      if (text.starts_with("offload")) return true;
    return false;
  };
  for (const char* gpu : {"cuda", "rocm", "another"}) {
    EXPECT_TRUE(offloads(usual, gpu)) << gpu;
    EXPECT_FALSE(offloads(pipeline, gpu)) << gpu;
  }
  EXPECT_FALSE(offloads(usual, "cpu"));
}

// Offload moves more than the state and the weights: master weights and gradients, too. Then only a compiled step shows
// whether it is enough, so offload is named if it may be.
TEST(MemoryChanges, OffloadMayMoveMasterWeightsAndGradients) {
  Recipe recipe;
  recipe.finetuning_type = "full";
  recipe.bf16 = true;
  const auto run = job_for(recipe);
  // The state has 0.76 MB, the layers 0.25 MB, the gradients of all weights 0.38 MB.
  const auto changes = [&](int64_t missing) {
    return memory_changes(run, table_of(run, 1'500'000 + missing, {.limit = 1'500'000}));
  };
  const std::string state = "offload_optimizer: true (", both = "offload_param: true with offload_optimizer: true (";
  EXPECT_THAT(texts(changes(900'000)), AllOf(Contains(StartsWith(state)), Contains(StartsWith(both))));
  EXPECT_THAT(texts(changes(1'300'000)), AllOf(Not(Contains(StartsWith(state))), Contains(StartsWith(both))));
  EXPECT_THAT(texts(changes(1'500'000)), Not(Contains(StartsWith("offload"))));
  // `plan` tries them all the same, because the table does not count the scratch memory of an update.
  for (const int64_t missing : {900'000, 1'500'000})
    EXPECT_THAT(trials(changes(missing)), AllOf(Contains("offload_optimizer: true"), Contains("offload_param: true")));
}

}  // namespace
}  // namespace fettle
