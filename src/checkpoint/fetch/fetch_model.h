// Defines fetch_model and fetch_adapter, which know what Fettle reads of a repository on a hub.
#pragma once

#include <filesystem>

#include "checkpoint/repository.h"
#include "hub/repo_name.h"
#include "hub/settings.h"

namespace fettle {

// Fetches config.json, the tokenizer's files, code that auto_map names and, if required, the weights, in one form only:
// model.safetensors, the shards of its index, pytorch_model.bin, or the shards of its index. Returns the folder. Throws
// UserError as Snapshot, and when the repository lacks weights or a shard.
std::filesystem::path fetch_model(const HubSettings& settings, const RepoName& repo, ModelRepository::Weights weights);

// Fetches an adapter's configuration, weights and labels.
std::filesystem::path fetch_adapter(const HubSettings& settings, const RepoName& repo);

}  // namespace fettle
