// Defines run_data: the command `fettle data`.
#pragma once

#include <cstdint>
#include <ostream>

#include "run/request.h"

namespace fettle {

struct DataOptions {
  bool json = false;    // one JSON object instead of text
  bool colour = false;  // trained spans in colour; else between ⟦ and ⟧
  int64_t rows = 3;     // rows to show
};

// Reads the data as `train` does and writes the report to `out`. Needs no device: the batches are counted for the
// devices that assumed_devices() returns. Returns the exit code.
int run_data(const Request& request, const DataOptions& options, std::ostream& out);

}  // namespace fettle
