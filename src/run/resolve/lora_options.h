// Defines lora_options, which collects the recipe's keys about LoRA.
#pragma once

#include <string>
#include <vector>

#include "adapters/lora.h"

namespace fettle {

struct Recipe;
struct Remarks;

// Returns the recipe's options for a new adapter. If `adapter` names the folder of an adapter that is trained further
// or applied, returns that adapter's own options, with the recipe's lora_dropout if the recipe sets it, and adds a
// warning to `remarks` for each key that asks for others. `added_targets` are modules that a new adapter trains in
// addition to additional_target. LoraOptions::saved includes a classifier's head, because the head is trained and saved
// in full. Throws UserError when keys contradict each other, and when a key names modules or layers that the model does
// not have.
LoraOptions lora_options(const Recipe& recipe, const Model& model, const std::string& adapter,
                         const std::vector<std::string>& added_targets, Remarks& remarks);

}  // namespace fettle
