// Defines check_step: a training step on the devices, compared with the CPU plugin's.
#pragma once

#include "doctor/finding.h"
#include "programs/devices.h"

namespace fettle {

// Runs one step of a tiny model (run/small_model.h) in f32 with plain gradient descent, so that the change of a weight
// shows its gradient. Loss and gradients must agree within 1e-3 of their norm. Figures: loss_difference,
// gradient_difference, both relative.
Finding check_step(Devices& devices);

}  // namespace fettle
