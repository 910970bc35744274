// Defines TrainState: the arrays of a run on its devices.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/repository.h"
#include "checkpoint/saved/state.h"
#include "programs/devices.h"
#include "run/run.h"
#include "step/disk/disk_state.h"

namespace fettle {

struct TrainState {
  std::map<std::string, DeviceBuffer> buffers;  // frozen/*, reference/*, trained/*; in training also optimizer state
  // With offload_dir: the optimizer state, and the f32 values of the weights for which Run::on_disk is true. `buffers`
  // has 16-bit copies of these weights. Null without offload_dir.
  std::unique_ptr<DiskState> disk = {};
  int64_t step = 0;  // number of optimizer steps done

  Bindings bindings();
};

// Returns the arrays that a checkpoint stores: trained weights, optimizer state, frozen weights that the base does not
// have (Run::keeps), the loss scale of float16, and PiSSA's initial A and B. The arrays with `on_disk` are in
// TrainState::disk.
std::vector<StateArray> trained_arrays(const Run& run);

// Loads the weights onto their devices: base weights from the repository (random ones for train_from_scratch), the
// adapter from adapter_name_or_path or a new one. With `optimizer`, adds the initial optimizer state. Shows progress.
// Throws UserError when a tensor is missing or does not fit the model.
TrainState load_state(Devices& devices, const Run& run, const ModelRepository& repository, bool optimizer);
// Loads the weights onto their devices, and the optimizer state if `arrays` has it. Reads `arrays` from a checkpoint,
// bit for bit, and the other weights from the repository. `arrays` are those of trained_arrays(), or at least those of
// the weights. The checkpoint may come from another mesh. Throws DamagedState.
TrainState load_state(Devices& devices, const Run& run, const ModelRepository& repository, StateReader& checkpoint,
                      const std::vector<StateArray>& arrays);

}  // namespace fettle
