// Defines hub_settings, fetch_models and fetch_recipe, which replace a recipe's names on a hub by folders of the cache.
#pragma once

#include <ostream>
#include <string>

#include "checkpoint/repository.h"
#include "hub/settings.h"

namespace fettle {

struct Recipe;

// The environment's settings, changed by use_modelscope, hub_token and cache_dir.
HubSettings hub_settings(const Recipe& recipe);

// Replaces a model_name_or_path, adapter_name_or_path or ref_model that is a name on a hub by its folder in the hub's
// cache, and fetches missing files. Files and folders on this machine come first. `weights` says whether the command
// reads the model's weights; adapters are always fetched, because they are small. Throws UserError like Snapshot.
void fetch_models(Recipe& recipe, ModelRepository::Weights weights);

// Fetches the models and the rows that the recipe names, to copy them to machines without a network. Writes their paths
// to `out`.
void fetch_recipe(const Recipe& recipe, std::ostream& out);

// Returns the folder that `name` means, fetching a model's tokenizer and config if it is on a hub. For commands that
// read no recipe.
std::string local_tokenizer(const std::string& name);

}  // namespace fettle
