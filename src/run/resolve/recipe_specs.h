// Defines the functions that collect a recipe's keys into the parts of a Run. They only read the recipe.
#pragma once

#include "optim/optimizer.h"
#include "run/run.h"
#include "run/run_length.h"

namespace fettle {

struct Recipe;

LengthSpec length_spec(const Recipe& recipe);
OptimSpec optim_spec(const Recipe& recipe);
UpdateSpec update_spec(const Recipe& recipe);
BestSpec best_spec(const Recipe& recipe);
OutputSpec output_spec(const Recipe& recipe);

}  // namespace fettle
