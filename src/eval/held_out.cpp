#include "eval/held_out.h"

#include "base/seconds_since.h"

namespace fettle {

HeldOut::HeldOut(Devices& devices, const Run& run, const Examples& rows)
    : rows_(rows), evaluator_(devices, run, rows), labels_(run.labels()) {}

Evaluation HeldOut::run(TrainState& state, const std::function<void()>& before_batch) {
  if (!labels_) return evaluator_.run(state, before_batch);
  const auto start = Clock::now();
  last_ = classification_report(rows_, evaluator_.logits(state, before_batch), *labels_);
  Evaluation out;
  out.loss = last_->loss;
  out.figures = last_->figures();
  out.tokens = out.samples = last_->rows;
  out.seconds = seconds_since(start);
  return out;
}

void HeldOut::write(const std::filesystem::path& folder) const {
  if (last_) write_class_report(folder, *last_, *labels_);
}

}  // namespace fettle
