// Defines RunFile, which writes fettle_run.json: a description of a run for people and for the board. At the end of the
// run, RunFile also writes report.html.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>

#include "base/local_time.h"
#include "checkpoint/saved/presence.h"
#include "data/batches/batches.h"
#include "data/dataset.h"
#include "programs/devices.h"
#include "run/run.h"
#include "run/run_length.h"
#include "step/memory/memory_table.h"
#include "tokenizer/tokenizer.h"

namespace fettle {

// What is known of a run before its first step.
struct RunFacts {
  const Run& run;
  const RunLength& length;
  const Batches& batches;
  const Datasets& data;
  const MemoryTable& memory;
  const Tokenizer& tokenizer;
  const Devices& devices;
  LocalTime started;  // the run's first start; for a resumed run, this was in an earlier process
  int64_t resumed_step = 0;
};

// Returns the content of fettle_run.json: the run's state, the recipe, the folder to which the recipe's paths
// are relative, the memory plan, the statistics of the data, a few rows (as pieces of text, each marked as trained or
// not trained), and the machine.
nlohmann::ordered_json run_facts_json(const RunFacts& facts);

// Returns whether the run that was last in `folder` finished. True if fettle_run.json is missing or damaged, because it
// only describes a run.
bool last_run_finished(const std::filesystem::path& folder);

// A problem with these files only causes a warning; the run continues. Several threads may call the functions.
class RunFile {
 public:
  // Writes fettle_run.json into the run's folder. Without this call, end() does nothing. `report` says whether end()
  // writes report.html.
  void begin(const RunFacts& facts, bool report);
  // `state` is finished, stopped (by a signal) or failed; `message` says why the run failed. Only the first call
  // counts.
  void end(const std::string& state, const std::string& message = "");

 private:
  std::mutex mutex_;
  std::filesystem::path folder_;
  // Shows other processes that this process uses the folder. If this process is killed, the next run can tell that an
  // unfinished file in the folder is a leftover.
  std::shared_ptr<Presence> presence_;
  nlohmann::ordered_json json_;
  bool report_ = false;
};

}  // namespace fettle
