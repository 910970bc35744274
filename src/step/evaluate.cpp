#include "step/evaluate.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/seconds_since.h"
#include "run/batch_spec.h"
#include "step/state/batch_arrays.h"
#include "step/step.h"

namespace fettle {

// The outputs of an evaluation program, summed over the micro-batches of a step. Each row is in one micro-batch; the
// other micro-batches add 0 to the row's entries.
struct ProgramRows {
  std::vector<float> loss, tokens;  // [rows]
  std::vector<float> correct;       // [rows]; empty unless the stage trains tokens
  std::vector<float> metrics;       // for preferences only
  std::vector<float> logits;        // for classifiers: [rows, labels]; with candidates: [rows, candidates]
};

namespace {

void add_up(std::vector<float>& sums, const std::vector<float>& values) {
  if (sums.empty()) sums.assign(values.size(), 0);
  for (size_t i = 0; i < values.size(); ++i) sums[i] += values[i];
}

ProgramRows run_rows(const Devices& devices, const Run& run, const Executable& program, TrainState& state,
                     const Batch& batch) {
  ProgramRows rows;
  for (int64_t micro_batch = 0; micro_batch < batch.used; ++micro_batch) {
    std::map<std::string, DeviceBuffer> inputs = upload_micro_batch(devices, run, batch, micro_batch);
    Bindings bindings = state.bindings();
    for (auto& [name, buffer] : inputs) bindings[name] = &buffer;
    std::map<std::string, DeviceBuffer> outputs = run_program(program, bindings);
    auto get = [&](const char* name) -> std::vector<float> {
      const auto found = outputs.find(name);
      if (found == outputs.end()) return {};
      const HostArray array = found->second.download();
      return {array.as<float>().begin(), array.as<float>().end()};
    };
    const std::vector<float> tokens = get("tokens");
    std::vector<float> logits = get("logits");
    const size_t labels = logits.size() / tokens.size();
    for (size_t i = 0; i < logits.size(); ++i)
      if (tokens[i / labels] == 0) logits[i] = 0;  // this row is in another micro-batch
    add_up(rows.loss, get("loss"));
    add_up(rows.tokens, tokens);
    add_up(rows.correct, get("correct"));
    add_up(rows.metrics, get("metrics"));
    add_up(rows.logits, logits);
  }
  return rows;
}

}  // namespace

std::map<std::string, double> Evaluation::metrics() const {
  std::map<std::string, double> out{
      {"eval_loss", loss},
      {"eval_runtime", seconds},
      {"eval_samples", static_cast<double>(samples)},
      {"eval_samples_per_second", seconds > 0 ? static_cast<double>(samples) / seconds : 0},
      {"eval_steps_per_second", seconds > 0 ? static_cast<double>(steps) / seconds : 0}};
  for (const auto& [name, value] : figures) out["eval_" + name] = value;
  if (figures.empty()) {
    out["eval_perplexity"] = perplexity;
    out["eval_accuracy"] = accuracy;
    out["eval_tokens"] = static_cast<double>(tokens);
  }
  return out;
}

bool can_branch(const Run& run) {
  return run.stage->head == Head::kTokens && run.eval_batch.lines == Lines::kRegrouped &&
         run.sharding.mesh().size_of("sp") == 1 &&
         std::ranges::all_of(run.model.family->cache(run.model.config), &CacheArray::has_positions);
}

namespace {

BatchSpec with_grouping(BatchSpec spec, RowGrouping grouping) {
  if (grouping != RowGrouping::kNone) spec.grouping = grouping;
  return spec;
}

}  // namespace

Evaluator::Evaluator(Devices& devices, const Run& run, const Examples& examples, std::vector<int32_t> candidates,
                     RowGrouping grouping)
    : devices_(devices),
      run_(run),
      candidates_(std::move(candidates)),
      batches_(examples, with_grouping(run.eval_batch, grouping)) {
  info("evaluation: {}", format_batches(batches_, ""));
}

const Executable& Evaluator::program(const BatchShape& shape) {
  const std::pair key(shape.lines, shape.length);
  const auto found = programs_.find(key);
  if (found != programs_.end()) return found->second;
  return programs_.emplace(key, devices_.compile(build_eval_step(run_, shape, candidates_))).first->second;
}

MemoryStats Evaluator::memory_stats() {
  return program(batches_.fullest()).memory_stats();
}

ProgramRows Evaluator::rows(TrainState& state, const Batch& batch) {
  return run_rows(devices_, run_, program(batch.shape), state, batch);
}

std::vector<double> Evaluator::losses(TrainState& state) {
  internal_check(candidates_.empty(), "Evaluator::losses: with candidates, there are only logits");
  std::vector<double> out;
  for (int64_t s = 0; s < batches_.steps_per_epoch(); ++s) {
    const Batch batch = batches_.at(s);
    const ProgramRows rows = this->rows(state, batch);
    for (size_t r = 0; r < rows.loss.size(); ++r)
      if (!batch.shape.branched || !batch.sources[r].empty()) out.push_back(rows.loss[r]);  // else filler
  }
  out.resize(static_cast<size_t>(batches_.examples()));  // drops filler after the last example
  return out;
}

std::vector<float> Evaluator::logits(TrainState& state, const std::function<void()>& before_batch) {
  std::vector<float> out;
  for (int64_t s = 0; s < batches_.steps_per_epoch(); ++s) {
    if (before_batch) before_batch();
    const ProgramRows rows = this->rows(state, batches_.at(s));
    for (float logit : rows.logits) out.push_back(logit);
  }
  const size_t width = candidates_.empty() ? static_cast<size_t>(run_.model.config.num_labels) : candidates_.size();
  out.resize(static_cast<size_t>(batches_.examples()) * width);  // drops filler at the end
  return out;
}

Evaluation Evaluator::run(TrainState& state, const std::function<void()>& before_batch) {
  internal_check(candidates_.empty(), "Evaluator::run: with candidates, there are only logits");
  const auto start = Clock::now();
  double loss = 0, tokens = 0, correct = 0;
  std::vector<float> sums(static_cast<size_t>(run_.stage->metric_sums), 0);
  for (int64_t s = 0; s < batches_.steps_per_epoch(); ++s) {
    if (before_batch) before_batch();
    const ProgramRows rows = this->rows(state, batches_.at(s));
    for (size_t r = 0; r < rows.loss.size(); ++r) {
      loss += rows.loss[r];
      tokens += rows.tokens[r];
    }
    for (const float right : rows.correct) correct += right;
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += rows.metrics[i];
  }
  Evaluation out;
  out.tokens = static_cast<int64_t>(tokens);
  out.samples = batches_.groups();
  out.steps = batches_.steps_per_epoch();
  out.loss = loss / std::max(tokens, 1.0);
  if (run_.stage->metrics) out.figures = run_.stage->metrics(run_.keys, sums);
  out.perplexity = std::exp(out.loss);
  out.accuracy = correct / std::max(tokens, 1.0);
  out.seconds = seconds_since(start);
  return out;
}

namespace {

// Returns the batch with only the sequences `first` to `end` - 1; the batch's first sequence has the number 0. If some
// sequences in a line have values that are not finite, the other sequences in the line also become NaN, because 0 times
// infinity is NaN. So a token of the kept sequences replaces all tokens of the other sequences.
Batch with_only(const Run& run, const Batch& batch, size_t first, size_t end) {
  Batch out{.shape = batch.shape, .used = batch.used};
  bool has_targets = false;  // classifiers have labels instead
  for (const BatchArray& array : batch_arrays(run, batch.shape, BatchExtent::kStep)) {
    out.*array.from = (batch.*array.from).clone();
    has_targets |= array.part == BatchPart::kTargets;
  }
  const auto rows = out.sequence_numbers.as<int32_t>(), tokens = out.tokens.as<int32_t>();
  const auto positions = out.positions.as<int32_t>(), segments = out.segments.as<int32_t>();
  const auto targets = has_targets ? out.targets.as<int32_t>() : std::span<int32_t>();
  auto kept = [&](int32_t row) { return row > static_cast<int32_t>(first) && row <= static_cast<int32_t>(end); };
  const auto place = std::ranges::find_if(rows, kept);
  const int32_t filler = place == rows.end() ? 0 : tokens[static_cast<size_t>(place - rows.begin())];
  for (size_t i = 0; i < rows.size(); ++i) {
    if (kept(rows[i])) continue;
    tokens[i] = filler;
    if (has_targets) targets[i] = kIgnore;
    positions[i] = segments[i] = rows[i] = 0;
  }
  return out;
}

}  // namespace

std::vector<std::string> rows_not_finite(Devices& devices, const Run& run, TrainState& state, const Batch& batch) {
  const Executable program = devices.compile(build_eval_step(run, batch.shape));
  auto losses = [&](const Batch& rows) { return run_rows(devices, run, program, state, rows).loss; };
  const std::vector<float> together = losses(batch);
  const size_t of_each = batch.sources.size() / together.size();
  std::vector<std::string> out;
  for (size_t r = 0; r < together.size(); ++r)
    if (!std::isfinite(together[r]) && !std::isfinite(losses(with_only(run, batch, r * of_each, (r + 1) * of_each))[r]))
      out.push_back(batch.sources[r * of_each]);
  return out;
}

}  // namespace fettle
