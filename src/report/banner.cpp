#include "report/banner.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/size_text.h"
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
