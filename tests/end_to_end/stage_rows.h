// Defines stage_rows, which returns rows that a stage can train on.
#pragma once

#include <string>

#include "example_rows.h"
#include "stages/stages.h"

namespace fettle {

// Returns `count` JSON lines of different lengths.
inline std::string stage_rows(const Stage& stage, int count) {
  std::string lines;
  for (int i = 0; i < count; ++i) lines += example_row(stage.rows, i).dump() + "\n";
  return lines;
}

}  // namespace fettle
