// Defines set_dtypes and set_float8, which choose the dtypes in which a run stores its weights and computes.
#pragma once

#include "run/run.h"
#include "run/variant.h"

namespace fettle {

struct Recipe;

// Sets the dtypes of activations, frozen and trained weights. Reads which weights are quantised.
void set_dtypes(Run& run, const Recipe& recipe, Purpose purpose, const Variant& variant);

// For runs that train. Sets the 8-bit floats of the layers' matmuls if the recipe has fp8. Reads the result of
// set_dtypes. Throws UserError if the run does not compute in bfloat16, if weights are quantised, or if the devices do
// not multiply 8-bit floats.
void set_float8(Run& run, const Recipe& recipe);

}  // namespace fettle
