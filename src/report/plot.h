// Defines write_loss_plot, which draws the loss curves of a run (training_loss.png and .svg).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "report/log_files.h"

namespace fettle {

struct LossCurves {
  struct Point {
    int64_t step = 0;
    double loss = 0;
  };
  std::string title = "loss";
  std::vector<Point> training, evaluation;
};

// Returns the curves of "loss" (training) and "eval_loss" (evaluation) in a run's log_history.
LossCurves loss_curves(const std::vector<LogRecord>& history, std::string title);

// Returns the exponential moving average that LLaMA-Factory draws. The more values there are, the more strongly they
// are smoothed.
std::vector<double> smooth(const std::vector<double>& values);

// Writes STEM.png (1600 x 1000) and STEM.svg: the training loss as a light line, its average as a bold line, and the
// evaluations as a line with dots. Leaves out points whose loss is not finite. The same curves always give the same
// bytes. Throws UserError when a file is not writable.
void write_loss_plot(const std::filesystem::path& stem, const LossCurves& curves);

}  // namespace fettle
