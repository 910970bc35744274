// Defines read_granite_experts for the Granite families with experts.
#pragma once

#include "models/decoder.h"

namespace fettle {

// Sets the names of the experts' tensors and modules, and reads how many experts there are.
// Source: transformers/models/granitemoe.
void read_granite_experts(const ConfigReader& r, ModelConfig& c);

}  // namespace fettle
