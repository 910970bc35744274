// Compiles the examples' recipes for hardware that is not present. They fit, as their README says, and compiling them
// needs no more memory than a laptop has.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gpu_plugin.h"
#include "paths.h"
#include "run_fettle.h"

namespace fettle {
namespace {

const std::filesystem::path kExamples = source_folder() / "examples";

struct Recipe {
  const char* name;
  const char* file;  // within the folder of the examples
  const char* plugin;
  std::vector<std::string> changes;
  double most;  // largest share of a device's memory that the step may need
};

void PrintTo(const Recipe& recipe, std::ostream* out) {
  *out << recipe.file;
}

const std::vector<Recipe> kRecipes{
    {"Llama405BOfTheSeed", "llama3.1-405b-lora-8xmi300x/recipe.yaml", "rocm", {"cutoff_len=64"}, 0.55},
    {"Llama405B", "llama3.1-405b-lora-8xmi300x/recipe.yaml", "rocm", {}, 0.80},
    {"Llama8BOnH200", "llama3.1-8b-lora-h200/recipe.yaml", "cuda", {}, 0.50},
    {"Llama8BOnMI300X", "llama3.1-8b-lora-mi300x/recipe.yaml", "rocm", {}, 0.50},
    {"Llama8BRowOf128kOnMI300X",
     "llama3.1-8b-lora-mi300x/recipe.yaml",
     "rocm",
     {"target=mi300x:8", "mesh.sp=8", "cutoff_len=131072", "per_device_train_batch_size=1",
      "gradient_accumulation_steps=1"},
     0.15},
    {"Llama70BFull", "llama2-70b-full-2x8a100/recipe.yaml", "cuda", {}, 0.95},
    {"Llama70BQlora", "llama2-70b-qlora-2x24gb/recipe.yaml", "cuda", {}, 0.90},
    {"Llama405BQlora", "llama3.1-405b-qlora-8xa100-40/recipe.yaml", "cuda", {}, 0.90},
    {"Llama7BFullOn16GB", "llama2-7b-full-16gb/recipe.yaml", "cuda", {}, 0.40},
    {"Qwen7B", "qwen2.5-7b-lora-24gb/recipe.yaml", "cuda", {}, 0.85},
    {"NewerQwen35BQlora", "newer-models/qwen3.5-35b-a3b-qlora-24gb.yaml", "cuda", {}, 0.95},
    {"NewerQwen35BLora", "newer-models/qwen3.5-35b-a3b-lora-80gb.yaml", "cuda", {}, 0.95},
    {"NewerGemma31BQlora", "newer-models/gemma-4-31b-qlora-24gb.yaml", "cuda", {}, 0.95},
    {"NewerGptOss20B", "newer-models/gpt-oss-20b-24gb.yaml", "cuda", {}, 0.80},
    {"NewerGptOss120B", "newer-models/gpt-oss-120b-80gb.yaml", "cuda", {}, 0.82},
    {"NewerDeepseekV3", "newer-models/deepseek-v3-lora-8xmi300x.yaml", "rocm", {}, 0.95},
    {"NewerDeepseekV3Float8", "newer-models/deepseek-v3-lora-8xh200.yaml", "cuda", {}, 0.70},
    {"NewerDeepseekV3Qlora", "newer-models/deepseek-v3-qlora-8xh200.yaml", "cuda", {}, 0.40},
    {"NewerKimiK2Qlora", "newer-models/kimi-k2-qlora-16xmi300x.yaml", "rocm", {}, 0.20},
};

class PlanExample : public testing::TestWithParam<Recipe> {
 protected:
  void SetUp() override { require_gpu_plugin(GetParam().plugin); }
};

TEST_P(PlanExample, FitsItsTarget) {
  TempFolder folder;
  const auto& [name, example, plugin, changes, most] = GetParam();
  Running running(folder.path(), with({"plan", (kExamples / example).string(), "--json"}, changes), "",
                  source_folder().string());
  const Outcome run = running.wait();
  ASSERT_EQ(run.code, 0) << run.err;
  const auto plan = nlohmann::json::parse(run.out);
  EXPECT_EQ(plan["fits"], true);
  const double peak = plan["per_device"]["peak_bytes"], memory = plan["per_device"]["memory_bytes"];
  EXPECT_GT(peak, plan["per_device"]["trained_bytes"].get<double>());
  EXPECT_LE(peak, most * memory) << plan["per_device"];
  constexpr int64_t kMostToCompile = 2'000'000'000;
  EXPECT_LE(run.most_resident, kMostToCompile);
}

INSTANTIATE_TEST_SUITE_P(Recipes, PlanExample, testing::ValuesIn(kRecipes),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(PlanExamples, EveryRecipeForATargetIsTested) {
  std::set<std::string> tested;
  for (const Recipe& recipe : kRecipes) tested.insert(recipe.file);
  size_t found = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(kExamples)) {
    if (entry.path().extension() != ".yaml" || read_text(entry.path()).find("\ntarget:") == std::string::npos) continue;
    ++found;
    EXPECT_EQ(tested.count(entry.path().lexically_relative(kExamples)), 1u) << entry.path();
  }
  EXPECT_EQ(found, tested.size());
}

// Runs the SLURM script with a fake fettle that gives prepared answers.
class Sbatch : public testing::Test {
 protected:
  int run(const std::string& answers) {
    write_text(folder / "fettle",
               "#!/bin/sh\necho \"$@\" >> " + (folder / "calls").string() + "\ncase $1 in\n" + answers + "\nesac\n");
    write_text(folder / "srun",
               "#!/bin/sh\nwhile case $1 in -*) true;; *) false;; esac; do shift; done\nexec \"$@\"\n");
    for (const char* file : {"fettle", "srun"})
      std::filesystem::permissions(folder / file, std::filesystem::perms::owner_all);
    const std::string script = (kExamples / "llama2-70b-full-2x8a100/train.sbatch").string();
    const int status = std::system(("PATH=" + folder.path().string() + ":$PATH MODEL=/models/l70 FETTLE=" +
                                    (folder / "fettle").string() + " bash " + script + " max_steps=7 2> /dev/null")
                                       .c_str());
    return WEXITSTATUS(status);
  }
  std::string calls() const { return read_text(folder / "calls"); }
  TempFolder folder;
};

TEST_F(Sbatch, StopsWhenThePlanDoesNotFit) {
  EXPECT_EQ(run("plan) exit 3;;"), 3);
  EXPECT_EQ(calls(), "plan examples/llama2-70b-full-2x8a100/recipe.yaml model_name_or_path=/models/l70 max_steps=7\n");
}

TEST_F(Sbatch, EndsWithTheCodeOfTheRun) {
  EXPECT_EQ(run("plan) exit 0;;\ntrain) exit 4;;"), 4);
}

TEST_F(Sbatch, TrainsThePlannedRun) {
  EXPECT_EQ(run("plan) exit 0;;\ntrain) exit 0;;"), 0);
  EXPECT_THAT(calls(), testing::EndsWith("train examples/llama2-70b-full-2x8a100/recipe.yaml "
                                         "model_name_or_path=/models/l70 resume_from_checkpoint=true max_steps=7\n"));
}

}  // namespace
}  // namespace fettle
