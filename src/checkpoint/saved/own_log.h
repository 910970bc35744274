// Defines is_own_log, which tells a log that Fettle wrote from one that Transformers' Trainer wrote.
#pragma once

#include <filesystem>

namespace fettle {

// Returns whether Fettle wrote this trainer_state.json. Both write "stateful_callbacks", but Trainer has at least the
// entry TrainerControl there, and Fettle has no entry. Early versions of Trainer lack the field. Returns false when the
// file is missing or damaged.
bool is_own_log(const std::filesystem::path& file);

}  // namespace fettle
