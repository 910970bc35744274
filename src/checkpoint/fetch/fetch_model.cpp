#include "checkpoint/fetch/fetch_model.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <set>

#include "base/error.h"
#include "checkpoint/files.h"
#include "checkpoint/model_files.h"
#include "data/classes/taught_labels.h"
#include "hub/snapshot.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Names = std::vector<std::string>;

constexpr const char* kWeights[] = {"model.safetensors", "model.safetensors.index.json", "pytorch_model.bin",
                                    "pytorch_model.bin.index.json"};

// What other tools look for and a repository may lack.
constexpr const char* kOptional[] = {"adapter_config.json",   "added_tokens.json",       "chat_template.jinja",
                                     "chat_template.json",    "generation_config.json",  "model.safetensors",
                                     "processor_config.json", "special_tokens_map.json", "tokenizer.model"};

// The names in the repository's own folder, without subfolders.
Names names_where(const Snapshot& snapshot, const std::function<bool(const std::string&)>& wanted) {
  Names out;
  for (const HubFile& file : snapshot.files())
    if (file.path.find('/') == std::string::npos && wanted(file.path)) out.push_back(file.path);
  return out;
}

std::string first_names(const Snapshot& snapshot) {
  Names names = names_where(snapshot, [](const std::string& name) { return name[0] != '.'; });
  const size_t all = names.size();
  if (all > 8) names.resize(8);
  return names.empty()
             ? "no files"
             : fmt::format("{}{}", fmt::join(names, ", "), all > 8 ? fmt::format(" and {} more", all - 8) : "");
}

bool names_code(const Snapshot& snapshot) {
  for (const char* name : {"config.json", "tokenizer_config.json"}) {
    if (!snapshot.has(name)) continue;
    const Json config = read_json_file(snapshot.folder() / name);
    if (config.is_object() && config.contains("auto_map")) return true;
  }
  return false;
}

Names shards_of(const Snapshot& snapshot, const std::string& index, const RepoName& repo) {
  snapshot.fetch({index});
  const Json content = read_json_file(snapshot.folder() / index);
  const auto map = content.is_object() ? content.find("weight_map") : content.end();
  if (!content.is_object() || map == content.end() || !map->is_object())
    throw UserError("{}: {} has no object 'weight_map'", repo.id, index);
  std::set<std::string> shards;
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string() || !snapshot.has(file.get<std::string>()))
      throw UserError("{}: {} says that '{}' is in {}, which the repository lacks", repo.id, index, tensor,
                      file.dump());
    shards.insert(file.get<std::string>());
  }
  return {shards.begin(), shards.end()};
}

void fetch_weights(const Snapshot& snapshot, const RepoName& repo) {
  const auto found =
      std::find_if(std::begin(kWeights), std::end(kWeights), [&](const char* name) { return snapshot.has(name); });
  if (found == std::end(kWeights))
    throw UserError(
        "{} has no weights that Fettle reads: neither model.safetensors nor pytorch_model.bin nor an index of either; "
        "it has {}",
        repo.id, first_names(snapshot));
  const std::string name = *found;
  snapshot.fetch(name.ends_with(".json") ? shards_of(snapshot, name, repo) : Names{name});
}

}  // namespace

fs::path fetch_model(const HubSettings& settings, const RepoName& repo, ModelRepository::Weights weights) {
  const Snapshot snapshot = Snapshot::open(settings, repo);
  if (!snapshot.has("config.json")) {
    if (!snapshot.has("adapter_config.json"))
      throw UserError("{} is no model in Hugging Face's layout: it has no config.json, but {}", repo.id,
                      first_names(snapshot));
    snapshot.fetch({"adapter_config.json"});
    return snapshot.folder();  // opening it says what to do with an adapter
  }
  snapshot.fetch(names_where(snapshot, is_model_file));
  if (names_code(snapshot))
    snapshot.fetch(names_where(snapshot, [](const std::string& name) { return name.ends_with(".py"); }));
  snapshot.mark_missing({std::begin(kOptional), std::end(kOptional)});
  if (weights == ModelRepository::Weights::kRequired) fetch_weights(snapshot, repo);
  return snapshot.folder();
}

fs::path fetch_adapter(const HubSettings& settings, const RepoName& repo) {
  const Snapshot snapshot = Snapshot::open(settings, repo);
  if (!snapshot.has("adapter_config.json"))
    throw UserError("{} is no adapter: it has no adapter_config.json, but {}{}", repo.id, first_names(snapshot),
                    snapshot.has("config.json") ? "; a model belongs in model_name_or_path" : "");
  const bool safe = snapshot.has("adapter_model.safetensors");
  snapshot.fetch(names_where(snapshot, [&](const std::string& name) {
    return name == "adapter_config.json" || name == "adapter_model.safetensors" || name == kAdapterLabels ||
           (name == "adapter_model.bin" && !safe);
  }));
  return snapshot.folder();
}

}  // namespace fettle
