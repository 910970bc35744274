#include "step/evaluate.h"

#include <cmath>

#include "base/log.h"
#include "base/seconds_since.h"
#include "run/batch_spec.h"
#include "step/step.h"

namespace fettle {
namespace {

struct ProgramRows {
  HostArray loss, tokens;    // f32 [rows]
  HostArray correct;         // f32 [rows]; not for preferences
  HostArray metrics;         // for preferences
  HostArray logits;          // for classifiers
  int64_t rows_of_each = 1;  // sequences of the batch per row
};

ProgramRows run_rows(const Devices& devices, const Run& run, const Executable& program, TrainState& state,
                     const Batch& batch) {
  std::map<std::string, DeviceBuffer> inputs = upload_batch(devices, run, batch, true);
  Bindings bindings = state.bindings();
  for (auto& [name, buffer] : inputs) bindings[name] = &buffer;
  std::map<std::string, DeviceBuffer> outputs = run_program(program, bindings);
  auto get = [&](const char* name) {
    const auto found = outputs.find(name);
    return found == outputs.end() ? HostArray() : found->second.download();
  };
  return {get("loss"), get("tokens"), get("correct"), get("metrics"), get("logits"), run.stage->sequences_per_row()};
}

}  // namespace

std::map<std::string, double> Evaluation::metrics() const {
  std::map<std::string, double> out{
      {"eval_loss", loss},
      {"eval_runtime", seconds},
      {"eval_samples", static_cast<double>(samples)},
      {"eval_samples_per_second", seconds > 0 ? static_cast<double>(samples) / seconds : 0}};
  for (const auto& [name, value] : figures) out["eval_" + name] = value;
  if (figures.empty()) {
    out["eval_perplexity"] = perplexity;
    out["eval_accuracy"] = accuracy;
    out["eval_tokens"] = static_cast<double>(tokens);
  }
  return out;
}

Evaluator::Evaluator(Devices& devices, const Run& run, const Examples& examples)
    : devices_(devices), run_(run), batches_(examples, run.eval_batch) {
  info("evaluation: {}", format_batches(batches_, ""));
}

struct Evaluator::RowLosses : ProgramRows {};

Evaluator::RowLosses Evaluator::rows(TrainState& state, const Batch& batch) {
  const Dims& dims = batch.tokens.shape().dims;
  auto program = programs_.find(dims[2]);
  if (program == programs_.end())
    program = programs_.emplace(dims[2], devices_.compile(build_eval_step(run_, dims[0] * dims[1], dims[2]))).first;
  return {run_rows(devices_, run_, program->second, state, batch)};
}

std::vector<double> Evaluator::losses(TrainState& state) {
  std::vector<double> out;
  for (int64_t s = 0; s < batches_.steps_per_epoch(); ++s) {
    const RowLosses rows = this->rows(state, batches_.at(s));
    for (float loss : rows.loss.as<float>()) out.push_back(loss);
  }
  out.resize(static_cast<size_t>(batches_.examples()));  // drops filler after the last example
  return out;
}

std::vector<float> Evaluator::logits(TrainState& state) {
  std::vector<float> out;
  for (int64_t s = 0; s < batches_.steps_per_epoch(); ++s) {
    const RowLosses rows = this->rows(state, batches_.at(s));
    for (float logit : rows.logits.as<float>()) out.push_back(logit);
  }
  out.resize(static_cast<size_t>(batches_.examples() * run_.model.config.num_labels));  // drops filler at the end
  return out;
}

Evaluation Evaluator::run(TrainState& state) {
  const auto start = Clock::now();
  double loss = 0, tokens = 0, correct = 0;
  std::vector<float> sums(static_cast<size_t>(run_.stage->metric_sums), 0);
  for (int64_t s = 0; s < batches_.steps_per_epoch(); ++s) {
    const RowLosses rows = this->rows(state, batches_.at(s));
    for (int64_t r = 0; r < rows.loss.shape().elements(); ++r) {
      loss += rows.loss.as<float>()[r];
      tokens += rows.tokens.as<float>()[r];
      if (rows.correct.shape().rank() > 0) correct += rows.correct.as<float>()[r];
    }
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += rows.metrics.as<float>()[i];
  }
  Evaluation out;
  out.tokens = static_cast<int64_t>(tokens);
  out.samples = batches_.groups();
  out.loss = loss / std::max(tokens, 1.0);
  if (run_.stage->metrics) out.figures = run_.stage->metrics(run_.keys, sums);
  out.perplexity = std::exp(out.loss);
  out.accuracy = correct / std::max(tokens, 1.0);
  out.seconds = seconds_since(start);
  return out;
}

std::vector<std::string> rows_not_finite(Devices& devices, const Run& run, TrainState& state, const Batch& batch) {
  const Dims& dims = batch.tokens.shape().dims;
  const Executable program = devices.compile(build_eval_step(run, dims[0] * dims[1], dims[2]));
  const ProgramRows rows = run_rows(devices, run, program, state, batch);
  std::vector<std::string> out;
  for (int64_t r = 0; r < rows.loss.shape().elements(); ++r)
    if (!std::isfinite(rows.loss.as<float>()[r])) out.push_back(batch.sources[r * rows.rows_of_each]);
  return out;
}

}  // namespace fettle
