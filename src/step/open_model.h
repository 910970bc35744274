// Defines open_model: a model on its devices, ready to be measured or to answer.
#pragma once

#include "run/request.h"
#include "step/state/train_state.h"

namespace fettle {

struct OpenModel {
  Run run;
  TrainState state;  // weights without optimizer state
};

// Resolves the request for inference on these devices and loads its weights: the base and its adapters. Shows progress.
// Throws UserError as Request::resolve and load_state do.
OpenModel open_model(Devices& devices, const Request& request);

}  // namespace fettle
