// Defines how an adapter gets onto the devices: read from a PEFT folder or started afresh.
#pragma once

#include "checkpoint/adapter_files.h"
#include "step/state/train_state.h"

namespace fettle {

// Reads the folder, what Fettle applies: DoRA and modules_to_save are fine.
AdapterFolder open_adapter(const std::filesystem::path& folder);
// What the folder's config and tensors say. Every module that has pairs must have them on the same layers. Throws
// UserError when ranks or alphas differ by module, or when a tensor belongs to no linear layer of the model.
LoraOptions adapter_options(const AdapterFolder& adapter, const Model& model);

// A parameter from a folder that has these options. A layer without a pair gets another's, which is never looked at.
DeviceBuffer load_adapter_param(const Devices& devices, const Job& job, const Param& param, DType dtype,
                                const AdapterFolder& adapter, const LoraOptions& options,
                                const std::string& memory_kind = "");
// A trained parameter from the folder whose options job.lora has: of a pair, or of a module saved whole.
DeviceBuffer load_trained(const Devices& devices, const Job& job, const Param& param, const AdapterFolder& adapter);

// What a new adapter takes from its base weights: DoRA's magnitudes, PiSSA's pairs (kept as start_array too, and
// subtracted).
void start_adapter(Devices& devices, const Job& job, TrainState& state);
// Takes PiSSA's start_array pairs off the frozen weights.
void subtract_start(Devices& devices, const Job& job, TrainState& state);

}  // namespace fettle
