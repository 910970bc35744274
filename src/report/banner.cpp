#include "report/banner.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/log.h"
#include "base/size_text.h"
#include "data/row_readers.h"
#include "report/log_files.h"

namespace fettle {
namespace {

std::string metric_text(const std::string& name, double value) {
  if (name.ends_with("_runtime")) {
    const double hundredths = std::round(std::fmod(value, 1) * 100);
    return hundredths < 100 ? fmt::format("{}.{:02.0f}", format_duration(value), hundredths)
                            : format_duration(value + 1) + ".00";
  }
  if (name.ends_with("_flos")) return fmt::format("{:.0f}GF", std::floor(value / 1073741824.0));
  if (name.starts_with("num_")) return fmt::format("{:.0f}", value);
  std::string text = fmt::format("{:.4f}", value);
  while (text.ends_with('0') && !text.ends_with(".0")) text.pop_back();
  return text;
}

}  // namespace

std::string format_banner(const RunFigures& f) {
  std::string text = "***** Running training *****\n";
  const auto add = [&](const char* what, const std::string& value) { text += fmt::format("  {} = {}\n", what, value); };
  add("Num examples", with_commas(f.examples));
  add("Num Epochs", fmt::format("{:g}", std::round(f.epochs * 100) / 100));
  add("Instantaneous batch size per device", with_commas(f.batch_per_device));
  add("Total train batch size (w. parallel, distributed & accumulation)", with_commas(f.total_batch));
  add("Gradient Accumulation steps", with_commas(f.accumulation));
  add("Total optimization steps", with_commas(f.total_steps));
  add("Number of trainable parameters",
      fmt::format("{} of {} ({:.4g}%)", with_commas(f.trainable_parameters), with_commas(f.all_parameters),
                  100.0 * static_cast<double>(f.trainable_parameters) /
                      static_cast<double>(std::max<int64_t>(1, f.all_parameters))));
  if (!f.devices.empty()) add("Devices", f.devices);
  if (f.resumed_step > 0) add("Continuing from step", with_commas(f.resumed_step));
  text.pop_back();
  return text;
}

void announce(const Run& run, const RunLength& length, const Batches& batches, const DataReport& data,
              int64_t resumed_step, const std::string& devices) {
  if (run.precision.by_default && run.precision.compute == DType::kF32 && byte_size(run.model.config.dtype) == 2)
    info(
        "the model is stored in 16 bits but trained in float32, because the recipe sets no dtype; bf16: true takes "
        "about half the memory and time; bf16: false keeps float32 without this message");
  for (const std::string& note : data.notes) info("data: {}", note);
  if (!data.labels.empty()) info("labels: {}", data.labels);
  if (data.truncated > 0)
    info("data: {} of {} rows were cut to cutoff_len {}", data.truncated, data.rows, run.data.cutoff_len);
  if (data.dropped + data.bad_rows > 0) info("data: {} rows were left out", data.dropped + data.bad_rows);
  if (!run.batch.skip_rows.empty()) info("data: skip_rows leaves out {}", fmt::join(run.batch.skip_rows, ", "));
  info("batches: {}", format_batches(batches, " an epoch"));
  info("{}", format_banner({.examples = batches.examples() / row_reader(run.data.rows).examples_per_row,
                            .epochs = length.epoch(length.total_steps),
                            .batch_per_device = run.rows_per_device,
                            .total_batch = run.rows_per_step(),
                            .accumulation = run.batch.micro_batches,
                            .total_steps = length.total_steps,
                            .trainable_parameters = run.count(run.trained),
                            .all_parameters = run.count(run.trained) + run.count(run.frozen),
                            .resumed_step = resumed_step,
                            .devices = devices}));
}

std::string format_metrics(const std::string& split, const std::map<std::string, double>& metrics) {
  size_t name_width = 0, value_width = 0;
  for (const auto& [name, value] : metrics) {
    name_width = std::max(name_width, name.size());
    value_width = std::max(value_width, metric_text(name, value).size());
  }
  std::string text = fmt::format("***** {} metrics *****", split);
  for (const auto& [name, value] : metrics)
    text += fmt::format("\n  {:<{}} = {:>{}}", name, name_width, metric_text(name, value), value_width);
  return text;
}

}  // namespace fettle
