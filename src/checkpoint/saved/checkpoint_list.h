// Defines functions that find, delete and set aside the checkpoint-N folders of an output folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace fettle {

struct CheckpointFolder {
  std::filesystem::path path;
  int64_t step = 0;
  bool complete = false;  // state/manifest.json is valid, and its files have the sizes that it states
};

// Returns OUTPUT_DIR/checkpoint-N for step N.
std::filesystem::path checkpoint_path(const std::filesystem::path& output_dir, int64_t step);
// Returns the checkpoint's subfolder `state`.
std::filesystem::path state_folder(const std::filesystem::path& checkpoint);
// Returns the checkpoint's subfolder `weights`: the exact trained weights of a checkpoint without a state, in the same
// format (save_only_model with load_best_model_at_end).
std::filesystem::path weights_folder(const std::filesystem::path& checkpoint);
// Returns the checkpoints sorted by step, the oldest first; empty when the folder does not exist. Leaves out
// checkpoint-N folders that Fettle did not write, so that no other function deletes or renames them. Fettle's
// checkpoints have files in state/ or, with save_only_model, at least Fettle's log (is_own_log).
std::vector<CheckpointFolder> list_checkpoints(const std::filesystem::path& output_dir);
// Returns the last checkpoint-N folder that Fettle did not write; nullopt when there is none. Folders without files do
// not count.
std::optional<std::filesystem::path> foreign_checkpoint(const std::filesystem::path& output_dir);
std::optional<CheckpointFolder> newest_checkpoint(const std::filesystem::path& output_dir);  // the newest complete one
// Returns a text for messages: "the last complete checkpoint is out/checkpoint-4". If no checkpoint is complete, the
// text says so, and names the newest one that has only weights (save_only_model).
std::string newest_checkpoint_text(const std::filesystem::path& output_dir);
// Returns the checkpoint that resume_from_checkpoint means. `value` is the path of a checkpoint, or "true" for the
// newest checkpoint with a state. Returns nullopt for "true" when there is no checkpoint. StateReader checks whether
// the state is intact. Throws UserError when a named folder is missing or has no state, and for "true" when there are
// checkpoints but none has a state. If the folder contains checkpoints itself, the message names the newest one.
std::optional<std::filesystem::path> find_checkpoint(const std::filesystem::path& output_dir, const std::string& value);
// Deletes the oldest checkpoints until at most `limit` are left (0: no limit). Never deletes `written` (the one that
// was just written), `best` (empty: none) or the newest complete one. Returns the deleted ones.
std::vector<std::filesystem::path> delete_old_checkpoints(const std::filesystem::path& output_dir, int64_t limit,
                                                          const std::filesystem::path& written,
                                                          const std::filesystem::path& best = {});
// Renames each checkpoint after `step`, so that list_checkpoints() no longer has it: checkpoint-N becomes
// checkpoint-N.abandoned, or checkpoint-N.abandoned-2 if that exists, and so on. Returns the new paths. Throws
// UserError when a folder cannot be renamed.
std::vector<std::filesystem::path> set_aside_after(const std::filesystem::path& output_dir, int64_t step);
// Returns the folders that set_aside_after() renamed, in any order.
std::vector<std::filesystem::path> abandoned_checkpoints(const std::filesystem::path& output_dir);

}  // namespace fettle
