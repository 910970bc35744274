// Tests `gradient_checkpointing: auto`. Of the policies that fit, it chooses the one that recomputes the least, and it
// compiles only a few.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "checkpoint/repository.h"
#include "gpu_plugin.h"
#include "plan/remat_choice.h"
#include "reference_models.h"
#include "resolve_run.h"
#include "step/step.h"
#include "temp_folder.h"

namespace fettle {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kBase = 10;

std::vector<RematCandidate> candidates() {
  return {{"attention", 80}, {"dots", 40}, {"25%", 30}, {"50%", 20}, {"75%", 10}, {"full", 0}};
}

// The result of a search. The peaks are made up: `base` + `slope` x saved bytes.
struct Searched {
  std::string taken;
  std::vector<std::string> compiled;
};
Searched search(int64_t room, int64_t base = kBase, double slope = 1) {
  std::vector<RematCandidate> all = candidates();
  Searched out;
  const size_t taken = least_that_fits(all, room, kBase, [&](const RematPolicy& policy) {
    out.compiled.emplace_back(policy.name);
    for (const RematCandidate& one : all)
      if (one.policy == policy.name) return base + static_cast<int64_t>(slope * static_cast<double>(one.saved));
    return int64_t{-1};
  });
  out.taken = all[taken].policy;
  return out;
}

TEST(RematChoice, CompilesOnlyOneWhenTheGuessIsRight) {
  for (const auto& [room, policy] : {std::pair{90, "attention"}, {89, "dots"}, {45, "25%"}, {10, "full"}}) {
    const Searched found = search(room);
    EXPECT_EQ(found.taken, policy);
    EXPECT_THAT(found.compiled, ElementsAre(policy)) << room;
  }
}

TEST(RematChoice, MovesDownWhenTheStepNeedsMoreThanTheGuess) {
  const Searched found = search(60, 35);
  EXPECT_EQ(found.taken, "50%");
  EXPECT_THAT(found.compiled, ElementsAre("dots", "50%"));
}

TEST(RematChoice, MovesUpWhenTheStepNeedsLessThanTheGuess) {
  const Searched found = search(45, 2);
  EXPECT_EQ(found.taken, "dots");
  EXPECT_THAT(found.compiled, ElementsAre("25%", "dots"));
}

// Each saved byte adds 2.5 bytes to the peak instead of 1. After two compilations, the estimates are on the line
// through both peaks, so the third policy is the right one.
TEST(RematChoice, LearnsTheSlope) {
  const Searched found = search(50, 12, 2.5);
  EXPECT_EQ(found.taken, "75%");
  EXPECT_THAT(found.compiled, ElementsAre("dots", "full", "75%"));
}

TEST(RematChoice, TakesTheLastWhenNothingFits) {
  const Searched found = search(5);
  EXPECT_EQ(found.taken, "full");
  EXPECT_THAT(found.compiled, ElementsAre("full"));
  EXPECT_EQ(search(50, 60).taken, "full");
}

// Peaks like those of a compiler that inlines the loop of a single layer: 25 % needs more memory than `attention`. No
// choice may recompute more than another compiled policy and also need more memory.
TEST(RematChoice, NeverTakesAHigherPeakWithMoreRecomputation) {
  const std::map<std::string_view, int64_t> peaks{{"attention", 112}, {"dots", 105}, {"25%", 113},
                                                  {"50%", 114},       {"75%", 115},  {"full", 116}};
  for (int64_t room = 90; room < 130; ++room)
    for (int64_t base = 0; base < 130; base += 5) {
      std::vector<RematCandidate> all = candidates();
      const size_t taken =
          least_that_fits(all, room, base, [&](const RematPolicy& policy) { return peaks.at(policy.name); });
      ASSERT_TRUE(all[taken].compiled);
      for (size_t i = 0; i < taken; ++i)
        if (all[i].compiled) {
          EXPECT_GT(all[i].peak, all[taken].peak) << all[i].policy << ", room " << room;
        }
    }
}

// For all peaks, at most three policies are compiled. The chosen policy was compiled and fits, or nothing that was
// compiled fits.
TEST(RematChoice, TakesOnlyWhatFits) {
  for (int64_t room = 5; room < 200; room += 7)
    for (int64_t base = 1; base < 100; base += 9)
      for (const double slope : {0.0, 0.3, 1.0, 1.7, 4.0}) {
        const Searched found = search(room, base, slope);
        EXPECT_LE(found.compiled.size(), 3u);
        const auto fits = [&](const std::string& policy) {
          for (const RematCandidate& one : candidates())
            if (one.policy == policy)
              return base + static_cast<int64_t>(slope * static_cast<double>(one.saved)) <= room;
          return false;
        };
        EXPECT_THAT(found.compiled, testing::Contains(found.taken));
        if (!fits(found.taken)) {
          EXPECT_THAT(found.compiled, testing::Each(testing::ResultOf(fits, false)));
          EXPECT_THAT(found.compiled, testing::Contains("full"));
        }
      }
}

TEST(RematChoice, ACpuLeavesAQuarterAndAtLeastOneGigabyte) {
  EXPECT_EQ(host_room(8'000'000'000, 1), 6'000'000'000);
  EXPECT_EQ(host_room(8'000'000'000, 2), 3'000'000'000) << "devices share the host's memory";
  EXPECT_EQ(host_room(3'000'000'000, 1), 2'000'000'000);
  EXPECT_EQ(host_room(500'000'000, 1), 0);
}

Run run_of(const std::vector<std::string>& words) {
  const std::string folder = reference_model("llama").string();
  std::vector<std::string> all{"model_name_or_path=" + folder, "cutoff_len=40"};
  all.insert(all.end(), words.begin(), words.end());
  return make_run(read_recipe("", all), ModelRepository::open(folder).config(), "config.json", 1);
}

std::vector<std::string> policies(Run run, int64_t room) {
  run.target.room.bytes = room;
  std::vector<std::string> names;
  for (const RematCandidate& one :
       choose_remat(run, fullest_shape(run.batch), [](const RematPolicy&) { return int64_t{1}; }).candidates)
    names.push_back(one.policy);
  return names;
}

// The model has two layers. So 25 % and 50 % are the same policy; 75 % and full are the same, too. `dots` is left out
// too: it saves attention's scores, which are larger here than the values between matrix products that `attention`
// saves.
TEST(RematChoice, LeavesOutPoliciesThatGainNothing) {
  const auto run = run_of({});
  EXPECT_TRUE(run.remat_auto);
  EXPECT_THAT(policies(run, 1), ElementsAre("attention", "linear", "25%", "full"));
  EXPECT_THAT(policies(run_of({"offload_param=true"}), 1), ElementsAre("attention", "linear", "full"));
}

// With four layers, 25 % is a loop of a single layer. Compilers inline such a loop. They must still compute the layer
// again instead of keeping its values, so 25 % needs less memory than `linear`.
TEST(RematChoice, PeaksFallWithMoreRecomputation) {
  TempFolder folder;
  write_text(folder / "config.json", R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"],
    "num_hidden_layers": 4, "hidden_size": 256, "intermediate_size": 768, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 512, "max_position_embeddings": 1024, "torch_dtype": "bfloat16"})");
  int64_t before = 0;
  for (const char* policy : {"25%", "linear"}) {
    const std::vector<std::string> words{"model_name_or_path=" + folder.path().string(),
                                         std::string("gradient_checkpointing=") + policy,
                                         "cutoff_len=512",
                                         "per_device_train_batch_size=1",
                                         "device_count=1",
                                         "plugin=cpu"};
    const Request request(read_recipe("", words), Command::kPlan);
    const int64_t peak = plan_step(request, {}, Machine::of(request)).memory.peak;
    EXPECT_GT(peak, before) << policy;
    before = peak;
  }
}

// XLA computes values again on its own when a program needs more than a share of the device's memory. It must not do so
// in a step that needs 85 % of it, as it would without Vendor::xla_flag.
TEST(RematChoice, TheCompilerRecomputesNothingInAStepThatFits) {
  require_gpu_plugin("cuda");
  TempFolder folder;
  write_text(folder / "config.json", R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"],
    "num_hidden_layers": 4, "hidden_size": 1024, "intermediate_size": 4096, "num_attention_heads": 8,
    "num_key_value_heads": 2, "vocab_size": 512, "max_position_embeddings": 2048, "torch_dtype": "bfloat16"})");
  const auto plan_on = [&](const std::string& target) {
    const Request request(
        read_recipe("", {"model_name_or_path=" + folder.path().string(), "cutoff_len=2048", "bf16=true",
                         "per_device_train_batch_size=32", "gradient_checkpointing=none", "target=" + target}),
        Command::kPlan);
    return plan_step(request, {}, Machine::of(request));
  };
  const StepPlan large = plan_on("h100");
  // The program needs its peak. What the libraries of the device need comes on top.
  const double gib = static_cast<double>(large.memory.peak) / 0.85 / (1 << 30);
  EXPECT_GT(gib, 10);
  write_text(folder / "small.yaml", fmt::format("like: h100\nmemory_gib: {:.2f}\n", gib));
  const StepPlan small = plan_on((folder / "small.yaml").string());
  EXPECT_NEAR(small.timeline->seconds, large.timeline->seconds, 0.01 * large.timeline->seconds);
}

TEST(RematChoice, TakesTheLeastMemoryWhenTheRoomIsNotKnown) {
  const auto run = run_of({});
  const RematChoice choice = choose_remat(run, fullest_shape(run.batch), [](const RematPolicy&) -> int64_t {
    ADD_FAILURE() << "nothing is compiled";
    return 0;
  });
  EXPECT_EQ(choice.policy(), "full");
  EXPECT_THAT(format_remat(choice), HasSubstr("limit is not known"));
}

// A run of eight micro-batches on a GPU with this memory. The recipe's `words` come last.
Run gpu_run(int64_t room, const std::vector<std::string>& words = {}) {
  std::vector<std::string> all{"gradient_accumulation_steps=8", "per_device_train_batch_size=1"};
  all.insert(all.end(), words.begin(), words.end());
  Run run = run_of(all);
  run.target.platform = "cuda";
  run.target.room.bytes = room;
  return run;
}

std::vector<int64_t> factors(const Run& run, int64_t length) {
  BatchShape shape = fullest_shape(run.batch);
  shape.length = length;
  return merge_factors(run, shape);
}

TEST(MergedMicroBatches, AreAtMostLargeEnoughToKeepAGpuBusy) {
  constexpr int64_t kRoom = 1'000'000'000;
  EXPECT_THAT(factors(gpu_run(kRoom), 512), ElementsAre(8, 4, 2, 1));
  EXPECT_THAT(factors(gpu_run(kRoom), 2048), ElementsAre(4, 2, 1));
  EXPECT_THAT(factors(gpu_run(kRoom), 4097), ElementsAre(1));
  EXPECT_THAT(factors(gpu_run(kRoom, {"per_device_train_batch_size=2"}), 2048), ElementsAre(2, 1));
  EXPECT_THAT(factors(gpu_run(kRoom, {"gradient_accumulation_steps=6"}), 512), ElementsAre(6, 3, 2, 1));
  EXPECT_THAT(factors(gpu_run(0), 512), ElementsAre(1)) << "the memory is not known";
  EXPECT_THAT(factors(gpu_run(kRoom, {"stage=kto"}), 512), ElementsAre(1)) << "the loss compares rows";
  auto experts = gpu_run(kRoom, {"per_device_train_batch_size=2"});
  experts.batch.ep = 2;
  EXPECT_THAT(factors(experts, 2048), ElementsAre(4, 2, 1)) << "two devices share the rows";
  auto cpu = gpu_run(kRoom);
  cpu.target.platform = "cpu";
  EXPECT_THAT(factors(cpu, 512), ElementsAre(1));
}

// Makes up the memory of a step: each micro-batch that is computed at once takes `each` bytes, half of it with a policy
// that is not the first. Returns the choice and, in `compiled`, what was compiled.
RematChoice choice_of(int64_t room, int64_t each, std::vector<std::string>& compiled) {
  return choose_step(gpu_run(room), fullest_shape, [&](const Run& run) {
    const int64_t at_once = 8 / run.batch.micro_batches;
    EXPECT_EQ(run.batch.sequences, at_once);
    compiled.push_back(fmt::format("{} {}", at_once, run.remat.name));
    return at_once * each / (run.remat.name == "attention" ? 1 : 2);
  });
}

TEST(MergedMicroBatches, NeedNoMoreRecomputation) {
  constexpr int64_t kRoom = 1'000'000'000;
  std::vector<std::string> compiled;
  RematChoice choice = choice_of(kRoom, kRoom / 9, compiled);
  EXPECT_EQ(choice.merged, 8);
  EXPECT_EQ(choice.policy(), "attention");
  EXPECT_THAT(compiled, ElementsAre("8 attention"));
  EXPECT_THAT(format_remat(choice), HasSubstr("auto chooses attention, and 8 of a step's 8 micro-batches at once; "));
  EXPECT_EQ(to_json(choice)["micro_batches_at_once"], 8);

  compiled.clear();
  choice = choice_of(kRoom, kRoom / 3, compiled);
  EXPECT_EQ(choice.merged, 2);
  EXPECT_EQ(choice.policy(), "attention");
  EXPECT_THAT(compiled, ElementsAre("8 attention", "4 attention", "2 attention"));

  compiled.clear();
  choice = choice_of(kRoom, kRoom * 3 / 2, compiled);
  EXPECT_EQ(choice.merged, 1);
  EXPECT_NE(choice.policy(), "attention");
  EXPECT_THAT(format_remat(choice), testing::Not(HasSubstr("at once")));
}

// An estimate above the room is enough to leave a candidate out.
TEST(MergedMicroBatches, AreNotCompiledIfTheyCannotFit) {
  std::vector<std::string> compiled;
  EXPECT_EQ(choice_of(1, 1, compiled).merged, 1);
  EXPECT_THAT(compiled, testing::Each(testing::StartsWith("1 ")));
}

TEST(MergedMicroBatches, AResumedRunDoesTheSameIfItsRecipeIsTheSame) {
  constexpr int64_t kRoom = 1'000'000'000;
  const auto merged = [](const auto& run, int64_t micro_batches, int64_t merged) {
    return merged_as_before(run, fullest_shape(run.batch), {"attention", micro_batches, merged});
  };
  EXPECT_EQ(merged(gpu_run(kRoom), 8, 4), 4);
  EXPECT_EQ(merged(gpu_run(kRoom), 8, 1), 1);
  EXPECT_EQ(merged(gpu_run(kRoom), 1, 1), 1) << "the recipe has more micro-batches now";
  EXPECT_EQ(merged(gpu_run(kRoom), 16, 4), 1);
  EXPECT_EQ(merged(gpu_run(kRoom), 8, 3), 1);
  EXPECT_EQ(merged(gpu_run(kRoom, {"stage=kto"}), 8, 4), 1) << "rows must stay in their micro-batch now";
  EXPECT_EQ(merged(gpu_run(kRoom), 0, 1), 1) << "an earlier version wrote the checkpoint";
}

// If one micro-batch remains, full tuning needs no sums of gradients in float32. An adapter's sums are small, so its
// rows may still move to further micro-batches.
TEST(MergedMicroBatches, OneNeedsNoSumsInFullTuning) {
  const auto lines = [](const std::string& type, int64_t times) {
    return with_merged(gpu_run(1, {"finetuning_type=" + type}), times).batch.lines;
  };
  EXPECT_EQ(lines("full", 8), Lines::kShared);
  EXPECT_EQ(lines("full", 4), Lines::kRegrouped);
  EXPECT_EQ(lines("full", 1), Lines::kRegrouped);
  EXPECT_EQ(lines("lora", 8), Lines::kRegrouped);
  // Gradients that leave the device for a disk have the dtype that the program gives them.
  const TempFolder disk;
  const auto on_disk = gpu_run(1, {"finetuning_type=full", "pure_bf16=true", "offload_dir=" + disk.path().string()});
  EXPECT_TRUE(on_disk.state_on_disk());
  EXPECT_EQ(on_disk.precision.trained, DType::kBF16);
  for (const int64_t times : {1, 2, 8}) {
    const auto merged = with_merged(on_disk, times);
    EXPECT_NO_THROW(build_train_step(merged, fullest_shape(merged.batch))) << times;
  }
}

TEST(RematChoice, AKeyOfTheRecipeWins) {
  EXPECT_FALSE(run_of({"gradient_checkpointing=true"}).remat_auto);
  EXPECT_EQ(run_of({"gradient_checkpointing=true"}).remat.name, "full");
  EXPECT_EQ(run_of({"gradient_checkpointing=false"}).remat.name, "none");
  EXPECT_EQ(run_of({"gradient_checkpointing=50%"}).remat.full_percent, 50);
}

TEST(RematChoice, ShowsWhatOthersNeed) {
  const RematChoice choice{
      {{"attention", 80, 90'000'000, true}, {"dots", 40, 50'000'000, true}, {"full", 0, 20'000'000}},
      1,
      {60'000'000, "the device's limit"}};
  const std::string text = format_remat(choice);
  EXPECT_THAT(text, HasSubstr("auto chooses dots; a step may take 60.00 MB (the device's limit)"));
  EXPECT_THAT(text, HasSubstr("attention     90.00 MB  compiler's count, does not fit"));
  EXPECT_THAT(text, HasSubstr("dots          50.00 MB  compiler's count, taken"));
  EXPECT_THAT(text, HasSubstr("full          20.00 MB  estimated, recomputes more"));
}

}  // namespace
}  // namespace fettle
