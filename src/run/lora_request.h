// Defines lora_options: the LoRA pairs that a recipe asks for.
#pragma once

#include <string>

#include "adapters/lora.h"

namespace fettle {

struct Recipe;

// The options of the folder `adapter`, which is trained further or applied; when it is empty, those of the recipe. A
// classifier's head is among the modules saved whole. Throws UserError for keys that contradict each other, or that
// name what the model does not have.
LoraOptions lora_options(const Recipe& recipe, const Model& model, const std::string& adapter);

}  // namespace fettle
