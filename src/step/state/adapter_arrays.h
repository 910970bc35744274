// Defines how an adapter gets onto the devices: read from a PEFT folder or started afresh.
#pragma once

#include "checkpoint/peft/adapter_options.h"
#include "step/state/train_state.h"

namespace fettle {

// A trained parameter from the folder whose options run.lora has: of a LoRA pair, or of a module saved whole. A layer
// without a pair gets another's, which is never looked at.
DeviceBuffer load_trained(const Devices& devices, const Run& run, const Param& param, const AdapterFolder& adapter);

// What a new adapter takes from its base weights: DoRA's magnitudes, PiSSA's pairs (kept as start_array too, and
// subtracted).
void start_adapter(Devices& devices, const Run& run, TrainState& state);
// Takes PiSSA's start_array pairs off the frozen weights.
void subtract_start(Devices& devices, const Run& run, TrainState& state);

}  // namespace fettle
