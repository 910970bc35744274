#include "report/plot.h"

#include <cairo-svg.h>
#include <cairo.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <regex>

#include "base/error.h"
#include "checkpoint/files.h"

namespace fettle {
namespace {

using Points = std::vector<LossCurves::Point>;

constexpr double kWidth = 800, kHeight = 500;  // points of the svg; the png has kScale pixels for each
constexpr double kScale = 2;
constexpr double kLeft = 72, kRight = 24, kTop = 56, kBottom = 56;
constexpr size_t kMostPoints = 2000;  // more would only make the svg large

struct Colour {
  double red, green, blue, alpha = 1;
};
constexpr Colour kInk{0.13, 0.15, 0.19}, kFaint{0.42, 0.45, 0.5}, kGrid{0.9, 0.91, 0.93};
constexpr Colour kRaw{0.15, 0.39, 0.92, 0.28}, kSmooth{0.11, 0.31, 0.85}, kEvaluation{0.92, 0.35, 0.05};

Points finite(const Points& points) {
  Points out;
  std::copy_if(points.begin(), points.end(), std::back_inserter(out),
               [](const auto& p) { return std::isfinite(p.loss); });
  return out;
}

// The smallest and largest of each run of points, so that spikes stay.
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
      out.push_back(i * tick + 0.0);  // never -0
    return out;
  }
  // Where `value` lies between the ends, 0..1.
  double at(double value) const { return (value - low) / (high - low); }
};

// 1, 2 or 5 times a power of ten, so that about `wanted` ticks fit.
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
  if (axis.low < 0.1 * axis.high) axis.low = std::min(axis.low, 0.0);  // a run shown from its start
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

class Canvas {
 public:
  explicit Canvas(cairo_t* cairo) : cairo_(cairo) {
    cairo_set_line_join(cairo_, CAIRO_LINE_JOIN_ROUND);
    cairo_set_line_cap(cairo_, CAIRO_LINE_CAP_ROUND);
  }

  void fill(Colour c) {
    set(c);
    cairo_paint(cairo_);
  }
  void line(double x0, double y0, double x1, double y1, Colour c, double width) {
    cairo_move_to(cairo_, x0, y0);
    cairo_line_to(cairo_, x1, y1);
    stroke(c, width);
  }
  void dot(double x, double y, double radius, Colour c) {
    cairo_new_sub_path(cairo_);
    cairo_arc(cairo_, x, y, radius, 0, 2 * M_PI);
    set(c);
    cairo_fill(cairo_);
  }
  // `along`: 0 begins at x, 0.5 is centred on it, 1 ends there.
  void text(double x, double y, const std::string& text, double along, double size, Colour c, bool bold = false) {
    font(size, bold);
    set(c);
    cairo_move_to(cairo_, x - along * width_of(text), y);
    cairo_show_text(cairo_, text.c_str());
  }
  void text_upwards(double x, double y, const std::string& text, double size, Colour c) {
    cairo_save(cairo_);
    cairo_translate(cairo_, x, y);
    cairo_rotate(cairo_, -M_PI / 2);
    this->text(0, 0, text, 0.5, size, c);
    cairo_restore(cairo_);
  }
  // Cut with an ellipsis to be no wider than `most`.
  void title(double x, double y, std::string title, double most) {
    font(17, true);
    std::string shown = title;
    while (!title.empty() && width_of(shown) > most) {
      while ((title.back() & 0xc0) == 0x80) title.pop_back();  // a whole UTF-8 character
      title.pop_back();
      shown = title + "…";
    }
    text(x, y, shown, 0, 17, kInk, true);
  }
  double width_of(const std::string& text) {
    cairo_text_extents_t extents;
    cairo_text_extents(cairo_, text.c_str(), &extents);
    return extents.x_advance;
  }
  void path(const std::vector<std::pair<double, double>>& at, Colour c, double width) {
    if (at.size() == 1) return dot(at[0].first, at[0].second, 4, c);
    cairo_new_path(cairo_);  // showing text leaves a current point
    for (const auto& [x, y] : at) cairo_line_to(cairo_, x, y);
    stroke(c, width);
  }

 private:
  void set(Colour c) { cairo_set_source_rgba(cairo_, c.red, c.green, c.blue, c.alpha); }
  void font(double size, bool bold) {
    cairo_select_font_face(cairo_, "sans-serif", CAIRO_FONT_SLANT_NORMAL,
                           bold ? CAIRO_FONT_WEIGHT_BOLD : CAIRO_FONT_WEIGHT_NORMAL);
    cairo_set_font_size(cairo_, size);
  }
  void stroke(Colour c, double width) {
    set(c);
    cairo_set_line_width(cairo_, width);
    cairo_stroke(cairo_);
  }
  cairo_t* cairo_;
};

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

void draw(cairo_t* cairo, const LossCurves& curves) {
  Canvas canvas(cairo);
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

// cairo numbers the surfaces of a process; the file is to be the same every time.
std::string without_surface_number(const std::string& svg) {
  static const std::regex kNumbered("\"surface[0-9]+\"");
  return std::regex_replace(svg, kNumbered, "\"plot\"");
}

cairo_status_t append(void* closure, const unsigned char* data, unsigned int length) {
  static_cast<std::string*>(closure)->append(reinterpret_cast<const char*>(data), length);
  return CAIRO_STATUS_SUCCESS;
}

void check(cairo_status_t status) {
  internal_check(status == CAIRO_STATUS_SUCCESS, "cairo cannot draw the loss plot: {}", cairo_status_to_string(status));
}

// Draws on `surface`, takes what `finish` then makes of it, and destroys it.
void draw_on(cairo_surface_t* surface, double scale, const LossCurves& curves,
             const std::function<cairo_status_t(cairo_surface_t*)>& finish) {
  const std::unique_ptr<cairo_surface_t, void (*)(cairo_surface_t*)> owner(surface, cairo_surface_destroy);
  check(cairo_surface_status(surface));
  const std::unique_ptr<cairo_t, void (*)(cairo_t*)> cairo(cairo_create(surface), cairo_destroy);
  cairo_scale(cairo.get(), scale, scale);
  draw(cairo.get(), curves);
  check(cairo_status(cairo.get()));
  check(finish(surface));
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
  std::string png, svg;
  draw_on(cairo_image_surface_create(CAIRO_FORMAT_RGB24, static_cast<int>(kWidth * kScale),
                                     static_cast<int>(kHeight * kScale)),
          kScale, curves,
          [&](cairo_surface_t* surface) { return cairo_surface_write_to_png_stream(surface, append, &png); });
  draw_on(cairo_svg_surface_create_for_stream(append, &svg, kWidth, kHeight), 1, curves, [](cairo_surface_t* surface) {
    cairo_surface_finish(surface);
    return cairo_surface_status(surface);
  });
  write_file(stem.string() + ".png", png);
  write_file(stem.string() + ".svg", without_surface_number(svg));
}

}  // namespace fettle
