// Defines quantise_frozen, which decides in how many bits a run stores its frozen linear layers.
#pragma once

#include <optional>
#include <string>

#include "run/run.h"

namespace fettle {

struct Recipe;

// Returns the checkpoint's format, else the one that the recipe asks for (quantization_bit), else nothing. Throws
// UserError when they ask for different bits.
std::optional<Quantisation> quantisation_of(const Recipe& recipe, const ModelConfig& config, const std::string& file);

// If there is a quantised format, replaces the linear weights of run.frozen by the parts of their quantised form, and
// lists them in run.quantised. Throws UserError when the formats differ, or when weights that are stored as codes would
// have to be trained or changed. `file` is the config.json, for messages.
void quantise_frozen(Run& run, const Recipe& recipe, const std::string& file);

}  // namespace fettle
