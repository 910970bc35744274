#include "report/confusion_plot.h"

#include <fmt/format.h>

#include <algorithm>

#include "report/canvas.h"

namespace fettle {
namespace {

constexpr Colour kRightColour{0.11, 0.31, 0.85}, kWrongColour{0.92, 0.35, 0.05}, kWhite{1, 1, 1};
constexpr double kCellsTop = 56, kMargin = 24, kLetter = 6.6;  // points; kLetter: width of a 12-point letter
constexpr size_t kLongest = 24;                                // longest name, in bytes

std::string shortened(const std::string& name) {
  if (name.size() <= kLongest) return name;
  size_t end = kLongest - 1;
  while (end > 0 && (name[end] & 0xc0) == 0x80) --end;  // keeps whole UTF-8 characters
  return name.substr(0, end) + "…";
}

Colour mixed(Colour colour, double share) {
  auto part = [share](double value) { return 1 - share * (1 - value); };
  return {part(colour.red), part(colour.green), part(colour.blue)};
}

struct PlotLayout {
  double cell = 0, left = 0, bottom = 0;  // bottom: lower edge of the cells
  double width = 0, height = 0;
};

PlotLayout layout_of(const Confusion& confusion) {
  const auto labels = static_cast<double>(confusion.names.size());
  size_t longest = 4;
  for (const std::string& name : confusion.names) longest = std::max(longest, shortened(name).size());
  const double names = kLetter * static_cast<double>(longest) + 12;
  PlotLayout out{.cell = std::clamp(640 / labels, 14.0, 64.0), .left = names + 32};
  out.bottom = kCellsTop + labels * out.cell;
  out.width = std::max(out.left + labels * out.cell + kMargin, 420.0);
  out.height = out.bottom + names + 40;
  return out;
}

void draw_confusion(Canvas& canvas, const Confusion& confusion, const PlotLayout& at) {
  canvas.fill(kWhite);
  const size_t labels = confusion.names.size();
  const double right = at.left + static_cast<double>(labels) * at.cell;
  for (size_t t = 0; t < labels; ++t) {
    const int64_t* line = confusion.counts.data() + t * labels;
    int64_t rows = 0;
    for (size_t k = 0; k < labels; ++k) rows += line[k];
    const double y = kCellsTop + static_cast<double>(t) * at.cell;
    const std::string name = shortened(confusion.names[t]);
    canvas.text(at.left - 8, y + at.cell / 2 + 4, name, 1, 12, kInk);
    canvas.text_upwards(at.left + (static_cast<double>(t) + 0.5) * at.cell + 4, at.bottom + 8, name, 12, kInk, 1);
    for (size_t k = 0; k < labels; ++k) {
      if (line[k] == 0) continue;
      const double share = static_cast<double>(line[k]) / static_cast<double>(rows);
      const double x = at.left + static_cast<double>(k) * at.cell;
      canvas.box(x, y, at.cell, at.cell, mixed(t == k ? kRightColour : kWrongColour, 0.08 + 0.92 * share));
      const std::string count = std::to_string(line[k]);
      if (kLetter * static_cast<double>(count.size()) + 2 <= at.cell)
        canvas.text(x + at.cell / 2, y + at.cell / 2 + 4, count, 0.5, 11, share > 0.5 ? kWhite : kInk);
    }
  }
  for (size_t i = 0; i <= labels; ++i) {
    const double step = static_cast<double>(i) * at.cell;
    canvas.line(at.left, kCellsTop + step, right, kCellsTop + step, kGrid, 1);
    canvas.line(at.left + step, kCellsTop, at.left + step, at.bottom, kGrid, 1);
  }
  canvas.text_upwards(18, (kCellsTop + at.bottom) / 2, "true", 13, kFaint, 0.5);
  canvas.text((at.left + right) / 2, at.height - 14, "predicted", 0.5, 13, kFaint);
  canvas.title(kMargin, 32, confusion.title, at.width - 2 * kMargin);
}

}  // namespace

void write_confusion_plot(const std::filesystem::path& stem, const Confusion& confusion) {
  const PlotLayout at = layout_of(confusion);
  write_picture(stem, at.width, at.height, [&](Canvas& canvas) { draw_confusion(canvas, confusion, at); });
}

}  // namespace fettle
