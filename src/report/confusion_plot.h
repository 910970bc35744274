// Draws which labels were taken for which (confusion.png and .svg).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace fettle {

struct Confusion {
  std::string title;
  std::vector<std::string> names;  // of the labels
  std::vector<int64_t> counts;     // [true label, said label], row-major
};

// Writes STEM.png and STEM.svg: a line for each true label, a column for each said one. A cell is the darker the larger
// its share of the line is, blue where it is right and orange where it is wrong, with its count where there is room.
// Same counts, same bytes. Throws UserError when a file is not writable.
void write_confusion_plot(const std::filesystem::path& stem, const Confusion& confusion);

}  // namespace fettle
