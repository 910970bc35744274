#include "report/progress.h"

#include <algorithm>
#include <cmath>

#include "base/log.h"
#include "base/size_text.h"
#include "report/log_files.h"

namespace fettle {

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

void Progress::finish_step(const StepReport& report, Clock::time_point now) {
  const double seconds = std::chrono::duration<double>(now - step_begin_).count();
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

}  // namespace fettle
