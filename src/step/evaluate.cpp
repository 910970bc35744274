#include "step/evaluate.h"

#include <chrono>
#include <cmath>

#include "base/error.h"
#include "data/dataset.h"
#include "step/step.h"
#include "tokenizer/tokenizer.h"

namespace fettle {
namespace {

struct RowLosses {
  HostArray loss, tokens, correct;  // f32 [rows]
};

RowLosses run_rows(const Devices& devices, const Job& job, const Executable& program, TrainState& state,
                   const Batch& batch) {
  std::map<std::string, DeviceBuffer> inputs = upload_batch(devices, job, batch, true);
  Bindings bindings = state.bindings();
  for (auto& [name, buffer] : inputs) bindings[name] = &buffer;
  std::map<std::string, DeviceBuffer> outputs = run(program, bindings);
  return {outputs.at("loss").download(), outputs.at("tokens").download(), outputs.at("correct").download()};
}

BatchOptions eval_batches(const Job& job) {
  const int64_t rows = job.recipe.per_device_eval_batch_size.value_or(job.recipe.per_device_train_batch_size);
  return {.micro_batches = 1,
          .rows = rows * job.batch_shards(),
          .max_length = job.recipe.cutoff_len,
          .multiple = job.row_multiple(),
          .shuffle = false};
}

}  // namespace

std::map<std::string, double> Evaluation::metrics() const {
  return {{"eval_loss", loss},
          {"eval_perplexity", perplexity},
          {"eval_accuracy", accuracy},
          {"eval_runtime", seconds},
          {"eval_samples", static_cast<double>(samples)},
          {"eval_samples_per_second", seconds > 0 ? static_cast<double>(samples) / seconds : 0},
          {"eval_tokens", static_cast<double>(tokens)}};
}

Evaluator::Evaluator(Devices& devices, const Job& job, const Examples& examples)
    : devices_(devices), job_(job), batches_(examples, eval_batches(job)) {}

Evaluation Evaluator::run(TrainState& state) {
  const auto start = std::chrono::steady_clock::now();
  double loss = 0, tokens = 0, correct = 0;
  for (int64_t s = 0; s < batches_.steps_per_epoch(); ++s) {
    const Batch batch = batches_.at(s);
    const Dims& dims = batch.tokens.shape().dims;
    auto program = programs_.find(dims[2]);
    if (program == programs_.end())
      program = programs_.emplace(dims[2], devices_.compile(build_eval_step(job_, dims[0] * dims[1], dims[2]))).first;
    const RowLosses rows = run_rows(devices_, job_, program->second, state, batch);
    for (int64_t r = 0; r < rows.loss.shape().elements(); ++r) {
      loss += rows.loss.as<float>()[r];
      tokens += rows.tokens.as<float>()[r];
      correct += rows.correct.as<float>()[r];
    }
  }
  Evaluation out;
  out.tokens = static_cast<int64_t>(tokens);
  out.samples = batches_.examples();
  out.loss = loss / std::max(tokens, 1.0);
  out.perplexity = std::exp(out.loss);
  out.accuracy = correct / std::max(tokens, 1.0);
  out.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return out;
}

std::vector<std::string> rows_not_finite(Devices& devices, const Job& job, TrainState& state, const Batch& batch) {
  const Dims& dims = batch.tokens.shape().dims;
  const Executable program = devices.compile(build_eval_step(job, dims[0] * dims[1], dims[2]));
  const RowLosses rows = run_rows(devices, job, program, state, batch);
  std::vector<std::string> out;
  for (int64_t r = 0; r < rows.loss.shape().elements(); ++r)
    if (!std::isfinite(rows.loss.as<float>()[r])) out.push_back(batch.sources[r]);
  return out;
}

int run_eval(const Recipe& recipe, std::ostream& out) {
  require_keys(recipe, {"model_name_or_path"}, "eval");
  if (recipe.dataset.empty() && recipe.eval_dataset.empty())
    throw UserError("eval: neither eval_dataset nor dataset is given; name the rows to evaluate on");
  const ModelRepository repository = ModelRepository::open(recipe.model_name_or_path);
  Devices devices(recipe);
  const Job job = make_job(recipe, repository.config(), (repository.folder() / "config.json").string(), devices.count(),
                           Purpose::kInference);
  const Tokenizer tokenizer = Tokenizer::open(recipe.model_name_or_path);
  Recipe held_out = recipe;
  if (!recipe.eval_dataset.empty()) held_out.dataset = recipe.eval_dataset, held_out.eval_dataset.clear();
  const Datasets data = load_datasets(held_out, tokenizer, job.model.config.vocab_size);
  const Examples& examples = data.eval.empty() ? data.train : data.eval;
  TrainState state = load_state(devices, job, repository, false);
  for (const auto& [name, value] : Evaluator(devices, job, examples).run(state).metrics())
    out << fmt::format("{:<26} {:.6g}\n", name, value);
  return 0;
}

}  // namespace fettle
