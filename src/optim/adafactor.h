// Defines Adafactor, like transformers.Adafactor. Source: Shazeer & Stern 2018.
#pragma once

#include "optim/optimizer.h"

namespace fettle {

// State of a matrix: "row" and "column", running averages of the mean squared gradient of each row and of each column.
// State of a vector: "v". With beta1 above 0, both also have "m". The defaults are those of Hugging Face's Trainer, in
// which the schedule sets the learning rate. optim_args: scale_parameter multiplies the rate by the root mean square of
// the weight (at least eps2). relative_step computes the rate from the number of the step alone; with warmup_init, this
// rate starts at 1e-6. The other arguments are clip_threshold, decay_rate, beta1, eps1 and eps2.
UpdateRule adafactor_rule();

}  // namespace fettle
