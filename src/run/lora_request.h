// Defines lora_options, which collects what a recipe says about LoRA.
#pragma once

#include <string>

#include "adapters/lora.h"

namespace fettle {

struct Recipe;

// Returns the options of the adapter in the folder `adapter`, which is trained further or applied; when `adapter` is
// empty, the recipe's options. A classifier's head is among the modules that are trained and saved in full. Throws
// UserError for keys that contradict each other, or that name modules or layers that the model does not have.
LoraOptions lora_options(const Recipe& recipe, const Model& model, const std::string& adapter);

}  // namespace fettle
