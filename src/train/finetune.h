// Defines finetune, which makes a trained adapter or model from a Hugging Face checkpoint and rows of data.
#pragma once

#include <functional>

#include "run/request.h"

namespace fettle {

// Trains as the recipe says. `open` reads the recipe and downloads the models that it names. finetune calls `open`
// after the processes of the run have found each other. So a long download does not count against the time limit for
// finding each other, and all processes end together when `open` throws. Returns 0, or 128 + signal when a signal
// interrupted the run and a checkpoint was saved. In a run of several processes, prints an error, ends all processes
// through the launcher (Fate::end_job) and returns the error's exit code. A single process throws its errors.
int finetune(const std::function<Request()>& open);

}  // namespace fettle
