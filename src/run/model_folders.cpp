#include "run/model_folders.h"

#include <filesystem>

#include "base/error.h"
#include "checkpoint/fetch/fetch_model.h"
#include "checkpoint/gguf/gguf_folder.h"
#include "config/near_path.h"
#include "config/recipe.h"
#include "data/read/dataset_info.h"
#include "hub/repo_name.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;

// Returns the repository that the text names. Returns nullopt when the text is a file or folder on this machine, or
// cannot be a name on a hub.
std::optional<RepoName> remote_name(const std::string& text) {
  std::error_code ignored;
  if (text.empty() || fs::exists(fs::symlink_status(text, ignored))) return std::nullopt;
  return read_repo_name(RepoKind::kModel, text);
}

// Calls `fetch`, which looks for the model `name` on a hub. If it fails, the message first says that there is no such
// file or folder, because the name may be a misspelt path.
template <typename Fetch>
fs::path fetched(const std::string& name, const Fetch& fetch) {
  try {
    return fetch();
  } catch (const UserError& error) {
    const std::string missing = missing_path(name);
    if (missing.empty()) throw;
    throw UserError("{}; as a name on the hub: {}", missing, error.what());
  }
}

}  // namespace

HubSettings hub_settings(const Recipe& recipe) {
  const bool scope =
      recipe.places.has("use_modelscope") ? recipe.use_modelscope : hub_of_environment() == Hub::kModelScope;
  HubSettings settings = read_hub_settings(scope ? Hub::kModelScope : Hub::kHuggingFace);
  if (!recipe.hub_token.empty()) {
    check_token(recipe.hub_token, "hub_token");
    settings.token = recipe.hub_token;
  }
  if (!recipe.cache_dir.empty()) settings.cache = fs::absolute(recipe.cache_dir);
  return settings;
}

const std::string& ModelFolders::name_of(const std::string& folder) const {
  const auto found = names.find(folder);
  return found == names.end() ? folder : found->second;
}

ModelFolders named_models(const Recipe& recipe) {
  return {.model = recipe.model_name_or_path,
          .revision = recipe.model_revision,
          .adapters = recipe.adapter_name_or_path,
          .reference = recipe.ref_model};
}

ModelFolders fetch_models(const Recipe& recipe, ModelFolders models, ModelRepository::Weights weights) {
  const auto replace = [&](std::string& name, const std::string& revision, bool adapter) {
    std::error_code ignored;
    std::optional<HubGguf> gguf = fs::exists(fs::symlink_status(name, ignored)) ? std::nullopt : read_hub_gguf(name);
    if (gguf && !adapter) {
      if (gguf->repo.revision.empty()) gguf->repo.revision = revision;
      const std::string file = fetch_gguf(hub_settings(recipe), *gguf).string();
      models.names[file] = name;
      name = file;
      return;
    }
    std::optional<RepoName> repo = remote_name(name);
    if (!repo) return;
    if (repo->revision.empty() && !revision.empty()) {
      check_revision(revision);
      repo->revision = revision;
    }
    const HubSettings settings = hub_settings(recipe);
    const fs::path folder =
        fetched(name, [&] { return adapter ? fetch_adapter(settings, *repo) : fetch_model(settings, *repo, weights); });
    models.names[folder.string()] = repo->id;
    name = folder.string();
  };
  // Turns a GGUF file into a folder in Hugging Face's layout.
  const auto unpack = [&](std::string& name) {
    const std::optional<fs::path> file = name.empty() ? std::nullopt : find_gguf(name);
    if (!file) return;
    const std::string folder = gguf_folder(*file).string();
    models.names[folder] = models.name_of(name);
    name = folder;
  };
  replace(models.model, models.revision, false);
  for (std::string& adapter : models.adapters) replace(adapter, "", true);
  replace(models.reference, "", false);
  unpack(models.model);
  unpack(models.reference);
  return models;
}

void fetch_recipe(const Recipe& recipe, bool with_weights, std::ostream& out) {
  using Weights = ModelRepository::Weights;
  const auto weights = with_weights && !recipe.train_from_scratch ? Weights::kRequired : Weights::kIgnored;
  const ModelFolders models = fetch_models(recipe, named_models(recipe), weights);
  const ModelFolders base =
      fetch_models(recipe, {.model = recipe.eval_base_model}, with_weights ? Weights::kRequired : Weights::kIgnored);
  std::map<std::string, std::string> names = models.names;
  names.insert(base.names.begin(), base.names.end());
  for (const auto& [folder, name] : names) out << folder << "\n";
  for (const std::vector<std::string>* names : {&recipe.dataset, &recipe.eval_dataset})
    for (const std::string& name : *names)
      for (const fs::path& file : find_source(name, recipe.dataset_dir, hub_settings(recipe)).files)
        out << file.string() << "\n";
}

std::string local_tokenizer(const std::string& name) {
  return fetch_models(Recipe(), {.model = name}, ModelRepository::Weights::kIgnored).model;
}

}  // namespace fettle
