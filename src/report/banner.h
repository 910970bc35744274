// Defines the texts before and after a run, which are those of Hugging Face's Trainer.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "data/batches/batches.h"
#include "data/dataset.h"
#include "run/run.h"
#include "run/run_length.h"

namespace fettle {

// The numbers in the start banner, which has the text of Hugging Face's Trainer.
struct RunFigures {
  int64_t examples = 0;
  double epochs = 0;
  int64_t batch_per_device = 0, total_batch = 0, accumulation = 1;
  int64_t total_steps = 0;
  int64_t trainable_parameters = 0, all_parameters = 0;
  int64_t resumed_step = 0;  // 0: a new run
  std::string devices;       // Devices::title()
};

// Formats "***** Running training *****" and one line for each number, without a newline at the end.
std::string format_banner(const RunFigures& figures);

// Prints the notes of the data report and the start banner.
void announce(const Run& run, const RunLength& length, const Batches& batches, const DataReport& data,
              int64_t resumed_step, const std::string& devices);

// Formats "***** train metrics *****" and one line for each metric, without a newline at the end. As in
// Trainer.log_metrics, the metrics are sorted by name, *_runtime is a duration and *_flos is in GF.
std::string format_metrics(const std::string& split, const std::map<std::string, double>& metrics);

}  // namespace fettle
