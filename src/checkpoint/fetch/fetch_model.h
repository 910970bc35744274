// Defines fetch_model and fetch_adapter, which fetch the files that Fettle reads from a repository on a hub.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "checkpoint/repository.h"
#include "hub/repo_name.h"
#include "hub/settings.h"
#include "hub/snapshot.h"

namespace fettle {

// The name of a GGUF file in a repository that has several GGUF files: "ORG/NAME:Q4_K_M" or "ORG/NAME/FILE.gguf".
struct HubGguf {
  RepoName repo;
  std::string wanted;  // the file's path, or a part of its name
};

// Reads one of these two forms; returns nullopt for any other text.
std::optional<HubGguf> read_hub_gguf(const std::string& text);

// Fetches the file, or all its parts, and returns the path of the file or of the first part. `wanted` may be empty when
// the repository has only one GGUF model. Throws UserError, which lists the files, when no file or more than one
// matches.
std::filesystem::path fetch_gguf(const HubSettings& settings, const HubGguf& file);

// Fetches the files of is_model_file (config.json, the tokenizer's files, ...); all *.py files if auto_map names code;
// and, if required, the weights. The weights are the first of these that exists: model.safetensors, the shards of
// model.safetensors.index.json, pytorch_model.bin, or the shards of pytorch_model.bin.index.json. Returns the folder.
// If a repository has only GGUF files, fetches and returns the GGUF file, which contains all of this. Throws UserError
// like Snapshot and fetch_gguf, and when the repository is an adapter's, or lacks weights or a shard.
std::filesystem::path fetch_model(const HubSettings& settings, const RepoName& repo, ModelRepository::Weights weights);

// Returns whether the repository has an adapter and no model. It may have the base model's config.json.
bool is_adapter(const Snapshot& snapshot);

// Fetches an adapter's configuration, weights, labels and tokenizer files, and the names of earlier adapters.
std::filesystem::path fetch_adapter(const HubSettings& settings, const RepoName& repo);

}  // namespace fettle
