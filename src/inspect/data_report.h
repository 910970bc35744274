// Defines the report of `fettle data`: counts, lengths, and the batches that training and evaluation would make.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "data/batches/batches.h"
#include "data/dataset.h"
#include "graph/tensor.h"
#include "run/assumed_devices.h"
#include "stages/stage.h"

namespace fettle {

// The devices for which the batches are counted.
struct AssumedTarget {
  AssumedDevices devices;
  MeshAxes mesh;
  bool mesh_is_auto = false;  // true: `mesh` has all devices on fsdp; every mesh gives a step the same number of rows
};

// The data that was read, and the batches that it gives. Stores only references.
struct DataReading {
  const Stage& stage;
  const DataSpec& spec;
  const Datasets& data;
  const BatchSpec& batches;       // the batches of the training rows
  const BatchSpec& eval_batches;  // the batches of the evaluation rows during `train`
  const BatchSpec& eval_command;  // the batches of `eval`; they differ from eval_batches if the mesh has pp
  AssumedTarget target;
};

// Formats counts, a histogram of lengths, the rows that were left out and why, the steps per epoch, and the share of
// padding.
std::string format_data_report(const DataReading& reading);
nlohmann::ordered_json data_report_json(const DataReading& reading);

// Parts of the report: the counts of the rows that were read, and the lengths of examples (null when there are none).
nlohmann::ordered_json counts_json(const DataReport& report);
nlohmann::ordered_json lengths_json(const Examples& examples);

}  // namespace fettle
