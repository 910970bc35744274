// Defines train(), which makes a run from a recipe and trains a tests/reference model for a few optimizer steps on CPU
// devices.
#pragma once

#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "base/arrays/box_copy.h"
#include "data/batches/batches.h"
#include "graph_run.h"
#include "kernels_anywhere.h"
#include "reference_models.h"
#include "resolve_run.h"
#include "run/batch_spec.h"
#include "step/run_step.h"
#include "step/state/snapshot.h"
#include "step/state/train_state.h"
#include "step/step.h"
#include "step/step_programs.h"
#include "test_plugin.h"

namespace fettle {

// Returns `count` of the rows on which all reference models are trained, starting at row `first`.
inline std::vector<Example> reference_rows(size_t first = 0, size_t count = 80) {
  std::vector<Example> rows;
  std::ifstream in(reference_model("rows.jsonl"));
  for (std::string line; std::getline(in, line);) {
    const nlohmann::json row = nlohmann::json::parse(line);
    rows.push_back({row["input_ids"], row["labels"], "rows.jsonl:" + std::to_string(rows.size() + 1)});
  }
  return {rows.begin() + static_cast<std::ptrdiff_t>(first), rows.begin() + static_cast<std::ptrdiff_t>(first + count)};
}

inline Recipe reference_recipe(const std::string& model) {
  Recipe recipe;
  recipe.model_name_or_path = reference_model(model).string();
  use_test_plugin(recipe);
  recipe.disable_shuffling = true;
  recipe.per_device_train_batch_size = 1;
  recipe.weight_decay = 0.01;
  recipe.max_grad_norm = 0.5;
  return recipe;
}

struct TrainOptions {
  int64_t steps = 3;
  double rate = 2e-3;
  std::function<double(int64_t)> rate_at = {};  // learning rate by step, instead of `rate`
  int64_t length = 40;
  bool packing = false;
  bool laid = false;               // true: rows share lines as the run decides; false: one row per line
  int64_t merged = 1;              // number of micro-batches that are computed at once
  bool kernels = false;            // false: the bodies of the composites are computed
  std::vector<Example> rows = {};  // the reference rows when empty
  std::function<void(const Batch&)> on_batch = {};  // called with the batch of each step
};

struct TrainResult {
  std::vector<double> losses, norms;
  std::map<std::string, std::vector<double>> metrics;  // of preference stages, one value per step
  std::map<std::string, Value> trained;                // weights by stack after the last step
  std::map<std::string, std::vector<int64_t>> layers;  // layer numbers by stack; {0} for weights outside of the layers
  std::map<std::string, Value> corrections;            // frozen parameters that steps move (Run::moves), by stack
  std::map<std::string, Value> moments;                // AdamW's first moments: averages of gradients
  int64_t positions = 0;                               // positions computed in all steps
  std::set<std::pair<int64_t, int64_t>> shapes;        // lines and length of the micro-batches
};

// Returns the devices as the target of a run. FETTLE_TEST_KERNELS=1 makes all tests of training use kernels.
inline RunTarget training_target(Devices& devices, bool kernels = false) {
  RunTarget target = target_of(devices);
  if (kernels || std::getenv("FETTLE_TEST_KERNELS") != nullptr)
    target.kernels = kernels_anywhere(devices.client().plugin());
  return target;
}

// Returns the current values of an array of trained_arrays(), from the devices or from the disk.
inline HostArray values_of(const TrainState& state, const std::string& name) {
  HostArray out;
  fetch_from(state)(name, [&](const HostShards& part) {
    if (out.data() == nullptr) out = HostArray(part.shape);
    for (const HostShards::Shard& shard : part.shards)
      copy_common(shard.box, shard.bytes.data(), Box::whole(part.shape.dims), out.data(), byte_size(part.shape.dtype));
  });
  return out;
}

inline TrainResult train(const Recipe& recipe, const TrainOptions& options = {}) {
  int64_t count = 1;
  for (const auto& [axis, size] : recipe.mesh) count *= size;
  Devices& devices = cpu_devices(count);
  const ModelRepository repository = ModelRepository::open(recipe.model_name_or_path);
  const Run run = with_merged(
      make_run(recipe, repository.config(), "config.json", training_target(devices, options.kernels)), options.merged);
  const std::vector<Example> rows = options.rows.empty() ? reference_rows() : options.rows;
  const Batches batches(rows, {.micro_batches = run.batch.micro_batches,
                               .sequences = run.batch.sequences,
                               .max_length = 40,
                               .packing = options.packing,
                               .lines = options.laid ? run.batch.lines : Lines::kOwn,
                               .shards = run.batch.shards,
                               .ep = run.batch.ep,
                               .grouping = run.stage->grouping,
                               .shuffle = false,
                               .lengths = {options.length}});
  StepPrograms programs(devices, run);
  TrainState state = load_state(devices, run, repository, true);
  TrainResult result;
  for (int64_t s = 0; s < options.steps; ++s) {
    const Batch batch = batches.at(s);
    if (options.on_batch) options.on_batch(batch);
    const StepOutcome outcome = run_step(devices, run, programs.at(batch.shape).executable, state, batch,
                                         options.rate_at ? options.rate_at(s) : options.rate);
    if (outcome.overflowed) {
      --s;  // repeats the step with a smaller loss scale, as in training
      continue;
    }
    result.positions += batch.used * batch.shape.lines * batch.shape.length;
    result.shapes.insert({batch.shape.lines, batch.shape.length});
    result.losses.push_back(outcome.loss);
    result.norms.push_back(outcome.grad_norm);
    for (const auto& [name, value] : outcome.metrics) result.metrics[name].push_back(value);
  }
  for (const Param& param : run.trained) {
    const std::string name = param.stack_name();
    result.layers[name] = run.layers_of(param);
    result.trained[name] = to_value(values_of(state, trained_input(param)));
    if (state.buffers.contains("m/" + name)) result.moments[name] = to_value(state.buffers.at("m/" + name).download());
  }
  for (const Param& param : run.frozen)
    if (run.moves(param))
      result.corrections[param.stack_name()] = to_value(state.buffers.at(frozen_input(param)).download());
  return result;
}

// Expects |got - wanted| <= relative * |wanted| for each pair of numbers.
inline void expect_equal_lists(const std::vector<double>& got, const std::vector<double>& wanted, double relative,
                               const std::string& what) {
  ASSERT_EQ(got.size(), wanted.size()) << what;
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_NEAR(got[i], wanted[i], relative * std::abs(wanted[i])) << what << ' ' << i;
}

// Compares AdamW's first moments, which are averages of gradients. They may differ by `relative` times the largest
// element of the wanted array. Weights are not compared, because Adam turns the rounding noise of a zero gradient into
// whole steps.
inline void expect_equal_gradients(const TrainResult& got, const TrainResult& wanted, double relative) {
  for (const auto& [name, value] : wanted.moments) {
    double scale = 0;
    for (double x : value.elements) scale = std::max(scale, std::abs(x));
    EXPECT_GT(scale, 0) << name;
    for (size_t e = 0; e < value.elements.size(); ++e)
      ASSERT_NEAR(got.moments.at(name).elements[e], value.elements[e], relative * scale) << name << ' ' << e;
  }
}

}  // namespace fettle
