// Defines how an adapter's weights are loaded onto the devices from a PEFT folder, or initialised.
#pragma once

#include "checkpoint/peft/adapter_options.h"
#include "step/state/train_state.h"

namespace fettle {

// Loads a parameter from the adapter: LoRA weights, or a module of LoraOptions::saved. run.adapter.lora has the
// adapter's options. The array has a slice for every layer. A layer without LoRA weights gets a copy of another layer's
// weights, but the forward pass ignores this copy.
DeviceBuffer load_from_adapter(const Devices& devices, const Run& run, const Param& param, DType dtype,
                               const AdapterFolder& adapter);

// Initialises the parts of a new adapter that depend on the base weights: DoRA's magnitudes and PiSSA's A and B.
// PiSSA's initial A and B are also stored under the names that start_array() (run/run.h) returns, so that
// subtract_start() can subtract their product from the base.
void start_adapter(Devices& devices, const Run& run, TrainState& state);
// Subtracts scale * B * A from the frozen weights, where A and B are PiSSA's initial A and B (start_array()).
void subtract_start(Devices& devices, const Run& run, TrainState& state);

// Returns whether switch_off_adapter() makes the model its base: the adapter has only A and B of LoRA, and no other
// adapter was merged into the base.
bool can_switch_off_adapter(const Run& run);
// Replaces the adapter's weights by zeros, so that the model computes what its base computes.
void switch_off_adapter(const Devices& devices, const Run& run, TrainState& state);

}  // namespace fettle
