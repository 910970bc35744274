// Defines fine-tuning, the main run: an HF checkpoint and a file of rows in, a trained adapter or model out.
#pragma once

#include "run/request.h"

namespace fettle {

// Runs the recipe to its end. Returns 0, or 128 + signal when interrupted after saving a checkpoint.
int finetune(const Request& request);

}  // namespace fettle
