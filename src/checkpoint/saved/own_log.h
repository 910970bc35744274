// Defines is_own_log and is_foreign_log, which tell a log of Fettle from one of Transformers' Trainer.
#pragma once

#include <filesystem>

namespace fettle {

// Returns whether Fettle wrote this trainer_state.json. Both write "stateful_callbacks", but Trainer has at least the
// entry TrainerControl there, and Fettle has no entry. Early versions of Trainer lack the field.
bool is_own_log(const std::filesystem::path& file);
// Returns whether another program wrote it. If the file is missing or damaged, both functions return false.
bool is_foreign_log(const std::filesystem::path& file);

}  // namespace fettle
