#include "checkpoint/fetch/fetch_model.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <set>

#include "base/error.h"
#include "base/files/json_file.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoint/gguf/gguf_folder.h"
#include "checkpoint/model_files.h"
#include "checkpoint/peft/earlier_adapters.h"
#include "data/classes/taught_labels.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Names = std::vector<std::string>;

constexpr const char* kWeights[] = {"model.safetensors", "model.safetensors.index.json", "pytorch_model.bin",
                                    "pytorch_model.bin.index.json"};

// Optional files that Hugging Face's libraries look for. The cache records which of them a repository lacks.
constexpr const char* kOptional[] = {"adapter_config.json",   "added_tokens.json",       "chat_template.jinja",
                                     "chat_template.json",    "generation_config.json",  "model.safetensors",
                                     "processor_config.json", "special_tokens_map.json", "tokenizer.model"};

// Returns the paths in the repository for which the predicate is true, including paths in subfolders.
Names files_where(const Snapshot& snapshot, const std::function<bool(const std::string&)>& wanted) {
  Names out;
  for (const HubFile& file : snapshot.files())
    if (wanted(file.path)) out.push_back(file.path);
  return out;
}

// Returns the names of the files in the repository's top folder for which the predicate is true.
Names names_where(const Snapshot& snapshot, const std::function<bool(const std::string&)>& wanted) {
  return files_where(snapshot,
                     [&](const std::string& path) { return path.find('/') == std::string::npos && wanted(path); });
}

// Fetches the chat templates with names.
void fetch_named_templates(const Snapshot& snapshot) {
  snapshot.fetch(files_where(snapshot, [](const std::string& path) {
    return path.starts_with(std::string(kChatTemplates) + "/") && path.ends_with(".jinja");
  }));
}

std::string file_name(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}

// Returns the GGUF models, without image projectors (mmproj) and without parts after the first.
Names gguf_models(const Snapshot& snapshot) {
  return files_where(snapshot, [](const std::string& path) { return is_gguf_model(file_name(path)); });
}

// Returns whether the file's name has `word`, in upper or lower case, with a '-', a '.' or an end of the name on each
// side. For example, "x-Q4_K_M.gguf" has the word "q4_k_m", but not "Q4_K". An empty word is in every name.
bool contains_word(const std::string& path, const std::string& word) {
  const std::string in = "." + lower_case(file_name(path)) + ".", wanted = lower_case(word);
  auto ends = [](char c) { return c == '-' || c == '.'; };
  for (size_t at = in.find(wanted, 1); at != std::string::npos; at = in.find(wanted, at + 1))
    if (wanted.empty() || (ends(in[at - 1]) && at + wanted.size() < in.size() && ends(in[at + wanted.size()])))
      return true;
  return false;
}

bool has_weights(const Snapshot& snapshot) {
  return std::ranges::any_of(kWeights, [&](const char* name) { return snapshot.has(name); });
}

std::string first_names(const Snapshot& snapshot) {
  Names names = names_where(snapshot, [](const std::string& name) { return name[0] != '.'; });
  const size_t all = names.size();
  if (all > 8) names.resize(8);
  return names.empty()
             ? "no files"
             : fmt::format("{}{}", fmt::join(names, ", "), all > 8 ? fmt::format(" and {} more", all - 8) : "");
}

// Returns whether a model works without this one of its files. Then a copy that lacks the file can be used offline.
bool can_lack(const Snapshot& snapshot, const std::string& name) {
  static const std::set<std::string> kRead{"config.json",    "generation_config.json",  "tokenizer_config.json",
                                           "tokenizer.json", "special_tokens_map.json", "added_tokens.json"};
  if (kRead.contains(name) || name.starts_with("chat_template.")) return false;
  return name.ends_with(".py") || !is_tokenizer_file(name) || snapshot.has("tokenizer.json");
}

// Fetches the named files; without a network, leaves out those that the cache lacks and the model can lack.
void fetch_model_files(const Snapshot& snapshot, Names names) {
  Names lacking;
  std::erase_if(names, [&](const std::string& name) {
    const bool out = can_lack(snapshot, name) && !snapshot.can_fetch(name);
    if (out) lacking.push_back(name);
    return out;
  });
  if (!lacking.empty())
    info("{} lacks {}; models that are saved from it lack them, too", snapshot.folder().string(),
         fmt::join(lacking, ", "));
  snapshot.fetch(names);
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
    throw UserError("{}: {} has no object 'weight_map'; download it again", repo.id, index);
  std::set<std::string> shards;
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string() || !snapshot.has(file.get<std::string>()))
      throw UserError("{}: {} says that tensor '{}' is in {}, but the repository has no such file", repo.id, index,
                      tensor, file.dump());
    shards.insert(file.get<std::string>());
  }
  return {shards.begin(), shards.end()};
}

void fetch_weights(const Snapshot& snapshot, const RepoName& repo) {
  const auto found =
      std::find_if(std::begin(kWeights), std::end(kWeights), [&](const char* name) { return snapshot.has(name); });
  if (found == std::end(kWeights) && snapshot.has("adapter_config.json")) refuse_adapter(repo.id);
  if (found == std::end(kWeights))
    throw UserError(
        "{} has no weights that Fettle reads: it has no model.safetensors, no pytorch_model.bin and no index of "
        "either; it has {}",
        repo.id, first_names(snapshot));
  const std::string name = *found;
  snapshot.fetch(name.ends_with(".json") ? shards_of(snapshot, name, repo) : Names{name});
}

}  // namespace

std::optional<HubGguf> read_hub_gguf(const std::string& text) {
  size_t cut = text.find(':');
  if (cut == std::string::npos && text.ends_with(".gguf")) {
    cut = text.find('/');
    cut = cut == std::string::npos ? cut : text.find('/', cut + 1);
  }
  if (cut == std::string::npos || cut + 1 == text.size()) return std::nullopt;
  const std::optional<RepoName> repo = read_repo_name(RepoKind::kModel, text.substr(0, cut));
  const std::string wanted = text.substr(cut + 1);
  return repo && is_path_inside(wanted) ? std::optional(HubGguf{*repo, wanted}) : std::nullopt;
}

fs::path fetch_gguf(const HubSettings& settings, const HubGguf& file) {
  const Snapshot snapshot = Snapshot::open(settings, file.repo);
  const Names all = gguf_models(snapshot);
  Names found;
  for (const std::string& name : all)
    if (name == file.wanted || contains_word(name, file.wanted)) found.push_back(name);
  if (std::find(all.begin(), all.end(), file.wanted) != all.end()) found = {file.wanted};
  if (found.empty() && !file.wanted.empty())
    throw UserError("{}: no GGUF file matches '{}'; the repository has {}; name one as {}/FILE.gguf", file.repo.id,
                    file.wanted, fmt::join(all, ", "), file.repo.id);
  if (found.size() != 1 && file.wanted.empty())
    throw UserError("{} has {} GGUF files: {}; name one as {}/FILE.gguf", file.repo.id, all.size(),
                    fmt::join(all, ", "), file.repo.id);
  if (found.size() != 1)
    throw UserError("{}: {} of its GGUF files match '{}'; it has {}; name one as {}/FILE.gguf", file.repo.id,
                    found.size(), file.wanted, fmt::join(all, ", "), file.repo.id);
  const std::string& first = found[0];
  Names parts{first};
  const std::string ending = "-00001-of-";
  if (const size_t at = first.rfind(ending); at != std::string::npos)
    parts = files_where(snapshot, [&](const std::string& name) {
      return name.starts_with(first.substr(0, at) + "-") && name.ends_with(first.substr(at + ending.size() - 4));
    });
  snapshot.fetch(parts);
  return snapshot.folder() / first;
}

fs::path fetch_model(const HubSettings& settings, const RepoName& repo, ModelRepository::Weights weights) {
  const Snapshot snapshot = Snapshot::open(settings, repo);
  if (!has_weights(snapshot) && !gguf_models(snapshot).empty()) return fetch_gguf(settings, {repo, ""});
  if (!snapshot.has("config.json")) {
    if (snapshot.has("adapter_config.json")) refuse_adapter(repo.id);
    throw UserError("{} is not a model in Hugging Face's layout: it has no config.json; it has {}", repo.id,
                    first_names(snapshot));
  }
  fetch_model_files(snapshot, names_where(snapshot, is_model_file));
  // An export to GGUF looks for the licence in these files. Everything else works without them.
  if (snapshot.online()) snapshot.fetch(names_where(snapshot, is_licence_file));
  fetch_named_templates(snapshot);
  if (names_code(snapshot))
    fetch_model_files(snapshot, names_where(snapshot, [](const std::string& name) { return name.ends_with(".py"); }));
  snapshot.mark_missing({std::begin(kOptional), std::end(kOptional)});
  if (weights == ModelRepository::Weights::kRequired) fetch_weights(snapshot, repo);
  return snapshot.folder();
}

bool is_adapter(const Snapshot& snapshot) {
  if (!snapshot.has("adapter_config.json")) return false;
  return !snapshot.has("config.json") || (!has_weights(snapshot) && gguf_models(snapshot).empty());
}

fs::path fetch_adapter(const HubSettings& settings, const RepoName& repo) {
  const Snapshot snapshot = Snapshot::open(settings, repo);
  if (!snapshot.has("adapter_config.json"))
    throw UserError("{} is not an adapter: it has no adapter_config.json; it has {}{}", repo.id, first_names(snapshot),
                    snapshot.has("config.json") ? "; a model belongs in model_name_or_path" : "");
  const bool safe = snapshot.has("adapter_model.safetensors");
  snapshot.fetch(names_where(snapshot, [&](const std::string& name) {
    return name == "adapter_config.json" || name == "adapter_model.safetensors" || name == kAdapterLabels ||
           (name == "adapter_model.bin" && !safe);
  }));
  // An adapter works without the other files. So a copy that lacks them can be used offline.
  if (snapshot.online()) {
    snapshot.fetch(names_where(
        snapshot, [](const std::string& name) { return name == kEarlierAdapters || is_tokenizer_file(name); }));
    fetch_named_templates(snapshot);
  }
  return snapshot.folder();
}

}  // namespace fettle
