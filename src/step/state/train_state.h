// Defines TrainState: what a run holds on its devices, and the step that changes it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "checkpoint/repository.h"
#include "checkpoint/saved/state.h"
#include "data/batches/batches.h"
#include "programs/devices.h"
#include "run/run.h"

namespace fettle {

struct TrainState {
  std::map<std::string, DeviceBuffer> buffers;  // frozen/*, reference/*, trained/*, and when training the optimizer's
  int64_t step = 0;                             // optimizer steps done

  Bindings bindings();
};

// The arrays that training changes: weights and the optimizer's. They are what a checkpoint holds.
std::vector<StateArray> trained_arrays(const Run& run);

// Weights on their devices: base weights from the repository (random ones when recipe.train_from_scratch), the adapter
// from adapter_name_or_path or fresh. With `optimizer`, its state as it starts. Shows progress.
TrainState load_state(Devices& devices, const Run& run, const ModelRepository& repository, bool optimizer);
// The same, but all that training changes comes from a checkpoint, bit for bit, whatever mesh wrote it. Throws
// DamagedState.
TrainState load_state(Devices& devices, const Run& run, const ModelRepository& repository, StateReader& checkpoint);

// The batch as device arrays by program input name: [A, B, T] as they are, or [B, T] when `flat`.
std::map<std::string, DeviceBuffer> upload_batch(const Devices& devices, const Run& run, const Batch& batch, bool flat);

struct StepOutcome {
  double loss = 0;
  double grad_norm = 0;
  double loss_scale = 0;                  // float16: of the next step
  std::map<std::string, double> metrics;  // of preferences: rewards/chosen, ... (preference.h)
  bool overflowed = false;  // float16 gradients: only the loss scale was changed, and the step is to be run again
  bool finite() const;
};

// Runs one optimizer step in place; state.step grows by one when the outcome is finite.
StepOutcome run_step(const Devices& devices, const Run& run, const Executable& step, TrainState& state,
                     const Batch& batch, double learning_rate);

}  // namespace fettle
