// Defines how adapters get onto the devices: read from PEFT folders, started afresh, or merged into the frozen weights.
#pragma once

#include "checkpoint/adapter_files.h"
#include "step/state/train_state.h"

namespace fettle {

// Reads the folder, what Fettle applies: DoRA and modules_to_save are fine.
AdapterFolder open_adapter(const std::filesystem::path& folder);
// What the folder's config and tensors say. Every module that has pairs must have them on the same layers. Throws
// UserError when ranks or alphas differ by module, or when a tensor belongs to no linear layer of the model.
LoraOptions adapter_options(const AdapterFolder& adapter, const Model& model);

// A trained row from the folder whose options job.lora has: of a pair, or of a module saved whole.
DeviceBuffer load_trained(const Devices& devices, const Job& job, const WeightRow& row, const AdapterFolder& adapter);

// Merges the adapter into the frozen weights of `state`, a module at a time. Its modules_to_save are not looked at.
void merge_adapter(Devices& devices, const Job& job, const AdapterFolder& adapter, TrainState& state);

// What a new adapter takes from its base weights: DoRA's magnitudes, PiSSA's pairs (kept as start_array too, and
// subtracted).
void start_adapter(Devices& devices, const Job& job, TrainState& state);
// Takes PiSSA's start_array pairs off the frozen weights.
void subtract_start(Devices& devices, const Job& job, TrainState& state);

}  // namespace fettle
