// Defines write_confusion_plot, which draws the confusion matrix of a classifier (confusion.png and .svg).
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

// Writes STEM.png and STEM.svg. Each row of cells is a true label, each column a predicted label. A darker cell has a
// larger share of its row. Correct cells are blue, wrong cells are orange. A cell shows its count if the cell is
// large enough. The same counts always give the same bytes. Throws UserError when a file is not writable.
void write_confusion_plot(const std::filesystem::path& stem, const Confusion& confusion);

}  // namespace fettle
