// Defines prepare, which settles everything about a run that needs no compiled step and no weights: the run that the
// recipe asks for, its folder, its rows, its length, and the checkpoint from which it continues.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "base/seconds_since.h"
#include "data/batches/batches.h"
#include "data/dataset.h"
#include "plan/remat_choice.h"
#include "programs/devices.h"
#include "report/run_record.h"
#include "run/request.h"
#include "run/run.h"
#include "run/run_length.h"
#include "run/variant.h"
#include "tokenizer/tokenizer.h"
#include "train/checkpoints/resume.h"
#include "train/output_folder.h"
#include "train/processes.h"

namespace fettle {

// The batches of the same rows for several batch specifications, because settle_step tries several numbers of
// micro-batches.
class BatchChoices {
 public:
  BatchChoices(Examples rows, int32_t pad_id) : rows_(std::move(rows)), pad_id_(pad_id) {}

  // Returns the batches with this specification. All specifications must give the same steps: they may differ only in
  // how a step is divided into micro-batches. Makes the batches at the first call, and throws like the constructor of
  // Batches. The result stays valid until keep_only() or the destructor frees it.
  const Batches& of(const BatchSpec& spec);
  // Returns the same as of(), and frees all other batches.
  const Batches& keep_only(const BatchSpec& spec);

 private:
  Examples rows_;
  int32_t pad_id_;
  std::map<int64_t, Batches> by_count_;  // by the number of micro-batches of a step
};

struct Prepared {
  Variant variant;                    // what `mesh: auto` chose
  Run asked;                          // the run before settle_step()
  OutputFolder output;                // keeps other runs out of output_dir
  std::optional<ResumePoint> resume;  // none: a new run. prepare() has moved its `record` into the member `record`
  RunRecord record;                   // the record so far; for a new run, only the time at which it started
  Tokenizer tokenizer;
  Datasets data;
  BatchChoices batches;  // of data.train
  RunLength length;

  // Returns the step from which the run continues; 0 for a new run.
  int64_t resumed_step() const { return resume ? resume->step : 0; }
  // Returns what the checkpoint says about its step; nothing is known for a new run.
  WrittenStep written() const;
  // If the run has ended and output_dir has the result that the recipe asks for, returns a message that says how to
  // train further. Otherwise returns nullopt.
  std::optional<std::string> nothing_to_do() const;
};

// Checks the recipe against the model, the devices and the output folder, and reads the rows. Reads no weights except
// samples of them, and prints the banner of the run at the end. All processes of the run must call prepare. Throws
// UserError and DoesNotFit when the run cannot work.
Prepared prepare(const Request& request, Devices& devices, const Processes& processes, Phases& phases);

}  // namespace fettle
