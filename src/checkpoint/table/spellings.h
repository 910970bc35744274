// Defines spellings: the names that checkpoints use for one tensor.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fettle {

// Returns `name`, and the other names under which checkpoints may have this tensor. For example, a checkpoint of only a
// base model leaves out the first part of the name ("encoder.layer..." for "bert.encoder.layer..."). Older checkpoints
// call the weight and bias of a LayerNorm `gamma` and `beta`, and write "language_model.model." for
// "model.language_model.".
std::vector<std::string> spellings(std::string_view name);

}  // namespace fettle
