// Defines for_each_row: files are read, their rows worked on by all cores, and the results taken in the rows' order.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "data/tokenise.h"

namespace fettle {

using RowWork = std::function<Outcome(Row& row, const std::string& where)>;  // called by many threads at once
using TakeOutcome = std::function<void(uint32_t file, int64_t line, Outcome& outcome)>;

// Gives the first `most` rows of `files` (in their order) to `work`, and what that makes of them to `take`, on the
// calling thread. One thread reads ahead, by 64 MiB of text or some thousand rows of columns, so memory does not grow
// with the files. What reading, an outcome's failure or `take` throws ends it: the first in the rows' order.
void for_each_row(const std::vector<std::filesystem::path>& files, int64_t most, const RowWork& work,
                  const TakeOutcome& take);

}  // namespace fettle
