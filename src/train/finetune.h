// Defines fine-tuning, the main run: from a Hugging Face checkpoint and a file of rows to a trained adapter or model.
#pragma once

#include <functional>

#include "run/request.h"

namespace fettle {

// Runs the recipe to its end. `open`: reads the recipe and fetches what it names; it is called after the processes of
// the run have met, so none waits long for another's download, and all end together when it throws. Returns 0, or 128 +
// signal when a signal interrupted the run and a checkpoint was saved.
int finetune(const std::function<Request()>& open);

}  // namespace fettle
