#include "report/canvas.h"

#include <cairo-svg.h>
#include <cairo.h>

#include <cmath>
#include <cstdlib>
#include <memory>

#include "base/environment.h"
#include "base/error.h"
#include "base/files/output_file.h"
#include "base/pattern.h"
#include "tokenizer/text/unicode.h"

namespace fettle {
namespace {

constexpr double kScale = 2;

// Replaces the ids "surface1", "surface2", ... in the SVG text. cairo counts the surfaces of a process for these ids,
// so with them the same picture would give different files.
std::string without_surface_number(const std::string& svg) {
  static const Pattern kNumbered("\"surface[0-9]+\"");
  return kNumbered.replace_all(svg, "\"plot\"");
}

cairo_status_t append(void* closure, const unsigned char* data, unsigned int length) {
  static_cast<std::string*>(closure)->append(reinterpret_cast<const char*>(data), length);
  return CAIRO_STATUS_SUCCESS;
}

void check(cairo_status_t status) {
  internal_check(status == CAIRO_STATUS_SUCCESS, "cairo cannot draw the picture: {}", cairo_status_to_string(status));
}

// Draws on `surface`, passes it to `finish`, and destroys it.
void draw_on(cairo_surface_t* surface, double scale, const std::function<void(Canvas&)>& draw,
             const std::function<cairo_status_t(cairo_surface_t*)>& finish) {
  const std::unique_ptr<cairo_surface_t, void (*)(cairo_surface_t*)> owner(surface, cairo_surface_destroy);
  check(cairo_surface_status(surface));
  const std::unique_ptr<cairo_t, void (*)(cairo_t*)> cairo(cairo_create(surface), cairo_destroy);
  cairo_scale(cairo.get(), scale, scale);
  Canvas canvas(cairo.get());
  draw(canvas);
  check(cairo_status(cairo.get()));
  check(finish(surface));
}

}  // namespace

void use_own_fonts(const std::filesystem::path& program, const std::filesystem::path& root) {
  std::error_code none;
  const std::filesystem::path own = program.parent_path() / "fonts/fonts.conf";
  if (!std::filesystem::exists(root / "etc/fonts/fonts.conf", none) && std::filesystem::exists(own, none) &&
      environment("FONTCONFIG_FILE").empty())
    setenv("FONTCONFIG_FILE", own.c_str(), /*overwrite=*/1);
}

Canvas::Canvas(cairo_t* cairo) : cairo_(cairo) {
  cairo_set_line_join(cairo_, CAIRO_LINE_JOIN_ROUND);
  cairo_set_line_cap(cairo_, CAIRO_LINE_CAP_ROUND);
}

void Canvas::fill(Colour c) {
  set(c);
  cairo_paint(cairo_);
}

void Canvas::line(double x0, double y0, double x1, double y1, Colour c, double width) {
  cairo_move_to(cairo_, x0, y0);
  cairo_line_to(cairo_, x1, y1);
  stroke(c, width);
}

void Canvas::box(double x, double y, double width, double height, Colour c) {
  cairo_rectangle(cairo_, x, y, width, height);
  set(c);
  cairo_fill(cairo_);
}

void Canvas::dot(double x, double y, double radius, Colour c) {
  cairo_new_sub_path(cairo_);
  cairo_arc(cairo_, x, y, radius, 0, 2 * M_PI);
  set(c);
  cairo_fill(cairo_);
}

void Canvas::text(double x, double y, const std::string& text, double along, double size, Colour c, bool bold) {
  const std::string shown = replace_invalid_utf8(text);
  font(size, bold);
  set(c);
  cairo_move_to(cairo_, x - along * width_of(shown), y);
  cairo_show_text(cairo_, shown.c_str());
}

void Canvas::text_upwards(double x, double y, const std::string& text, double size, Colour c, double along) {
  cairo_save(cairo_);
  cairo_translate(cairo_, x, y);
  cairo_rotate(cairo_, -M_PI / 2);
  this->text(0, 0, text, along, size, c);
  cairo_restore(cairo_);
}

void Canvas::title(double x, double y, std::string title, double most) {
  font(17, true);
  title = replace_invalid_utf8(title);
  std::string shown = title;
  while (!title.empty() && width_of(shown) > most) {
    while ((title.back() & 0xc0) == 0x80) title.pop_back();  // removes a whole UTF-8 character
    title.pop_back();
    shown = title + "…";
  }
  text(x, y, shown, 0, 17, kInk, true);
}

double Canvas::width_of(const std::string& text) {
  cairo_text_extents_t extents;
  cairo_text_extents(cairo_, replace_invalid_utf8(text).c_str(), &extents);
  return extents.x_advance;
}

void Canvas::path(const std::vector<std::pair<double, double>>& at, Colour c, double width) {
  if (at.size() == 1) return dot(at[0].first, at[0].second, 4, c);
  cairo_new_path(cairo_);  // text drawing sets a current point; this removes it
  for (const auto& [x, y] : at) cairo_line_to(cairo_, x, y);
  stroke(c, width);
}

void Canvas::set(Colour c) {
  cairo_set_source_rgba(cairo_, c.red, c.green, c.blue, c.alpha);
}

void Canvas::font(double size, bool bold) {
  cairo_select_font_face(cairo_, "sans-serif", CAIRO_FONT_SLANT_NORMAL,
                         bold ? CAIRO_FONT_WEIGHT_BOLD : CAIRO_FONT_WEIGHT_NORMAL);
  cairo_set_font_size(cairo_, size);
}

void Canvas::stroke(Colour c, double width) {
  set(c);
  cairo_set_line_width(cairo_, width);
  cairo_stroke(cairo_);
}

void write_picture(const std::filesystem::path& stem, double width, double height,
                   const std::function<void(Canvas&)>& draw) {
  std::string png, svg;
  draw_on(cairo_image_surface_create(CAIRO_FORMAT_RGB24, static_cast<int>(width * kScale),
                                     static_cast<int>(height * kScale)),
          kScale, draw,
          [&](cairo_surface_t* surface) { return cairo_surface_write_to_png_stream(surface, append, &png); });
  draw_on(cairo_svg_surface_create_for_stream(append, &svg, width, height), 1, draw, [](cairo_surface_t* surface) {
    cairo_surface_finish(surface);
    return cairo_surface_status(surface);
  });
  write_file(stem.string() + ".png", png);
  write_file(stem.string() + ".svg", without_surface_number(svg));
}

}  // namespace fettle
