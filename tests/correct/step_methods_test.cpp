// Compares twenty steps with recorded steps of Transformers + PEFT (tests/reference/methods.py): losses, gradient norms
// and trained weights. The runs use each variant of LoRA, full tuning, freeze-tuning and low precision.
#include <gtest/gtest.h>

#include <bit>
#include <set>

#include "checkpoint/load.h"
#include "loss_difference.h"
#include "optim/schedule.h"
#include "paths.h"
#include "resolve_run.h"
#include "step/run_step.h"
#include "training.h"

namespace fettle {
namespace {

using Json = nlohmann::json;

struct Method {
  const char* name;
  double bound;  // relative bound for losses
};

// Returns the share of the elements that are exactly representable in bfloat16.
double share_of_bf16(const std::map<std::string, Value>& arrays) {
  double kept = 0, all = 0;
  for (const auto& [name, array] : arrays)
    for (const double element : array.elements) {
      kept += (std::bit_cast<uint32_t>(static_cast<float>(element)) & 0xFFFF) == 0;
      ++all;
    }
  return kept / all;
}

std::string text_of(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

Recipe recipe_of(const Json& method) {
  const std::filesystem::path model = reference_model(method.value("family", "llama"));
  std::vector<std::string> words{"model_name_or_path=" + model.string(),
                                 "plugin=cpu",
                                 "weight_decay=0.01",
                                 "max_grad_norm=0.5",
                                 "per_device_train_batch_size=2",
                                 "gradient_accumulation_steps=2"};
  for (const auto& [key, value] : method["recipe"].items()) words.push_back(key + "=" + text_of(value));
  Recipe recipe = read_recipe("", words);
  if (method.contains("start"))
    for (const Json& folder : method["start"].is_array() ? method["start"] : Json::array({method["start"]}))
      recipe.adapter_name_or_path.push_back((model / folder.get<std::string>()).string());
  return recipe;
}

// A PiSSA run writes an ordinary adapter: scale * (B A - B0 A0), where A0 and B0 are the initial values. Compares this
// product with the change of each weight in PEFT's run.
void expect_changes(const Recipe& recipe, double rate, const Schedule& schedule, const Json& wanted) {
  Devices& devices = cpu_devices();
  const ModelRepository repository = ModelRepository::open(recipe.model_name_or_path);
  const auto run = make_run(recipe, repository.config(), "config.json", 1);
  const std::vector<Example> rows = reference_rows();
  const Batches batches(rows, {.micro_batches = recipe.gradient_accumulation_steps,
                               .sequences = run.rows_per_micro_batch(),
                               .max_length = 40,
                               .shuffle = false,
                               .lengths = {40}});
  const Executable step = devices.compile(build_train_step(run, 40));
  TrainState state = load_state(devices, run, repository, true);
  for (int64_t s = 0; s < 20; ++s) run_step(devices, run, step, state, batches.at(s), rate * schedule.multiplier(s));
  auto read = [&](const std::string& name) { return to_value(state.buffers.at(name).download()); };
  for (const std::string& module : run.adapter.lora->modules) {
    const std::string row = run.model.family->layer_prefix + module;
    const Value a = read("trained/" + row + ".lora_A.weight"), b = read("trained/" + row + ".lora_B.weight");
    const Value a0 = read("start/" + row + ".lora_A.weight"), b0 = read("start/" + row + ".lora_B.weight");
    const int64_t r = a.shape.dims[1], in = a.shape.dims[2], out = b.shape.dims[1];
    for (int64_t layer = 0; layer < a.shape.dims[0]; ++layer) {
      const Json& change = wanted[name_of_layer(row, layer) + ".weight"];
      double square = 0;
      for (int64_t o = 0; o < out; ++o)
        for (int64_t i = 0; i < in; ++i) {
          double sum = 0;
          for (int64_t k = 0; k < r; ++k) {
            const int64_t at_a = (layer * r + k) * in + i, at_b = (layer * out + o) * r + k;
            sum += b.elements[at_b] * a.elements[at_a] - b0.elements[at_b] * a0.elements[at_a];
          }
          sum *= run.adapter.lora->scale();
          square += sum * sum;
          if (const int64_t e = o * in + i; e < 8) {
            EXPECT_NEAR(sum, change["first"][e].get<double>(), 1e-4) << row << ' ' << layer << ' ' << e;
          }
        }
      const double norm = change["norm"];
      EXPECT_NEAR(std::sqrt(square), norm, 2e-3 * norm) << row << ' ' << layer;
    }
  }
}

class MethodParity : public testing::TestWithParam<Method> {};

TEST_P(MethodParity, TwentySteps) {
  const Json recorded = Json::parse(std::ifstream(source_folder() / "tests/reference/methods.json"))[GetParam().name];
  Recipe recipe = recipe_of(recorded);
  const std::string name = GetParam().name;
  if (name.ends_with("fp16")) recipe.fp16 = true;
  if (name.ends_with("bf16")) recipe.bf16 = true;
  const Schedule schedule{"cosine", 5, 20};
  const double rate = recorded.value("learning_rate", recipe.finetuning_type == "lora" ? 2e-3 : 5e-4);
  const TrainResult result =
      train(recipe, {.steps = 20, .rate_at = [&](int64_t step) { return rate * schedule.multiplier(step); }});
  expect_equal_lists(result.losses, recorded["loss"], GetParam().bound, "loss");
  expect_equal_lists(result.norms, recorded["grad_norm"], 10 * GetParam().bound, "norm");
  std::printf("%s: largest relative difference of a loss %.2g, of a norm %.2g\n", GetParam().name,
              largest_difference(result.losses, recorded["loss"]),
              largest_difference(result.norms, recorded["grad_norm"]));
  const bool bf16_weights = recipe.pure_bf16 || recipe.lora_dtype == "bfloat16";
  if (recipe.bf16 || recipe.pure_bf16) {
    const Json exact = Json::parse(std::ifstream(reference_model("llama") / "reference.json"));
    expect_rounded(result.losses, exact[recipe.finetuning_type + "_losses"]["loss"]);
    EXPECT_EQ(share_of_bf16(result.trained) == 1, bf16_weights);
    EXPECT_LT(share_of_bf16(result.moments), 0.5) << "the optimizer's state is in float32";
  }
  if (recorded.contains("changes")) expect_changes(recipe, rate, schedule, recorded["changes"]);
  if (!recorded.contains("final")) return;

  std::set<std::string> seen;
  for (const auto& [key, wanted] : recorded["final"].items()) {
    const std::string prefix = "base_model.model.", plain = key.starts_with(prefix) ? key.substr(prefix.size()) : key;
    for (const auto& [row, part] : result.layers)
      for (size_t i = 0; i < part.size(); ++i) {
        if (name_of_layer(row.substr(0, row.find('[')), part[i]) != plain) continue;
        seen.insert(key);
        const std::vector<double>& all = result.trained.at(row).elements;
        // The LoRA weights of the chosen layers are slices of an array with all layers.
        const size_t slots = part.size() == 1 && row.find("{}") == std::string::npos
                                 ? 1
                                 : static_cast<size_t>(result.trained.at(row).shape.dims[0]);
        const size_t n = all.size() / slots, at = n * (slots == part.size() ? i : static_cast<size_t>(part[i]));
        double square = 0;
        for (size_t e = 0; e < std::min(n, wanted["count"].get<size_t>()); ++e) square += all[at + e] * all[at + e];
        const double norm = wanted["norm"];
        EXPECT_NEAR(std::sqrt(square), norm, (bf16_weights ? 5e-3 : 1e-3) * norm) << key;
        for (size_t e = 0; e < wanted["first"].size(); ++e) {
          const double value = wanted["first"][e];
          // The bound is twice the distance between neighbouring bfloat16 values.
          EXPECT_NEAR(all[at + e], value, 1e-3 + (bf16_weights ? std::abs(value) / 64 : 0)) << key << ' ' << e;
        }
      }
  }
  EXPECT_EQ(seen.size(), recorded["final"].size());
}

INSTANTIATE_TEST_SUITE_P(
    Methods, MethodParity,
    testing::Values(
        Method{"dora", 1e-4}, Method{"dora_gpt2", 1e-4}, Method{"saved", 1e-4}, Method{"layers", 1e-4},
        Method{"lora_plus", 1e-4}, Method{"pissa", 1e-4}, Method{"two_adapters", 1e-4}, Method{"freeze_last", 1e-4},
        Method{"freeze_first", 1e-4}, Method{"experts", 1e-4}, Method{"experts_qwen3_moe", 1e-4},
        Method{"experts_down", 1e-4}, Method{"experts_gpt_oss", 1e-4}, Method{"experts_qwen3_5_moe", 1e-4},
        Method{"all_linear_glm4_moe", 1e-4}, Method{"all_linear_deepseek_v2", 1e-4},
        Method{"all_linear_deepseek_v3", 1e-4}, Method{"all_linear_glm4_moe_lite", 1e-4},
        Method{"all_linear_qwen2_moe", 1e-4}, Method{"all_linear_qwen3_next", 1e-4},
        Method{"all_linear_minimax_m2", 1e-4}, Method{"all_linear_gemma4_moe", 1e-4},
        Method{"all_linear_gemma4_e2b", 1e-4}, Method{"experts_nemotron_h_moe", 1e-4}, Method{"experts_lfm2_moe", 1e-4},
        Method{"experts_llama4", 1e-4}, Method{"experts_granite4", 1e-4}, Method{"experts_qwen2_moe", 1e-4},
        Method{"experts_gemma4_moe", 1e-4}, Method{"experts_granitemoe", 1e-4}, Method{"all_linear_ernie4_5_moe", 1e-4},
        Method{"all_linear_gpt_oss", 1e-4}, Method{"all_linear_qwen3_5_moe", 1e-4},
        Method{"all_linear_qwen3_moe", 1e-4}, Method{"all_linear_mixtral", 1e-4}, Method{"all_linear_llama4", 1e-4},
        Method{"all_linear_granite4", 1e-4}, Method{"all_linear_nemotron_h_moe", 1e-4},
        Method{"all_linear_lfm2_moe", 1e-4}, Method{"balanced_qwen2_moe", 1e-4}, Method{"balanced_gpt_oss", 1e-4},
        Method{"balanced_granite4", 1e-4}, Method{"balanced_qwen3_5_moe", 1e-4}, Method{"lora_fp16", 1e-3},
        Method{"full_fp16", 1e-3}, Method{"full_bf16", 6e-3}, Method{"pure_bf16", 6e-3}, Method{"lora_dtype", 3e-3},
        Method{"full_decay", 1e-4}, Method{"embedding_lr", 1e-4}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace fettle
