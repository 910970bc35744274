// Draws the loss curves of a run (training_loss.png and .svg).
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

// "loss" and "eval_loss" of a run's log_history.
LossCurves loss_curves(const std::vector<LogRecord>& history, std::string title);

// The exponential moving average LLaMA-Factory draws: the more values there are, the smoother.
std::vector<double> smooth(const std::vector<double>& values);

// Writes STEM.png (1600 x 1000) and STEM.svg: the raw training loss light, the smoothed one bold, evaluations as dots.
// Points whose loss is not finite are left out. Same curves, same bytes. Throws UserError when a file is not writable.
void write_loss_plot(const std::filesystem::path& stem, const LossCurves& curves);

}  // namespace fettle
