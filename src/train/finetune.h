// Defines fine-tuning, the main run: from a Hugging Face checkpoint and a file of rows to a trained adapter or model.
#pragma once

#include "run/request.h"

namespace fettle {

// Runs the recipe to its end. Returns 0, or 128 + signal when a signal interrupted it and a checkpoint was saved.
int finetune(const Request& request);

}  // namespace fettle
