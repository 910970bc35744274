#include "report/progress.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/seconds_since.h"
#include "base/size_text.h"
#include "graph/ops.h"
#include "programs/layouts.h"
#include "report/log_files.h"
#include "runtime/vendors/targets.h"

namespace fettle {
namespace {

// Returns the seconds of the fastest of four n x n x n products on one device.
double measure_product(const Devices& devices, int64_t n, DType dtype) {
  Program program;
  BuildScope scope(program.block());
  const Shape shape{dtype, {n, n}};
  const Tensor x = program.input("x", shape), y = program.input("y", shape);
  program.output("z", dot_general(x, y, {.lhs_contracting = {1}, .rhs_contracting = {0}}));
  const Executable executable = devices.client().compile(program.text(), signature_of(program));
  const HostArray values = HostArray::from<float>({DType::kF32, shape.dims}, std::vector<float>(n * n, 0.5f)).to(dtype);
  DeviceBuffer a = DeviceBuffer::upload(devices.client(), values, Layout::replicated(shape.dims, 1));
  DeviceBuffer b = DeviceBuffer::upload(devices.client(), values, Layout::replicated(shape.dims, 1));
  double best = INFINITY;
  for (int i = 0; i < 4; ++i) {
    const Clock::time_point start = Clock::now();
    const std::vector<DeviceBuffer> result = executable.run({&a, &b});
    executable.wait();
    best = std::min(best, seconds_since(start));
  }
  return best;
}

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

std::string format_progress(const ProgressView& view) {
  std::string text = fmt::format("step {}/{}", view.step, view.total_steps);
  if (view.total_steps > 0) text += fmt::format(" ({}%)", 100 * view.step / view.total_steps);
  const auto add = [&](const std::string& part) { text += " | " + part; };
  if (view.epoch) add(fmt::format("epoch {:.2f}", *view.epoch));
  if (view.loss) add(fmt::format("loss {:.4f}", *view.loss));
  if (view.learning_rate) add(fmt::format("lr {:.3g}", *view.learning_rate));
  if (view.grad_norm) add(fmt::format("grad {:.3g}", *view.grad_norm));
  for (const auto& [name, value] : view.figures) add(fmt::format("{} {:.3g}", name, value));
  if (view.tokens_per_second)
    add(*view.tokens_per_second < 100 ? fmt::format("{:.1f} tokens/s", *view.tokens_per_second)
                                      : with_commas(std::llround(*view.tokens_per_second)) + " tokens/s");
  if (view.share) add(fmt::format("{:.0f}% of peak", 100 * *view.share));
  if (view.memory_bytes > 0)
    add(size_text(view.memory_bytes, 1) + (view.memory_limit > 0 ? " of " + size_text(view.memory_limit, 1) : ""));
  if (view.seconds_left) add(format_duration(*view.seconds_left) + " left");
  return text;
}

Progress::Progress(const ProgressOptions& options) : options_(options), begin_(Clock::now()), step_begin_(begin_) {}

void Progress::start_step() {
  step_begin_ = Clock::now();
}

void Progress::finish_step(const StepReport& report) {
  const double seconds = seconds_since(step_begin_);
  latest_ = report;
  total_tokens_ += report.real_tokens;
  if (report.warm && steps_ > 0) {
    ++timed_steps_;
    all_.tokens += static_cast<double>(report.real_tokens);
    all_.flops += report.flops;
    all_.seconds += seconds;
  }
  ++steps_;
  const bool last = report.step >= options_.total_steps;
  const bool logged = last || (options_.logging_steps > 0 && report.step % options_.logging_steps == 0);
  if (last || (logged && !stderr_is_terminal()))
    info("{}", format_progress(view()));
  else if (shown_ == Clock::time_point{} || seconds_since(shown_) > 0.1)
    shown_ = Clock::now(), live_line(format_progress(view()));
}

Progress::Sums Progress::span() const {
  return {all_.tokens - marked_.tokens, all_.flops - marked_.flops, all_.seconds - marked_.seconds};
}

std::optional<double> Progress::rate(double amount, double seconds) {
  return seconds > 0 ? std::optional(amount / seconds) : std::nullopt;
}

std::optional<double> Progress::share() const {
  if (options_.peak_flops <= 0 || span().flops <= 0) return std::nullopt;
  return rate(span().flops / options_.peak_flops, span().seconds);
}

double Progress::elapsed_seconds() const {
  return seconds_since(begin_);
}

double Progress::seconds_left() const {
  if (timed_steps_ == 0) return 0;
  return std::max(
      0.0, static_cast<double>(options_.total_steps - latest_.step) * all_.seconds / static_cast<double>(timed_steps_));
}

ProgressView Progress::view() const {
  ProgressView view{.step = latest_.step,
                    .total_steps = options_.total_steps,
                    .epoch = latest_.epoch,
                    .loss = latest_.loss,
                    .learning_rate = latest_.learning_rate,
                    .grad_norm = latest_.grad_norm,
                    .figures = latest_.figures,
                    .tokens_per_second = tokens_per_second(),
                    .share = share(),
                    .memory_bytes = options_.memory_bytes,
                    .memory_limit = options_.memory_limit};
  if (timed_steps_ > 0) view.seconds_left = seconds_left();
  return view;
}

double data_sheet_flops(const std::string& kind, DType compute) {
  if (compute != DType::kBF16 && compute != DType::kF16) return 0;
  const Target* target = target_of_kind(kind);
  return target == nullptr ? 0 : target->bf16_tflops * 1e12;
}

double best_product_flops(const std::function<double(int64_t n, DType dtype)>& seconds_of, DType compute) {
  std::vector<DType> ways{compute};
  if (compute != DType::kF32) ways.push_back(DType::kF32);
  double best = 0;
  for (const DType dtype : ways) {
    // Only products of large matrices keep many cores busy, but with few cores such products take long. So the size
    // grows until one product takes more than 4 ms.
    for (int64_t n : {512, 1024, 2048}) {
      const double seconds = seconds_of(n, dtype);
      best = std::max(best, 2.0 * static_cast<double>(n * n * n) / seconds);
      if (seconds > 0.004) break;
    }
  }
  return best;
}

double peak_flops(const Devices& devices, DType compute) {
  if (!devices.on_host())
    return static_cast<double>(devices.count()) * data_sheet_flops(devices.client().devices()[0].kind, compute);
  // With several processes, nothing is measured. A measured time decides which product runs next, and the times differ
  // between processes. So the processes would run different products.
  if (devices.local_count() < devices.count()) return 0;
  return best_product_flops([&](int64_t n, DType dtype) { return measure_product(devices, n, dtype); }, compute);
}

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
