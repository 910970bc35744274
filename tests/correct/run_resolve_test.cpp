// Tests the values of a Run that resolve derives from the recipe.
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "paths.h"
#include "resolve_run.h"
#include "temp_folder.h"

namespace fettle {
namespace {

// Without training, fsdp takes the place of pp, or dp if fsdp does not divide the weights.
TEST(Resolve, APipelineIsForTraining) {
  const std::string file = (source_folder() / "tests/reference/models/llama/config.json").string();
  auto title = [&](const std::string& mesh, int64_t devices, Purpose purpose) {
    const Recipe recipe = read_recipe("", {"mesh=" + mesh});
    return mesh_title(
        make_run(recipe, nlohmann::json::parse(std::ifstream(file)), file, devices, purpose).sharding.mesh());
  };
  EXPECT_EQ(title("pp=2,tp=2", 4, Purpose::kTraining), "mesh pp 2 x tp 2");
  EXPECT_EQ(title("pp=2,tp=2", 4, Purpose::kInference), "mesh fsdp 2 x tp 2");
  EXPECT_EQ(title("pp=2,fsdp=2", 4, Purpose::kEvaluation), "mesh fsdp 4");
  EXPECT_EQ(title("pp=3", 3, Purpose::kInference), "mesh dp 3") << "fsdp 3 does not divide the weights";
}

// The corrections of DeepSeek V3's routers are frozen in full tuning, too, because no gradient trains them.
TEST(Resolve, NamesTheMethodAlsoIfTheModelHasBuffers) {
  for (const char* model : {"llama", "deepseek_v3"})
    for (const std::string type : {"lora", "full", "freeze"}) {
      const std::string file = (source_folder() / "tests/reference/models" / model / "config.json").string();
      const Recipe recipe = read_recipe("", {"finetuning_type=" + type});
      const auto run = make_run(recipe, nlohmann::json::parse(std::ifstream(file)), file, 1);
      EXPECT_EQ(run.method(), type) << model;
      EXPECT_EQ(run.frozen.empty(), type == "full" && model == std::string("llama")) << model << ' ' << type;
    }
}

// The adapter keeps its own options. Keys of the recipe that ask for others have no effect, and a warning says so.
TEST(Resolve, AContinuedAdapterKeepsItsOptions) {
  const std::filesystem::path models = source_folder() / "tests/reference/models";
  const TempFolder folder;
  std::filesystem::copy(models / "llama/adapter_init", folder / "a");
  auto config = nlohmann::json::parse(std::ifstream(folder / "a/adapter_config.json"));
  config["lora_dropout"] = 0.25;
  write_text(folder / "a/adapter_config.json", config.dump());
  const std::string file = (models / "llama/config.json").string();
  std::string said;
  const auto options = [&](std::vector<std::string> words) {
    words.push_back("adapter_name_or_path=" + (folder / "a").string());
    const auto run = make_run(read_recipe("", words), nlohmann::json::parse(std::ifstream(file)), file, 1);
    said = fmt::format("{}", fmt::join(run.remarks.warnings, "\n"));
    return *run.adapter.lora;
  };
  const LoraOptions own = options({});
  EXPECT_EQ(said, "");
  EXPECT_EQ(own.dropout, 0.25);
  EXPECT_EQ(options({"lora_dropout=0"}).dropout, 0);
  EXPECT_EQ(options({"stage=dpo"}).active_dropout(), 0) << "dropout is off in this stage";
  EXPECT_EQ(options({"stage=dpo"}).dropout, 0.25) << "the adapter keeps its value for later runs";
  EXPECT_EQ(options({"stage=dpo", "disable_dropout=false"}).active_dropout(), 0.25);
  options({"lora_rank=4", "lora_alpha=8", "lora_target=all", "use_rslora=false", "use_dora=false"});
  EXPECT_EQ(said, "") << "the adapter has these options";
  for (const std::string word : {"lora_rank=8", "lora_alpha=77", "use_rslora=true", "use_dora=true",
                                 "lora_target=q_proj", "additional_target=lm_head"}) {
    const LoraOptions same = options({word});
    EXPECT_EQ(same.rank, own.rank);
    EXPECT_EQ(same.alpha, own.alpha);
    EXPECT_EQ(same.saved, own.saved);
    EXPECT_NE(said.find(word.substr(0, word.find('=')) + " has no effect"), std::string::npos) << word << ": " << said;
  }
}

// tests/reference/schedules.json has Transformers' rates for its default lr_end, at this learning rate.
TEST(Resolve, PolynomialScheduleEndsAsInTransformers) {
  const std::string file = (source_folder() / "tests/reference/models/llama/config.json").string();
  const auto schedules = nlohmann::json::parse(std::ifstream(source_folder() / "tests/reference/schedules.json"));
  auto schedule_of = [&](const std::vector<std::string>& words) {
    const auto run = make_run(read_recipe("", words), nlohmann::json::parse(std::ifstream(file)), file, 1);
    Schedule out = run.length.schedule;
    out.total_steps = schedules["steps"];
    return out;
  };
  const Schedule usual = schedule_of({"lr_scheduler_type=polynomial", "learning_rate=1e-6"});
  const std::vector<double> wanted = schedules["polynomial_by_default"];
  for (size_t step = 0; step < wanted.size(); ++step)
    EXPECT_NEAR(usual.multiplier(static_cast<int64_t>(step)), wanted[step], 1e-8) << step;
  EXPECT_EQ(schedule_of({"lr_scheduler_type=polynomial", "learning_rate=1e-6", "min_lr=0"}).min_rate, 0);
}

// PEFT refuses a dropout in the config of an adapter of experts.
TEST(Resolve, AdaptersOfExpertsHaveNoDropout) {
  const std::string file = (source_folder() / "tests/reference/models/qwen3_moe/config.json").string();
  const Recipe recipe = read_recipe("", {"stage=dpo", "lora_dropout=0.1", "target_parameters=mlp.experts.down_proj"});
  const auto run = make_run(recipe, nlohmann::json::parse(std::ifstream(file)), file, 1);
  EXPECT_EQ(run.adapter.lora->dropout, 0);
}

// LLaMA-Factory's keys choose an optimizer although `optim` is given.
TEST(Resolve, KeysThatChooseAnOptimizer) {
  const std::string file = (source_folder() / "tests/reference/models/llama/config.json").string();
  for (const auto& [key, rule] :
       {std::pair{"use_muon", "muon"}, {"use_adam_mini", "adam_mini"}, {"use_apollo", "apollo_adamw"}}) {
    const Recipe recipe = read_recipe("", {"finetuning_type=full", "optim=adamw_torch", std::string(key) + "=true"});
    const auto run = make_run(recipe, nlohmann::json::parse(std::ifstream(file)), file, 1);
    EXPECT_EQ(run.optimizer.rule->name, rule);
  }
}

// A tool's default weight counts only where Transformers has a balancing loss. The recipe's own weight counts for all
// models with experts; other models have no use for it.
TEST(Resolve, WeightOfTheLossThatBalancesExperts) {
  const auto run_of = [](const std::string& model, const Recipe& recipe) {
    const std::string file = (source_folder() / "tests/reference/models" / model / "config.json").string();
    return make_run(recipe, nlohmann::json::parse(std::ifstream(file)), file, 1);
  };
  const auto weight = [&](const std::string& model, const Recipe& recipe) {
    return run_of(model, recipe).model.config.router_aux_loss_coef;
  };
  const auto warnings = [&](const std::string& model, const Recipe& recipe) {
    return fmt::format("{}", fmt::join(run_of(model, recipe).remarks.warnings, "\n"));
  };
  Recipe by_tool, own, zero;
  by_tool.moe_aux_loss_default = 0.25;
  own.moe_aux_loss_coef = 0.5;
  zero.moe_aux_loss_coef = 0;
  EXPECT_EQ(weight("qwen3_moe", by_tool), 0.25);
  EXPECT_EQ(weight("mixtral", by_tool), 0.25) << "also instead of config.json's";
  for (const char* without : {"deepseek_v3", "ernie4_5_moe", "llama"})
    EXPECT_EQ(weight(without, by_tool), 0) << without;
  const auto warns = [&](const std::string& model, const Recipe& recipe) {
    return warnings(model, recipe).find("without a loss that balances them") != std::string::npos;
  };
  EXPECT_TRUE(warns("ernie4_5_moe", by_tool));
  EXPECT_FALSE(warns("qwen3_moe", by_tool));
  EXPECT_FALSE(warns("ernie4_5_moe", Recipe{}));
  EXPECT_FALSE(warns("ernie4_5_moe", own));
  Recipe asks;
  asks.output_router_logits = "true";
  for (const char* without : {"minimax_m2", "ernie4_5_moe"}) {
    EXPECT_TRUE(warns(without, asks)) << without;
    EXPECT_EQ(weight(without, asks), 0) << without;
  }
  EXPECT_EQ(weight("mixtral", asks), 0.05) << "config.json's";
  by_tool.output_router_logits = "true";
  EXPECT_EQ(weight("mixtral", by_tool), 0.25);
  EXPECT_TRUE(warns("deepseek_v3", by_tool));
  by_tool.output_router_logits = "false";
  EXPECT_EQ(weight("mixtral", by_tool), 0);
  EXPECT_FALSE(warns("deepseek_v3", by_tool));
  by_tool.output_router_logits = "auto";
  EXPECT_EQ(weight("deepseek_v3", own), 0.5);
  by_tool.moe_aux_loss_coef = 0;
  EXPECT_EQ(weight("qwen3_moe", by_tool), 0);
  by_tool.moe_aux_loss_coef.reset();
  by_tool.stage = "rm";
  EXPECT_EQ(weight("qwen3_moe", by_tool), 0);
  EXPECT_EQ(weight("llama", zero), 0);
  EXPECT_EQ(warnings("llama", zero).find("moe_aux_loss_coef"), std::string::npos);
  EXPECT_EQ(weight("llama", own), 0);
  EXPECT_NE(warnings("llama", own).find("moe_aux_loss_coef has no effect here: llama has no experts"),
            std::string::npos);
}

}  // namespace
}  // namespace fettle
