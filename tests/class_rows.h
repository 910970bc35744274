// Defines ClassRun, which trains and evaluates a classifier of tests/reference on CPU devices, with the rows and labels
// of classifiers.py.
#pragma once

#include "paths.h"
#include "resolve_run.h"
#include "step/evaluate.h"
#include "step/run_step.h"
#include "step/state/batch_arrays.h"
#include "training.h"

namespace fettle {

inline const char* const kSingle = "single_label_classification";
inline const char* const kMulti = "multi_label_classification";
inline const char* const kRegression = "regression";

inline const nlohmann::json& classifiers_json() {
  static const nlohmann::json all =
      nlohmann::json::parse(std::ifstream(source_folder() / "tests/reference/classifiers.json"));
  return all;
}

// Returns the rows of a step, starting at row `first`. They are the rows that classifiers.py makes from rows.jsonl. The
// last `filler` rows are empty.
inline Batch class_batch(const std::string& problem, int64_t first, int64_t micro_batches, int64_t rows,
                         int64_t filler = 0, int64_t length = 40) {
  const std::vector<Example> all = reference_rows();
  const nlohmann::json& labels = classifiers_json()["labels"][problem];
  const int64_t k = problem == kSingle ? 1 : 3;
  const Shape tokens{DType::kI32, {micro_batches, rows, length}};
  Batch batch{
      .shape = {.micro_batches = micro_batches, .lines = rows, .length = length, .sequences = micro_batches * rows},
      .used = micro_batches,
      .tokens = HostArray::zeros(tokens),
      .positions = HostArray::zeros(tokens),
      .segments = HostArray::zeros(tokens),
      .sequence_numbers = HostArray::zeros(tokens),
      .token_types = HostArray::zeros(tokens),
      .classes = HostArray::zeros({DType::kF32, {micro_batches * rows, k}})};
  for (int64_t r = 0; r < micro_batches * rows - filler; ++r) {
    const std::vector<int32_t>& ids = all[static_cast<size_t>(first + r)].input_ids;
    for (size_t i = 0; i < ids.size(); ++i) {
      const size_t at = static_cast<size_t>(r * length) + i;
      batch.tokens.as<int32_t>()[at] = std::max(ids[i], 2);
      batch.positions.as<int32_t>()[at] = static_cast<int32_t>(i);
      batch.segments.as<int32_t>()[at] = 1;
      batch.sequence_numbers.as<int32_t>()[at] = static_cast<int32_t>(r + 1);
      batch.token_types.as<int32_t>()[at] = i >= ids.size() / 2 ? 1 : 0;
    }
    const nlohmann::json& label = labels[static_cast<size_t>(first + r)];
    for (int64_t i = 0; i < k; ++i)
      batch.classes.as<float>()[static_cast<size_t>(r * k + i)] = (k == 1 ? label : label[i]).get<float>();
  }
  batch.sources.assign(static_cast<size_t>(micro_batches * rows), "rows.jsonl");
  return batch;
}

inline Recipe class_recipe(const std::string& model, const std::string& problem, const std::string& type) {
  Recipe recipe = reference_recipe(model);
  recipe.stage = "cls";
  recipe.problem_type = problem;
  recipe.num_labels = 3;
  recipe.finetuning_type = type;
  recipe.per_device_train_batch_size = 4;
  recipe.gradient_checkpointing = "none";
  if (type == "lora") recipe.adapter_name_or_path = {(reference_model(model) / "adapter_init").string()};
  return recipe;
}

class ClassRun {
 public:
  explicit ClassRun(const Recipe& recipe, StateReader* from = nullptr)
      : devices(cpu_devices(device_count(recipe))),
        repository(ModelRepository::open(recipe.model_name_or_path)),
        run(make_run(recipe, repository.config(), "config.json", training_target(devices))),
        state(from == nullptr ? load_state(devices, run, repository, true)
                              : load_state(devices, run, repository, *from, trained_arrays(run))) {}

  StepOutcome advance(double rate) {
    const int64_t accumulation = run.batch.micro_batches, rows = run.rows_per_micro_batch();
    const Batch batch =
        class_batch(std::string(name_of(run.labels()->problem)), state.step * accumulation * rows, accumulation, rows);
    if (!step_) step_.emplace(devices.compile(build_train_step(run, 40)));
    return run_step(devices, run, *step_, state, batch, rate);
  }
  // Returns the evaluation's outputs for one micro-batch.
  std::map<std::string, Value> evaluate(const Batch& batch) {
    const Executable program = devices.compile(build_eval_step(run, batch.shape));
    std::map<std::string, DeviceBuffer> inputs = upload_micro_batch(devices, run, batch, 0);
    Bindings bindings = state.bindings();
    for (auto& [name, buffer] : inputs) bindings[name] = &buffer;
    std::map<std::string, Value> out;
    for (auto& [name, buffer] : run_program(program, bindings)) out[name] = to_value(buffer.download());
    return out;
  }

  Devices& devices;
  ModelRepository repository;
  Run run;
  TrainState state;

 private:
  static int64_t device_count(const Recipe& recipe) {
    int64_t count = 1;
    for (const auto& [axis, size] : recipe.mesh) count *= size;
    return count;
  }
  std::optional<Executable> step_;
};

}  // namespace fettle
