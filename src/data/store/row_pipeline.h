// Defines for_each_row: reads files, works on their rows on all cores, and passes on the results in the order of the
// rows.
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

// Calls `work` with each of the first `most` rows of `files`, on all cores. Calls `take` with the outcomes, in the
// order of the rows, on the calling thread. One thread reads ahead by about 64 MiB of text, or about 4000 Parquet or
// Arrow rows, so memory does not grow with the files. Errors come from reading, from `work` (Outcome::failure) or
// from `take`; throws the first error in the order of the rows.
void for_each_row(const std::vector<std::filesystem::path>& files, int64_t most, const RowWork& work,
                  const TakeOutcome& take, TextRows texts = TextRows::kLine);

}  // namespace fettle
