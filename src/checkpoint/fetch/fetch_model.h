// Defines fetch_model and fetch_adapter, which fetch the files that Fettle reads from a repository on a hub.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "checkpoint/repository.h"
#include "hub/repo_name.h"
#include "hub/settings.h"

namespace fettle {

// A GGUF file of a repository, which has several of them: "ORG/NAME:Q4_K_M" or "ORG/NAME/FILE.gguf".
struct HubGguf {
  RepoName repo;
  std::string wanted;  // the file's path, or a part of its name
};

// Returns nothing when the text has neither form.
std::optional<HubGguf> read_hub_gguf(const std::string& text);

// Fetches the file, or all parts of it, and returns the (first) file. `wanted` may be empty when the repository has
// only one. Throws UserError that lists the files when there is none that fits, or several.
std::filesystem::path fetch_gguf(const HubSettings& settings, const HubGguf& file);

// Fetches config.json, the tokenizer's files, code that auto_map names and, if required, the weights, in one form only:
// model.safetensors, the shards of its index, pytorch_model.bin, or the shards of its index. Returns the folder. Of a
// repository with only GGUF files, fetches and returns the file, which has all of this. Throws UserError as Snapshot
// and fetch_gguf, and when the repository lacks weights or a shard.
std::filesystem::path fetch_model(const HubSettings& settings, const RepoName& repo, ModelRepository::Weights weights);

// Fetches an adapter's configuration, weights and labels.
std::filesystem::path fetch_adapter(const HubSettings& settings, const RepoName& repo);

}  // namespace fettle
