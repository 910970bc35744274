// Defines open_model, which loads a model onto its devices, ready for evaluation or generation.
#pragma once

#include "run/request.h"
#include "step/state/train_state.h"

namespace fettle {

struct OpenModel {
  Run run;
  TrainState state;  // weights without optimizer state
};

// Resolves the request on these devices and loads the weights: the base with its adapters, and for kEvaluation also the
// reference model. Shows progress. Throws UserError like Request::resolve and load_state.
OpenModel open_model(Devices& devices, const Request& request, Purpose purpose = Purpose::kInference,
                     const Variant& variant = {});

}  // namespace fettle
