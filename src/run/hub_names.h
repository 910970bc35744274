// Defines fetch_models, fetch_recipe and local_tokenizer, which fetch what a recipe or a command names on a hub. Also
// defines hub_settings.
#pragma once

#include <ostream>
#include <string>

#include "checkpoint/repository.h"
#include "hub/settings.h"

namespace fettle {

struct Recipe;

// Returns the settings of the environment, changed by the keys use_modelscope, hub_token and cache_dir.
HubSettings hub_settings(const Recipe& recipe);

// If model_name_or_path, adapter_name_or_path or ref_model is a name on a hub, fetches its missing files and replaces
// the name by the folder in the hub's cache. A file or folder on this machine with that name takes precedence. Replaces
// a model that is a GGUF file by a folder in Hugging Face's layout (gguf_folder). `weights` says whether the command
// reads the model's weights; adapters are always fetched, because they are small. Throws UserError like Snapshot.
void fetch_models(Recipe& recipe, ModelRepository::Weights weights);

// Fetches the models and the rows that the recipe names, so that the user can copy them to machines without a network.
// Writes their paths to `out`.
void fetch_recipe(const Recipe& recipe, std::ostream& out);

// Returns the model folder that `name` means, for commands that read no recipe. If `name` is a model on a hub, fetches
// its tokenizer and config, and returns the folder in the hub's cache. A GGUF file becomes a folder, as in
// fetch_models.
std::string local_tokenizer(const std::string& name);

}  // namespace fettle
