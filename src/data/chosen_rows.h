// Defines chosen_rows, which decides which rows of a data set are used.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/data_spec.h"
#include "data/read/dataset_info.h"

namespace fettle {

struct ChosenRows {
  std::vector<int64_t> rows;    // numbers of rows, counted from 0; a number may occur several times
  std::vector<std::string> by;  // what chose the rows, in words for reports
};

// Chooses among the first `count` rows of the set, as its slice of a split (such as [:10%]), its num_samples and
// max_samples say. A slice takes the first rows. num_samples takes the whole set as many times as it fits, then rows
// that the seed chooses; both parts are in the order of the set. `count` is the number of all rows of the set, or
// spec.most_rows(source) if the set has more.
ChosenRows chosen_rows(int64_t count, const DataSource& source, const DataSpec& spec);

// Returns the chosen ones of `items`, which has one item for each row.
template <typename Item>
std::vector<Item> chosen_items(const std::vector<Item>& items, const DataSource& source, const DataSpec& spec) {
  std::vector<Item> out;
  for (const int64_t row : chosen_rows(static_cast<int64_t>(items.size()), source, spec).rows)
    out.push_back(items[static_cast<size_t>(row)]);
  return out;
}

}  // namespace fettle
