// Defines Progress, which shows the progress of a run.
//
// Tokens do not include padding. Speeds and the remaining time are computed without the steps in which a program was
// compiled, and without the work between steps (evaluation, saving).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "base/seconds_since.h"

namespace fettle {

// The values of one progress line. Absent values are not shown.
struct ProgressView {
  int64_t step = 0, total_steps = 0;
  std::optional<double> epoch, loss, learning_rate, grad_norm;
  std::map<std::string, double> figures;  // further figures of the step, such as rewards/margins
  std::optional<double> tokens_per_second;
  std::optional<double> share;                 // FLOP/s reached, as a share of the peak FLOP/s, 0..1
  int64_t memory_bytes = 0, memory_limit = 0;  // per device; 0 = not known
  std::optional<double> seconds_left;
};

// Formats the values: "step 120/900 (13%) | epoch 0.40 | loss 1.8342 | lr 9.6e-05 | grad 0.71 | 1,520 tokens/s | 62% of
// peak | 1.9 GB of 23.4 GB | 0:08:12 left".
std::string format_progress(const ProgressView& view);

struct ProgressOptions {
  int64_t total_steps = 0;
  int64_t logging_steps = 10;
  double peak_flops = 0;                       // FLOP/s of all devices together; 0: not known
  int64_t memory_bytes = 0, memory_limit = 0;  // per device: the step's peak, and the device's limit
};

// The outcome of one step.
struct StepReport {
  int64_t step = 0;  // steps done, including this one
  double epoch = 0, loss = 0, learning_rate = 0, grad_norm = 0;
  std::map<std::string, double> figures = {};  // further figures to show
  int64_t real_tokens = 0;
  double flops = 0;  // floating-point operations of the step over all devices; 0 = not known
  bool warm = true;  // false: the step compiled a program and is not timed
};

// On a terminal, shows a live line. Elsewhere, prints a line every logging_steps steps. In both cases, prints a line
// after the last step. Never times the first step of this process.
class Progress {
 public:
  explicit Progress(const ProgressOptions& options);

  // Call these before and after each step. Fetching the batch is part of the step. `now` is the time of the call.
  void start_step(Clock::time_point now = Clock::now()) { step_begin_ = now; }
  void finish_step(const StepReport& report, Clock::time_point now = Clock::now());

  // tokens_per_second() and share() cover the timed steps since the last call of mark(). Both return nullopt when there
  // are no such steps. share() also returns nullopt when the peak FLOP/s or the step's FLOPs are not known.
  std::optional<double> tokens_per_second() const { return rate(span().tokens, span().seconds); }
  std::optional<double> share() const;  // FLOP/s reached, as a share of the peak FLOP/s, 0..1
  void mark() { marked_ = all_; }       // starts a new span (after a log record)

  double elapsed_seconds() const;                         // since construction
  double seconds_left() const;                            // 0 until a step was timed
  int64_t total_tokens() const { return total_tokens_; }  // tokens of all steps, timed or not, without padding
  ProgressView view() const;                              // the values of the latest step

 private:
  struct Sums {
    double tokens = 0, flops = 0, seconds = 0;
  };
  Sums span() const;  // since mark()
  static std::optional<double> rate(double amount, double seconds);

  ProgressOptions options_;
  Clock::time_point begin_, step_begin_, shown_;
  StepReport latest_;
  int64_t steps_ = 0, timed_steps_ = 0, total_tokens_ = 0;
  Sums all_, marked_;  // sums over timed steps
};

}  // namespace fettle
