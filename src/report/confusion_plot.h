// Draws the confusion matrix of a classifier (confusion.png and .svg).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace fettle {

struct Confusion {
  std::string title;
  std::vector<std::string> names;  // the labels
  std::vector<int64_t> counts;     // [true label, predicted label], row-major
};

// Writes STEM.png and STEM.svg: one line per true label, one column per predicted label. The darker a cell, the larger
// its share of the line. Correct cells are blue, wrong ones orange. A cell shows its count if the cell is large enough.
// Equal counts give equal bytes. Throws UserError when a file is not writable.
void write_confusion_plot(const std::filesystem::path& stem, const Confusion& confusion);

}  // namespace fettle
