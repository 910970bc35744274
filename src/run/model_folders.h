// Defines ModelFolders, and fetch_models, fetch_recipe and local_tokenizer, which fetch what a recipe or a command
// names on a hub. Also defines hub_settings.
#pragma once

#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "checkpoint/repository.h"
#include "hub/settings.h"

namespace fettle {

struct Recipe;

// Returns the settings for downloads from a hub. The recipe's keys use_modelscope, hub_token and cache_dir take
// precedence over the environment.
HubSettings hub_settings(const Recipe& recipe);

// The folders of the models that a recipe names.
struct ModelFolders {
  std::string model;                              // model_name_or_path
  std::string revision = {};                      // model_revision; empty: the branch `main`
  std::vector<std::string> adapters = {};         // adapter_name_or_path
  std::string reference = {};                     // ref_model; empty: the recipe names none
  std::map<std::string, std::string> names = {};  // folder -> its name on a hub, or the GGUF file it comes from
  std::vector<std::string> added_targets = {};    // modules that change_model adds to additional_target

  // Returns the name that `folder` replaced; if there is none, returns `folder`.
  const std::string& name_of(const std::string& folder) const;
};

// Returns the names that the recipe gives. Fetches and replaces nothing.
ModelFolders named_models(const Recipe& recipe);

// If a model or an adapter of `models` is a name on a hub, fetches its missing files and replaces the name by the
// folder in the hub's cache. A file or folder on this machine with that name takes precedence. Replaces a model that is
// a GGUF file by a folder in Hugging Face's layout (gguf_folder). `weights` says whether the command reads the model's
// weights; adapters are always fetched, because they are small. Throws UserError like Snapshot.
ModelFolders fetch_models(const Recipe& recipe, ModelFolders models, ModelRepository::Weights weights);

// Fetches the models and the data sets that the recipe names, so that the user can copy them to machines without a
// network. Without `with_weights`, fetches only the configs and tokenizers of the models. Writes the paths of the
// folders and files to `out`.
void fetch_recipe(const Recipe& recipe, bool with_weights, std::ostream& out);

// Returns the model folder that `name` means, for commands that read no recipe. If `name` is a model on a hub, fetches
// its tokenizer and config, and returns the folder in the hub's cache. A GGUF file becomes a folder, as in
// fetch_models.
std::string local_tokenizer(const std::string& name);

}  // namespace fettle
