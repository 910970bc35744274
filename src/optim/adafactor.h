// Defines Adafactor, as transformers.Adafactor. Source: Shazeer & Stern 2018.
#pragma once

#include "optim/optimizer.h"

namespace fettle {

// State of a matrix: "row" and "column", the means of squared gradients over each. State of a vector: "v". With beta1
// above 0, also "m". Defaults are those of Hugging Face's Trainer, where the schedule sets the rate.
// optim_args: scale_parameter multiplies the rate by the weight's own size. relative_step derives the rate from the
// step alone; with warmup_init it rises from 1e-6. Others: clip_threshold, decay_rate, beta1, eps1, eps2.
UpdateRule adafactor_rule();

}  // namespace fettle
