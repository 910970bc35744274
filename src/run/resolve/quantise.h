// Defines quantise_frozen, which decides in how many bits a run stores its frozen linear layers.
#pragma once

#include <optional>
#include <string>

#include "run/run.h"

namespace fettle {

struct Recipe;

// Returns the format in which the checkpoint is stored, else the format that the recipe asks for (quantization_bit),
// else nullopt. Also returns nullopt for a checkpoint that stores integers in groups (GPTQ, AWQ, packed);
// split_stored_stacks and quantise_frozen handle these. Throws UserError when the checkpoint and the recipe differ in
// the number of bits. `file` names the checkpoint in messages.
std::optional<Quantisation> quantisation_of(const Recipe& recipe, const ModelConfig& config, const std::string& file);

// A checkpoint may store a weight as integers (GPTQ, AWQ, packed) or 8-bit floats in some layers, but not in others.
// Replaces such a weight's parameter in run.model by two parameters: one for the layers stored as integers or 8-bit
// floats, and one for the other layers. Notes this in run.remarks. With layers_to_transform, offload_param or LoRA on
// experts, adds a warning instead: all layers of the weight take 16 bits on the device. Does nothing if the run keeps
// no weight in the checkpoint's format. `file` is the config.json, for messages.
void split_stored_stacks(Run& run, const Recipe& recipe, Purpose purpose, const std::string& file);

// Prepares the frozen weights that are quantised on the device. In run.frozen, replaces each of them by its parts (such
// as codes and scales), and adds the weight to run.quantised. Three groups of weights are quantised: linear weights, if
// quantisation_of returns a format; experts that stay in MXFP4; and weights that the checkpoint stores as integers in
// groups or as 8-bit floats. Throws UserError like quantisation_of, and when quantised weights would have to be trained
// or changed. `file` is the config.json, for messages.
void quantise_frozen(Run& run, const Recipe& recipe, Purpose purpose, const std::string& file);

}  // namespace fettle
