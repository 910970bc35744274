// Defines hub_settings, fetch_models and fetch_recipe: the models of a recipe that are names on a hub become folders.
#pragma once

#include <ostream>
#include <string>

#include "checkpoint/repository.h"
#include "hub/settings.h"

namespace fettle {

struct Recipe;

// The environment's settings, changed by use_modelscope, hub_token and cache_dir.
HubSettings hub_settings(const Recipe& recipe);

// Replaces model_name_or_path, adapter_name_or_path and ref_model by folders in the hub's cache where they are no files
// or folders here and could be names on a hub, and fetches what is missing. `weights` tells whether the command reads
// weights; without them adapters are fetched all the same, for they are small. Throws UserError as Snapshot.
void fetch_models(Recipe& recipe, ModelRepository::Weights weights);

// Fetches the models and the rows that the recipe names, for machines without a network. Writes their places to `out`.
void fetch_recipe(const Recipe& recipe, std::ostream& out);

// Returns the folder that `name` means, fetching a model's tokenizer and config if it is on a hub. For commands that
// read no recipe.
std::string local_tokenizer(const std::string& name);

}  // namespace fettle
