// Defines check_step, which runs a training step on the devices and compares it with the CPU plugin's result.
#pragma once

#include "doctor/finding.h"
#include "programs/devices.h"

namespace fettle {

// Runs one step of a tiny model (run/small_model.h) in f32. The optimizer is plain gradient descent with learning rate
// 1, so that the change of a weight is its gradient. Compares the loss and the gradients with those of the CPU plugin.
// The finding is bad if the loss differs by more than 1e-3 of the loss, or the gradients differ by more than 1e-3 of
// their norm. Figures: loss_difference, gradient_difference, both relative.
Finding check_step(Devices& devices);

}  // namespace fettle
