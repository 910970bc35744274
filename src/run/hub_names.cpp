#include "run/hub_names.h"

#include <filesystem>

#include "checkpoint/fetch/fetch_model.h"
#include "checkpoint/gguf/gguf_folder.h"
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

}  // namespace

HubSettings hub_settings(const Recipe& recipe) {
  const bool scope =
      recipe.set_at.contains("use_modelscope") ? recipe.use_modelscope : hub_of_environment() == Hub::kModelScope;
  HubSettings settings = read_hub_settings(scope ? Hub::kModelScope : Hub::kHuggingFace);
  if (!recipe.hub_token.empty()) {
    check_token(recipe.hub_token, "hub_token");
    settings.token = recipe.hub_token;
  }
  if (!recipe.cache_dir.empty()) settings.cache = fs::absolute(recipe.cache_dir);
  return settings;
}

void fetch_models(Recipe& recipe, ModelRepository::Weights weights) {
  const auto replace = [&](std::string& name, const std::string& revision, bool adapter) {
    std::error_code ignored;
    std::optional<HubGguf> gguf = fs::exists(fs::symlink_status(name, ignored)) ? std::nullopt : read_hub_gguf(name);
    if (gguf && !adapter) {
      if (gguf->repo.revision.empty()) gguf->repo.revision = revision;
      const std::string file = fetch_gguf(hub_settings(recipe), *gguf).string();
      recipe.hub_names[file] = name;
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
    const fs::path folder = adapter ? fetch_adapter(settings, *repo) : fetch_model(settings, *repo, weights);
    recipe.hub_names[folder.string()] = repo->id;
    name = folder.string();
  };
  // Turns a GGUF file into a folder in Hugging Face's layout.
  const auto unpack = [&](std::string& name) {
    const std::optional<fs::path> file = name.empty() ? std::nullopt : find_gguf(name);
    if (!file) return;
    const std::string folder = gguf_folder(*file).string();
    recipe.hub_names[folder] = recipe.name_of(name);
    name = folder;
  };
  replace(recipe.model_name_or_path, recipe.model_revision, false);
  for (std::string& adapter : recipe.adapter_name_or_path) replace(adapter, "", true);
  replace(recipe.ref_model, "", false);
  unpack(recipe.model_name_or_path);
  unpack(recipe.ref_model);
}

void fetch_recipe(const Recipe& asked, std::ostream& out) {
  Recipe recipe = asked;
  fetch_models(recipe,
               recipe.train_from_scratch ? ModelRepository::Weights::kIgnored : ModelRepository::Weights::kRequired);
  for (const auto& [folder, name] : recipe.hub_names) out << folder << "\n";
  for (const std::vector<std::string>* names : {&recipe.dataset, &recipe.eval_dataset})
    for (const std::string& name : *names)
      for (const fs::path& file : find_source(name, recipe.dataset_dir, hub_settings(recipe)).files)
        out << file.string() << "\n";
}

std::string local_tokenizer(const std::string& name) {
  Recipe recipe;
  recipe.model_name_or_path = name;
  fetch_models(recipe, ModelRepository::Weights::kIgnored);
  return recipe.model_name_or_path;
}

}  // namespace fettle
