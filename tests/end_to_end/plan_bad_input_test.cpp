// Tests bad input of plan and mesh: one clear message with the sizes or the valid names, the right exit code, and no
// compilation.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gpu_plugin.h"
#include "paths.h"
#include "run_fettle.h"

namespace fettle {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::vector<std::string> plan_words(const std::vector<std::string>& more) {
  return with({"plan", "model_name_or_path=" + reference_model("llama").string(), "per_device_train_batch_size=2",
               "cutoff_len=40", "lora_rank=4", "compile_cache=off"},
              more);
}

struct BadPlan {
  const char* name;
  std::vector<std::string> words;
  int code;
  std::vector<std::string> said;
};

void PrintTo(const BadPlan& bad, std::ostream* out) {
  *out << bad.name;
}

class PlanBadInput : public testing::TestWithParam<BadPlan> {};

TEST_P(PlanBadInput, IsRefusedWithARemedy) {
  TempFolder folder;
  const Outcome run = run_fettle(folder, plan_words(GetParam().words));
  EXPECT_EQ(run.code, GetParam().code) << run.err;
  EXPECT_EQ(run.out, "");
  for (const std::string& text : GetParam().said) EXPECT_THAT(run.err, HasSubstr(text));
}

// The model has 4 heads, 2 key heads, hidden size 64 and MLP size 96.
INSTANTIATE_TEST_SUITE_P(
    Meshes, PlanBadInput,
    testing::Values(
        BadPlan{"WeightsThatDoNotDivide", {"plugin=cpu", "mesh.fsdp=5"}, 2, {"(64) is not divisible by fsdp (5)"}},
        BadPlan{"HeadsThatDoNotDivide", {"plugin=cpu", "mesh.tp=8"}, 2, {"tp 8", "num_attention_heads (4)"}},
        BadPlan{
            "KeyHeadsThatDoNotDivide", {"plugin=cpu", "mesh.fsdp=64"}, 2, {"kv_heads (32)", "by fsdp (64)", "k_proj"}},
        BadPlan{"UnknownAxis", {"plugin=cpu", "mesh.tensor=2"}, 2, {"tensor", "fsdp"}},
        BadPlan{"AnAxisOfNothing", {"plugin=cpu", "mesh.fsdp=0"}, 2, {"mesh", "0"}},
        BadPlan{"MoreDevicesThanThereAre",
                {"plugin=cpu", "device_count=4", "mesh.fsdp=8"},
                2,
                {"fsdp 8 = 8 devices", "device_count is 4"}},
        BadPlan{"UnknownLogicalAxis", {"plugin=cpu", "sharding.embd=fsdp"}, 2, {"embd", "embed"}},
        BadPlan{"RuleForAnUnknownAxis", {"plugin=cpu", "sharding.embed=fsdq"}, 2, {"fsdq", "fsdp"}}),
    [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Targets, PlanBadInput,
    testing::Values(
        BadPlan{"UnknownTarget", {"--target", "mi300y:8"}, 2, {"mi300y", "did you mean mi300x?", "h200"}},
        BadPlan{"TwoNearNames", {"--target", "a100:8"}, 2, {"a100-40 or a100-80"}},
        BadPlan{"NoDevices", {"--target", "mi300x:0"}, 2, {"mi300x:0", "NAME:DEVICES"}},
        BadPlan{"NoName", {"--target", ":8"}, 2, {"':8'", "NAME:DEVICES"}},
        BadPlan{"HalfAProduct", {"--target", "mi300x:8x"}, 2, {"mi300x:8x", "HOSTSxDEVICES"}},
        BadPlan{"ThreeFactors", {"--target", "mi300x:2x2x2"}, 2, {"mi300x:2x2x2", "HOSTSxDEVICES"}},
        BadPlan{"MoreThanAnyoneHas", {"--target", "mi300x:99999x99999"}, 2, {"9999800001 devices", "at most 65536"}},
        BadPlan{"DevicesInWords", {"--target", "mi300x:eight"}, 2, {"mi300x:eight", "NAME:DEVICES"}},
        BadPlan{"DevicesUnlikeTheMesh",
                {"--target", "mi300x:8", "mesh.fsdp=4", "mesh.tp=4"},
                2,
                {"mi300x:8", "8 devices", "16"}},
        BadPlan{"DevicesUnlikeDeviceCount", {"--target", "mi300x:8", "device_count=4"}, 2, {"8 devices", "4"}},
        BadPlan{"NotAheadOfTime", {"--target", "mi300x:8", "plugin=cpu"}, 4, {"cpu", "cannot compile", "make plugins"}},
        BadPlan{"NoPlugin", {"--target", "mi300x:8", "plugin=/nowhere/rocm.so"}, 4, {"/nowhere/rocm.so"}}),
    [](const auto& info) { return info.param.name; });

class OtherVendor : public testing::TestWithParam<std::pair<std::string, std::string>> {
 protected:
  void SetUp() override { require_gpu_plugin(GetParam().first); }
};

// Without Fettle's check, the plugin would end the process.
TEST_P(OtherVendor, IsRefusedBeforeThePluginGetsIt) {
  const auto& [plugin, target] = GetParam();
  TempFolder folder;
  const Outcome run = run_fettle(folder, plan_words({"plugin=" + plugin, "--target", target}));
  EXPECT_EQ(run.code, 2) << run.err;
  EXPECT_THAT(run.err, AllOf(HasSubstr("plugin"), HasSubstr("sets " + plugin)));
}

INSTANTIATE_TEST_SUITE_P(Plugins, OtherVendor,
                         testing::Values(std::pair{"cuda", "mi300x:8"}, std::pair{"rocm", "h200:8"}),
                         [](const auto& info) { return info.param.first; });

// Returns the words of a run that trains all 70 B parameters of a model in f32 in this machine's memory.
std::vector<std::string> too_large(const std::filesystem::path& output) {
  return {"model_name_or_path=" + (source_folder() / "examples/models/llama2-70b").string(),
          "plugin=cpu",
          "finetuning_type=full",
          "train_from_scratch=true",
          "stage=pt",
          "cutoff_len=64",
          "per_device_train_batch_size=1",
          "compile_cache=off",
          "output_dir=" + output.string()};
}

TEST(HostMemory, APlanForThisMachineThatDoesNotFit) {
  TempFolder folder;
  const Outcome run = run_fettle(folder, with({"plan"}, too_large(folder / "out")));
  EXPECT_EQ(run.code, 3) << run.err;
  EXPECT_THAT(run.out + run.err, AllOf(HasSubstr("GB"), HasSubstr("weights")));
}

TEST(HostMemory, APlanForTheMeshesOfThisMachineThatDoNotFit) {
  TempFolder folder;
  const Outcome run =
      run_fettle(folder, with({"plan", "mesh=auto", "device_count=2", "--json"}, too_large(folder / "out")));
  ASSERT_EQ(run.code, 3) << run.err;
  const nlohmann::json json = nlohmann::json::parse(run.out);
  EXPECT_EQ(json["fits"], false);
  EXPECT_TRUE(json.contains("remedies"));
  ASSERT_EQ(json["meshes"].size(), 1u) << "the mesh with the fewest bytes per device";
  EXPECT_EQ(json["meshes"][0]["verdict"], "does not fit");
}

TEST(HostMemory, TrainingIsRefusedBeforeAnythingIsRead) {
  TempFolder folder;
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{}, std::vector<std::string>{"mesh=auto", "device_count=2"}}) {
    const Outcome run =
        run_fettle(folder, with(with({"train", "dataset=/nowhere/rows.jsonl"}, too_large(folder / "out")), more));
    EXPECT_EQ(run.code, 3) << run.err;
    EXPECT_THAT(run.err, AllOf(HasSubstr("GB"), HasSubstr("optim: adamw_8bit")));
    EXPECT_FALSE(std::filesystem::exists(folder / "out"));
  }
}

// The rows of the step are short, but the held-out row is so long that its evaluation needs more than 1.5 GB.
TEST(HostMemory, TrainingIsRefusedIfTheEvaluationDoesNotFit) {
  TempFolder folder;
  std::string ids = "5";
  for (int i = 1; i < 131'072; ++i) ids += ",5";
  write_text(folder / "held_out.jsonl", "{\"input_ids\": [" + ids + "]}\n");
  const std::vector<std::string> words =
      with(train_words(folder / "out"),
           {"cutoff_len=131072", "per_device_train_batch_size=1", "per_device_eval_batch_size=2", "kernels=off",
            "eval_dataset=" + (folder / "held_out.jsonl").string(), "eval_strategy=epoch"});
  const Outcome run = Running(folder.path(), words, "", "", rlim_t{1'500'000'000}).wait();
  EXPECT_EQ(run.code, 3) << run.err;
  EXPECT_THAT(run.err, AllOf(HasSubstr("an evaluation needs "), HasSubstr("a per_device_eval_batch_size below 2")));
  EXPECT_FALSE(std::filesystem::exists(folder / "out/trainer_log.jsonl"));
}

// With 300 MiB, the program starts, but it has too little memory to compile.
TEST(HostMemory, CompilingNeedsMemory) {
  TempFolder folder;
  const Outcome run = Running(folder.path(), plan_words({"plugin=cpu"}), "", "", rlim_t{300} << 20).wait();
  EXPECT_EQ(run.code, 3) << run.err;
  EXPECT_THAT(run.err, AllOf(HasSubstr("compiling"), HasSubstr("are free")));
}

}  // namespace
}  // namespace fettle
