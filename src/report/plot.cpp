#include "report/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "report/canvas.h"

namespace fettle {
namespace {

using Points = std::vector<LossCurves::Point>;

constexpr double kWidth = 800, kHeight = 500;
constexpr double kLeft = 72, kRight = 24, kTop = 56, kBottom = 56;
constexpr size_t kMostPoints = 2000;  // more would only enlarge the svg

constexpr Colour kRaw{0.15, 0.39, 0.92, 0.28}, kSmooth{0.11, 0.31, 0.85}, kEvaluation{0.92, 0.35, 0.05};

Points finite(const Points& points) {
  Points out;
  std::copy_if(points.begin(), points.end(), std::back_inserter(out),
               [](const auto& p) { return std::isfinite(p.loss); });
  return out;
}

// Keeps the smallest and the largest point of each group of consecutive points, so that spikes remain visible.
Points thin(const Points& points) {
  if (points.size() <= kMostPoints) return points;
  const size_t run = (2 * points.size() + kMostPoints - 1) / kMostPoints;
  Points out;
  for (size_t i = 0; i < points.size(); i += run) {
    const auto [low, high] = std::minmax_element(points.begin() + i, points.begin() + std::min(i + run, points.size()),
                                                 [](const auto& a, const auto& b) { return a.loss < b.loss; });
    out.push_back(*std::min(low, high));
    if (low != high) out.push_back(*std::max(low, high));
  }
  return out;
}

struct Axis {
  double low = 0, high = 1, tick = 1;
  std::vector<double> ticks() const {
    std::vector<double> out;
    for (double i = std::ceil(low / tick - 1e-9); i * tick <= high + tick * 1e-9; ++i)
      out.push_back(i * tick + 0.0);  // + 0.0 turns -0 into 0
    return out;
  }
  // Returns where `value` is on the axis: 0 at the lower end, 1 at the upper end.
  double at(double value) const { return (value - low) / (high - low); }
};

// Returns the distance between ticks: 1, 2 or 5 times a power of ten, so that `span` has about `wanted` ticks.
double tick_for(double span, int wanted) {
  const double rough = span / wanted, power = std::pow(10, std::floor(std::log10(rough)));
  for (double factor : {1.0, 2.0, 5.0})
    if (rough <= factor * power * (1 + 1e-9)) return factor * power;
  return 10 * power;
}

Axis step_axis(const LossCurves& curves) {
  int64_t low = INT64_MAX, high = INT64_MIN;
  for (const Points* points : {&curves.training, &curves.evaluation})
    for (const auto& p : *points) low = std::min(low, p.step), high = std::max(high, p.step);
  if (low > high) return {0, 1, 1};
  if (low == high) --low, ++high;
  Axis axis{static_cast<double>(low), static_cast<double>(high), 1};
  // If the first step is near 0, the axis starts at 0.
  if (axis.low < 0.1 * axis.high) axis.low = std::min(axis.low, 0.0);
  axis.tick = std::max(1.0, tick_for(axis.high - axis.low, 8));
  return axis;
}

Axis loss_axis(const LossCurves& curves) {
  double low = INFINITY, high = -INFINITY;
  for (const Points* points : {&curves.training, &curves.evaluation})
    for (const auto& p : *points) low = std::min(low, p.loss), high = std::max(high, p.loss);
  if (low > high) return {0, 1, 0.2};
  const double margin = high > low ? 0.06 * (high - low) : std::max(0.05 * std::abs(high), 1e-9);
  Axis axis{low >= 0 ? std::max(0.0, low - margin) : low - margin, high + margin, 1};
  axis.tick = tick_for(axis.high - axis.low, 6);
  return axis;
}

std::string tick_text(double value, double tick) {
  if (tick >= 1e6 || tick < 1e-6) return fmt::format("{:.3g}", value);
  const int decimals = std::clamp(static_cast<int>(std::ceil(-std::log10(tick) - 1e-9)), 0, 6);
  return fmt::format("{:.{}f}", value, decimals);
}

struct Series {
  std::string label;
  Points points;
  Colour colour;
  double width;
  bool dots;
};

std::vector<Series> series_of(const LossCurves& curves) {
  std::vector<double> losses;
  for (const auto& p : curves.training) losses.push_back(p.loss);
  Points smoothed = curves.training;
  const std::vector<double> values = smooth(losses);
  for (size_t i = 0; i < values.size(); ++i) smoothed[i].loss = values[i];
  std::vector<Series> out;
  if (losses.size() == 1) out.push_back({"training", curves.training, kSmooth, 2.4, false});
  if (losses.size() > 1) out.push_back({"training", thin(curves.training), kRaw, 1.2, false});
  if (losses.size() > 1) out.push_back({"training, smoothed", thin(smoothed), kSmooth, 2.4, false});
  if (!curves.evaluation.empty()) out.push_back({"evaluation", thin(curves.evaluation), kEvaluation, 1.6, true});
  return out;
}

void draw_axes(Canvas& canvas, const Axis& steps, const Axis& losses) {
  const double right = kWidth - kRight, bottom = kHeight - kBottom;
  for (double value : losses.ticks()) {
    const double y = bottom - losses.at(value) * (bottom - kTop);
    canvas.line(kLeft, y, right, y, kGrid, 1);
    canvas.text(kLeft - 10, y + 4, tick_text(value, losses.tick), 1, 12, kFaint);
  }
  for (double value : steps.ticks()) {
    const double x = kLeft + steps.at(value) * (right - kLeft);
    canvas.line(x, bottom, x, bottom + 5, kFaint, 1);
    canvas.text(x, bottom + 20, fmt::format("{:.0f}", value), 0.5, 12, kFaint);
  }
  canvas.line(kLeft, bottom, right, bottom, kFaint, 1);
  canvas.text((kLeft + right) / 2, kHeight - 14, "step", 0.5, 13, kInk);
  canvas.text_upwards(20, (kTop + bottom) / 2, "loss", 13, kInk);
}

void draw_curves(Canvas& canvas, const LossCurves& curves) {
  canvas.fill({1, 1, 1});
  const Axis steps = step_axis(curves), losses = loss_axis(curves);
  draw_axes(canvas, steps, losses);
  const double right = kWidth - kRight, bottom = kHeight - kBottom;
  const std::vector<Series> all = series_of(curves);
  if (all.empty()) canvas.text((kLeft + right) / 2, (kTop + bottom) / 2, "no loss was recorded", 0.5, 14, kFaint);
  for (const Series& series : all) {
    std::vector<std::pair<double, double>> at;
    for (const auto& p : series.points)
      at.emplace_back(kLeft + steps.at(static_cast<double>(p.step)) * (right - kLeft),
                      bottom - losses.at(p.loss) * (bottom - kTop));
    canvas.path(at, series.colour, series.width);
    if (series.dots && at.size() <= 100)
      for (const auto& [x, y] : at) canvas.dot(x, y, 3.5, series.colour);
  }
  double x = right;
  for (size_t i = all.size(); i-- > 0;) {
    canvas.text(x, 32, all[i].label, 1, 12, kFaint);
    x -= canvas.width_of(all[i].label) + 8;
    canvas.line(x - 22, 28, x, 28, all[i].colour, std::max(2.0, all[i].width));
    x -= 40;
  }
  canvas.title(kLeft, 32, curves.title, x - kLeft);
}

}  // namespace

LossCurves loss_curves(const std::vector<LogRecord>& history, std::string title) {
  LossCurves curves{std::move(title), {}, {}};
  for (const LogRecord& record : history) {
    if (const auto loss = record.values.find("loss"); loss != record.values.end())
      curves.training.push_back({record.step, loss->second});
    if (const auto loss = record.values.find("eval_loss"); loss != record.values.end())
      curves.evaluation.push_back({record.step, loss->second});
  }
  return curves;
}

std::vector<double> smooth(const std::vector<double>& values) {
  std::vector<double> out;
  const double weight = 1.8 * (1 / (1 + std::exp(-0.05 * static_cast<double>(values.size()))) - 0.5);
  for (double value : values) out.push_back(out.empty() ? value : out.back() * weight + (1 - weight) * value);
  return out;
}

void write_loss_plot(const std::filesystem::path& stem, const LossCurves& given) {
  const LossCurves curves{given.title, finite(given.training), finite(given.evaluation)};
  write_picture(stem, kWidth, kHeight, [&](Canvas& canvas) { draw_curves(canvas, curves); });
}

}  // namespace fettle
