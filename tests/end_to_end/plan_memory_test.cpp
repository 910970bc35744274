// Compares the peak that `fettle plan` shows with the memory that a step really takes. The test uses the CPU plugin,
// because its device memory is resident memory.
//
// A fresh process takes the compiled step from the cache and runs steps. It measures the maximum of its anonymous
// resident memory during the steps, and subtracts its anonymous resident memory when plugin and step were loaded but no
// array existed. Like the plan's peak, the difference contains weights, optimizer state, batch and temporaries, but
// neither the compiler's memory nor pages of program files.
//
// The test program uses fettle's allocator (fettle_allocator), as the program fettle does. With the C library's own, a
// step may allocate its temporaries before those of the step before it are freed: 288 MB were seen instead of 272.
#include <gtest/gtest.h>
#include <malloc.h>

#include "checkpoint/load.h"
#include "config/recipe.h"
#include "programs/layouts.h"
#include "resolve_run.h"
#include "run/device_request.h"
#include "run_fettle.h"
#include "step/run_step.h"
#include "step/state/train_state.h"
#include "step/step.h"
#include "step/step_programs.h"

namespace fettle {
namespace {

constexpr int64_t kLength = 256;

// Returns a config with 2.9 M parameters per layer and 6.3 M outside of the layers.
std::string config_json(int64_t layers) {
  nlohmann::json config = nlohmann::json::parse(R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"],
    "vocab_size": 6144, "hidden_size": 512, "intermediate_size": 1408, "num_attention_heads": 8,
    "num_key_value_heads": 4, "max_position_embeddings": 1024, "torch_dtype": "float32"})");
  config["num_hidden_layers"] = layers;
  return config.dump();
}

// Returns a field of /proc/self/status in bytes.
int64_t status_bytes(const std::string& field) {
  std::ifstream in("/proc/self/status");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with(field + ":")) return std::stoll(line.substr(field.size() + 1)) * 1024;
  throw std::runtime_error("/proc/self/status has no " + field);
}

void reset_peak() {
  std::ofstream out("/proc/self/clear_refs");
  out << "5" << std::flush;
  if (!out) throw std::runtime_error("/proc/self/clear_refs cannot be written");
}

TrainState random_state(const Devices& devices, const Run& run) {
  TrainState state;
  auto layout = [&](const Param& param) {
    const Dims dims = stacked_shape(param, DType::kF32).dims;
    return layout_of(run.sharding.partition(stacked_axes(param), dims, param.hf_name), dims, run.sharding.mesh());
  };
  auto random = [&](const Param& param, DType dtype) {
    return random_param(devices.client(), param, run.model.config, dtype, layout(param), 1);
  };
  for (const Param& param : run.frozen) state.buffers.emplace(frozen_input(param), random(param, run.precision.frozen));
  for (const Param& param : run.trained) {
    state.buffers.emplace(trained_input(param), random(param, run.precision.trained));
    for (const StateArray& array : optimizer_state(run, param))
      state.buffers.emplace(array.name,
                            DeviceBuffer::zeros(devices.client(), array.shape,
                                                layout_of(array.partition, array.shape.dims, run.sharding.mesh())));
  }
  return state;
}

// Not a test: the fresh process runs this function. The last line of its output is the growth in bytes.
TEST(PlanMemory, DISABLED_MeasureInThisProcess) {
  const char* words = std::getenv("FETTLE_TEST_RECIPE");
  ASSERT_NE(words, nullptr);
  std::vector<std::string> overrides;
  std::istringstream in(words);
  for (std::string word; std::getline(in, word);) overrides.push_back(word);
  const Recipe recipe = read_recipe({}, overrides);
  Devices devices(device_request(recipe));
  const std::string config = recipe.model_name_or_path + "/config.json";
  const auto run = make_run(recipe, nlohmann::json::parse(read_text(config)), config, target_of(devices));
  const int64_t length = recipe.cutoff_len;
  const Executable step = devices.compile(build_train_step(run, length));
  Example row;
  for (int64_t t = 0; t < length; ++t)
    row.input_ids.push_back(static_cast<int32_t>(t * 37 % run.model.config.vocab_size));
  row.labels = row.input_ids;
  const std::vector<Example> rows(static_cast<size_t>(run.rows_per_micro_batch()), row);
  const Batches batches(rows, {.micro_batches = recipe.gradient_accumulation_steps,
                               .sequences = run.rows_per_micro_batch(),
                               .max_length = length,
                               .lengths = {length}});
  malloc_trim(0);
  const int64_t before = status_bytes("RssAnon");
  TrainState state = random_state(devices, run);
  malloc_trim(0);
  reset_peak();
  const auto start = std::chrono::steady_clock::now();
  for (int s = 0; s < 3; ++s) run_step(devices, run, step, state, batches.at(s), 1e-3);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  const int64_t files = status_bytes("RssFile") + status_bytes("RssShmem");
  std::cout << seconds.count() << " s\n" << status_bytes("VmHWM") - files - before << std::endl;
}

struct Job4 {
  const char* name;
  int64_t layers;
  std::vector<std::string> words;
};

// The plan's peak leaves out what the process needs besides the arrays of the step, about 5 MB at these sizes. Products
// without kernels would add a copy of a packed weight, which the plugin does not report.
class PlanMemory : public testing::TestWithParam<Job4> {};

TEST_P(PlanMemory, PeakIsTheMemoryOfAStep) {
  TempFolder folder;
  write_text(folder / "model/config.json", config_json(GetParam().layers));
  const std::vector<std::string> words =
      with({"model_name_or_path=" + (folder / "model").string(), "plugin=cpu",
            "compile_cache=" + (folder / "cache").string(), "cutoff_len=" + std::to_string(kLength)},
           GetParam().words);
  std::vector<std::string> plan_words{"plan", "--json"};
  const Outcome plan = run_fettle(folder, with(plan_words, words));
  ASSERT_EQ(plan.code, 0) << plan.err;
  const auto per_device = nlohmann::json::parse(plan.out)["per_device"];
  std::string recipe;
  for (const std::string& word : words) recipe += word + "\n";
  setenv("FETTLE_TEST_RECIPE", recipe.c_str(), 1);
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  const int status = std::system(
      (self + " --gtest_also_run_disabled_tests --gtest_filter=PlanMemory.DISABLED_MeasureInThisProcess > " +
       (folder / "measured").string())
          .c_str());
  unsetenv("FETTLE_TEST_RECIPE");
  ASSERT_EQ(status, 0);
  std::istringstream measured(read_text(folder / "measured"));
  std::string grown;
  for (std::string line; std::getline(measured, line);)
    if (!line.empty() && line.find_first_not_of("0123456789") == std::string::npos) grown = line;
  ASSERT_FALSE(grown.empty()) << measured.str();
  const double planned = per_device["peak_bytes"];
  EXPECT_NEAR(planned / std::stod(grown), 1, 0.05) << "planned " << planned << ", grown by " << grown;
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, PlanMemory,
    testing::Values(
        Job4{"LoraNoRemat",
             16,
             {"finetuning_type=lora", "gradient_checkpointing=none", "per_device_train_batch_size=3"}},
        Job4{"LoraRemat", 64, {"finetuning_type=lora", "gradient_checkpointing=full", "per_device_train_batch_size=1"}},
        Job4{"FullNoRemat",
             16,
             {"finetuning_type=full", "gradient_checkpointing=none", "per_device_train_batch_size=2"}},
        Job4{"FullRemat", 16, {"finetuning_type=full", "gradient_checkpointing=full", "per_device_train_batch_size=4"}},
        Job4{"LoraBf16",
             16,
             {"finetuning_type=lora", "bf16=true", "gradient_checkpointing=none", "per_device_train_batch_size=3"}},
        Job4{"LoraBf16Remat",
             32,
             {"finetuning_type=lora", "bf16=true", "gradient_checkpointing=full", "per_device_train_batch_size=1"}},
        Job4{"FullBf16",
             8,
             {"finetuning_type=full", "bf16=true", "gradient_checkpointing=none", "per_device_train_batch_size=2"}},
        Job4{"FullBf16Remat",
             8,
             {"finetuning_type=full", "bf16=true", "gradient_checkpointing=full", "per_device_train_batch_size=4"}}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace fettle
