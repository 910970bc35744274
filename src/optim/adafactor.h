// Defines Adafactor, as transformers.Adafactor. Source: Shazeer & Stern 2018.
#pragma once

#include "optim/optimizer.h"

namespace fettle {

// State of a matrix: "row" and "column", the means of squared gradients over each, and nothing of its size; of a
// vector: "v". With beta1 above 0 also "m". Defaults are those of Hugging Face's Trainer: the rate is the schedule's.
// optim_args: scale_parameter multiplies the rate by the weight's own size; relative_step takes the rate from the step
// alone, with warmup_init rising from 1e-6; clip_threshold, decay_rate, beta1, eps1, eps2.
UpdateRule adafactor_rule();

}  // namespace fettle
