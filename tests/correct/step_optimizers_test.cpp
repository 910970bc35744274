// Compares twenty steps of full tuning with the reference implementation of each update rule (tests/reference).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "optim/schedule.h"
#include "paths.h"
#include "training.h"

namespace fettle {
namespace {

const nlohmann::json& recorded_rules() {
  static const auto rules =
      nlohmann::json::parse(std::ifstream(source_folder() / "tests/reference/optimizers.json"))["rules"];
  return rules;
}

// Returns how much a loss may differ from the recorded loss, as a share. Rules with 8-bit state and Muon get larger
// bounds, because a tiny difference can change how an 8-bit code or a bf16 product is rounded.
double bound_of(const std::string& name) {
  return name.starts_with("muon") ? 5e-3 : name.ends_with("8bit") ? 1e-3 : 1e-4;
}

// Tunes a model of `family` with update rule `name`, and compares each step with `wanted`, which has the recorded rate,
// losses and norms.
void expect_full_tuning(const std::string& name, const std::string& family, const nlohmann::json& wanted) {
  const auto recorded = recorded_rules()[name];
  const double bound = bound_of(name);
  Recipe recipe = reference_recipe(family);
  recipe.finetuning_type = "full";
  recipe.per_device_train_batch_size = 2;
  recipe.gradient_accumulation_steps = 2;
  recipe.optim = recorded["recipe"]["optim"];
  if (recorded["recipe"].contains("optim_args")) recipe.optim_args = recorded["recipe"]["optim_args"];
  const Schedule schedule{"cosine", 5, 20};
  const double rate = wanted["learning_rate"];
  const TrainResult result =
      train(recipe, {.steps = 20, .rate_at = [&](int64_t step) { return rate * schedule.multiplier(step); }});
  expect_equal_lists(result.losses, wanted["loss"], bound, "loss");
  expect_equal_lists(result.norms, wanted["grad_norm"], 10 * bound, "norm");
  double largest = 0;
  for (size_t i = 0; i < result.losses.size(); ++i)
    largest = std::max(largest, std::abs(result.losses[i] / wanted["loss"][i].get<double>() - 1));
  testing::Test::RecordProperty("largest", std::to_string(largest));
  std::printf("%s, %s: largest relative difference of a loss %.2g\n", name.c_str(), family.c_str(), largest);
}

class OptimizerParity : public testing::TestWithParam<std::string> {};

std::vector<std::string> rules_with_full_tuning() {
  std::vector<std::string> names;
  for (const auto& [name, rule] : recorded_rules().items())
    if (rule.contains("full")) names.push_back(name);
  return names;
}

TEST_P(OptimizerParity, TwentyFullSteps) {
  expect_full_tuning(GetParam(), "llama", recorded_rules()[GetParam()]["full"]);
}

INSTANTIATE_TEST_SUITE_P(Rules, OptimizerParity, testing::ValuesIn(rules_with_full_tuning()),
                         [](const auto& info) { return info.param; });

struct FusedCase {
  std::string rule, family;
};
class FusedParity : public testing::TestWithParam<FusedCase> {};

std::vector<FusedCase> fused_cases() {
  std::vector<FusedCase> cases;
  for (const auto& [name, rule] : recorded_rules().items())
    if (rule.contains("fused"))
      for (const auto& [family, record] : rule["fused"].items()) cases.push_back({name, family});
  return cases;
}

// These models have fused modules. A run stores the weight of a fused module with a separate dim for its parts, but the
// optimizer's rule must treat the weight as the one matrix that the checkpoint has.
TEST_P(FusedParity, TwentyFullSteps) {
  const auto& [rule, family] = GetParam();
  expect_full_tuning(rule, family, recorded_rules()[rule]["fused"][family]);
}

INSTANTIATE_TEST_SUITE_P(Rules, FusedParity, testing::ValuesIn(fused_cases()),
                         [](const auto& info) { return info.param.rule + "_" + info.param.family; });

// Returns the names, shapes and partitions of a rule's state arrays for one parameter.
std::string state_of(const Run& run, const std::string& name) {
  std::string out;
  for (const Param& param : run.trained)
    if (param.hf_name.ends_with(name))
      for (const StateArray& array : optimizer_state(run, param)) {
        out +=
            (out.empty() ? "" : ", ") + array.name.substr(0, array.name.find('/')) + " " + to_string(array.shape.dims);
        for (size_t d = 0; d < array.partition.dims.size(); ++d)
          for (const std::string& axis : array.partition.dims[d]) out += " " + axis + "@" + std::to_string(d);
      }
  return out;
}

Run job_of(const std::string& model, const std::vector<std::string>& words, int64_t devices = 1) {
  std::vector<std::string> all{"model_name_or_path=" + reference_model(model).string(), "plugin=cpu"};
  all.insert(all.end(), words.begin(), words.end());
  const ModelRepository repository = ModelRepository::open(reference_model(model));
  return make_run(read_recipe("", all), repository.config(), "config.json", devices);
}

TEST(OptimizerState, IsOfWeightsAsTheCheckpointHasThem) {
  const auto factored = job_of("gpt2", {"finetuning_type=full", "optim=adafactor"});
  EXPECT_EQ(state_of(factored, "attn.c_attn.weight"), "row [2, 64], column [2, 3, 64]");
  EXPECT_EQ(state_of(factored, "attn.c_attn.bias"), "v [2, 3, 64]");
  const auto muon = job_of("gpt2", {"finetuning_type=full", "optim=muon"});
  EXPECT_EQ(state_of(muon, "attn.c_attn.weight"), "momentum [2, 64, 3, 64]");
  EXPECT_EQ(state_of(muon, "attn.c_attn.bias"), "m [2, 3, 64], v [2, 3, 64]");
  EXPECT_EQ(state_of(muon, "wpe.weight"), "m [128, 64], v [128, 64]");
  const auto phi = job_of("phi3", {"finetuning_type=full", "optim=adafactor"});
  EXPECT_EQ(state_of(phi, "qkv_proj.weight"), "row [2, 4, 32], column [2, 64]");
  const auto dora = job_of("phi3", {"use_dora=true", "optim=adafactor"});
  EXPECT_EQ(state_of(dora, "gate_up_proj.lora_magnitude_vector"), "v [2, 2, 96]");
  const auto experts =
      job_of("mixtral", {"target_parameters=gate_up_proj", "lora_target=[]", "lora_rank=4", "optim=adafactor"});
  EXPECT_EQ(state_of(experts, "lora_B.weight"), "row [2, 192], column [2, 4, 8]");
}

TEST(OptimizerState, OfFusedColumnsIsSplitAsTheWeightIs) {
  const auto run = job_of("gpt2", {"finetuning_type=full", "optim=adafactor", "mesh=fsdp=2,tp=2"}, 4);
  EXPECT_EQ(state_of(run, "attn.c_attn.weight"), "row [2, 64] fsdp@1, column [2, 3, 64] tp@2 fsdp@2");
}

TEST(OptimizerState, OfEmbeddingsKeepsThirtyTwoBits) {
  const auto gpt2 = job_of("gpt2", {"finetuning_type=full", "optim=adamw_8bit"});
  EXPECT_EQ(state_of(gpt2, "wte.weight"), "m [256, 64], v [256, 64]");
  EXPECT_EQ(state_of(gpt2, "wpe.weight"), "m [128, 64], v [128, 64]");
  EXPECT_THAT(state_of(gpt2, "mlp.c_fc.weight"), testing::StartsWith("m_codes [2, 64, "));
  const auto llama = job_of("llama", {"finetuning_type=full", "optim=lion_8bit"});
  EXPECT_EQ(state_of(llama, "embed_tokens.weight"), "m [256, 64]");
  EXPECT_THAT(state_of(llama, "lm_head.weight"), testing::StartsWith("m_codes [256, 64]"));
}

}  // namespace
}  // namespace fettle
