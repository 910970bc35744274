// Defines load_joined, which loads several adapters that are applied side by side.
#pragma once

#include "checkpoint/peft/adapter_options.h"
#include "step/state/train_state.h"

namespace fettle {

// Loads a LoRA weight of the joined adapter (adapters/side_by_side.h). `folders` are those of run.adapter.side_by_side,
// in the same order. An adapter without this weight has zeros in its place. Throws UserError when a value of an adapter
// is not finite, or when a tensor has another shape than the model needs.
DeviceBuffer load_joined(const Devices& devices, const Run& run, const Param& param,
                         const std::vector<AdapterFolder>& folders);

}  // namespace fettle
