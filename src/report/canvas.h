// Defines Canvas and write_picture, which draw the pictures of a run.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

typedef struct _cairo cairo_t;

namespace fettle {

struct Colour {
  double red, green, blue, alpha = 1;
};
constexpr Colour kInk{0.13, 0.15, 0.19}, kFaint{0.42, 0.45, 0.5}, kGrid{0.9, 0.91, 0.93};

// Draws on a picture. Lengths are in points; the origin is the top left corner. Bytes of a text that are not UTF-8 are
// drawn as U+FFFD, because a title may be the name of a folder.
class Canvas {
 public:
  explicit Canvas(cairo_t* cairo);

  void fill(Colour c);
  void line(double x0, double y0, double x1, double y1, Colour c, double width);
  void box(double x, double y, double width, double height, Colour c);
  void dot(double x, double y, double radius, Colour c);
  // `along` aligns the text: with 0 it begins at x, with 0.5 it is centred on x, with 1 it ends at x.
  void text(double x, double y, const std::string& text, double along, double size, Colour c, bool bold = false);
  void text_upwards(double x, double y, const std::string& text, double size, Colour c, double along = 0.5);
  // Draws the title. A title wider than `most` points is shortened and ends with an ellipsis.
  void title(double x, double y, std::string title, double most);
  double width_of(const std::string& text);
  void path(const std::vector<std::pair<double, double>>& at, Colour c, double width);

 private:
  void set(Colour c);
  void font(double size, bool bold);
  void stroke(Colour c, double width);
  cairo_t* cairo_;
};

// If the system has no fonts, lets pictures take the fonts of the wheel, which lie in the folder fonts beside the
// program. A value of FONTCONFIG_FILE stays. Changes the environment, so call this before other threads start. `root`
// is the folder with this machine's folder etc; only tests give another one.
void use_own_fonts(const std::filesystem::path& program, const std::filesystem::path& root = "/");

// Writes STEM.png (two pixels per point) and STEM.svg. Throws UserError when a file is not writable.
void write_picture(const std::filesystem::path& stem, double width, double height,
                   const std::function<void(Canvas&)>& draw);

}  // namespace fettle
