// Defines TrainingRun, a run over the reference rows that a test advances step by step. State and batches are made as
// in finetune(). The learning rate is constant, and nothing is logged or saved.
#pragma once

#include "checkpoint/saved/checkpoint_list.h"
#include "resolve_run.h"
#include "step/run_step.h"
#include "train/checkpoints/checkpoint_writer.h"
#include "training.h"

namespace fettle {

class TrainingRun {
 public:
  // Starts from a checkpoint's state, or from the beginning.
  explicit TrainingRun(const Recipe& recipe, StateReader* from = nullptr)
      : devices(cpu_devices(device_count(recipe))),
        repository(ModelRepository::open(recipe.model_name_or_path)),
        run(make_run(recipe, repository.config(), "config.json", training_target(devices))),
        batches(rows_, {.micro_batches = recipe.gradient_accumulation_steps,
                        .sequences = run.rows_per_micro_batch(),
                        .max_length = 40,
                        .packing = recipe.packing,
                        .lines = run.batch.lines,
                        .shards = run.batch.shards,
                        .ep = run.batch.ep,
                        .shuffle = !recipe.disable_shuffling,
                        .seed = static_cast<uint64_t>(recipe.seed),
                        .lengths = {40}}),
        state(from == nullptr ? load_state(devices, run, repository, true)
                              : load_state(devices, run, repository, *from, trained_arrays(run))) {}

  StepOutcome advance() {
    const Batch batch = batches.at(state.step);
    sources.push_back(batch.sources);
    return run_step(devices, run, programs_.at(batch.shape).executable, state, batch, run.update.learning_rate);
  }
  std::string folder() const { return checkpoint_path(run.output.folder, state.step).string(); }

 private:
  static int64_t device_count(const Recipe& recipe) {
    int64_t count = 1;
    for (const auto& [axis, size] : recipe.mesh) count *= size;
    return count;
  }
  std::vector<Example> rows_ = reference_rows();

 public:
  Devices& devices;
  ModelRepository repository;
  Run run;
  Batches batches;
  TrainState state;
  Processes processes;                            // only this one
  std::vector<std::vector<std::string>> sources;  // names of the rows of each step

 private:
  StepPrograms programs_{devices, run};
};

inline Recipe run_recipe(const std::filesystem::path& output, const std::string& type) {
  Recipe recipe = reference_recipe("llama");
  recipe.output_dir = output.string();
  recipe.finetuning_type = type;
  recipe.disable_shuffling = false;
  recipe.lora_rank = 4;
  recipe.lora_dropout = 0.1;
  recipe.learning_rate = type == "full" ? 5e-4 : 5e-3;
  recipe.gradient_accumulation_steps = 2;
  recipe.cutoff_len = 40;
  return recipe;
}

// Returns the current content of the trained arrays by name.
inline std::map<std::string, HostArray> trained_values(const Run& run, const TrainState& state) {
  std::map<std::string, HostArray> out;
  for (const StateArray& array : trained_arrays(run)) out.emplace(array.name, values_of(state, array.name));
  return out;
}

inline bool same_bytes(const HostArray& a, const HostArray& b) {
  return a.shape() == b.shape() && std::memcmp(a.data(), b.data(), static_cast<size_t>(a.bytes())) == 0;
}

}  // namespace fettle
