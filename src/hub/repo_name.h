// Defines RepoName, the name of a repository on a hub, and checks of names that become parts of paths.
#pragma once

#include <optional>
#include <string>

namespace fettle {

enum class RepoKind { kModel, kDataset };

// A name such as Qwen/Qwen3-0.6B or gpt2, with a revision after an @ if one is given.
struct RepoName {
  RepoKind kind = RepoKind::kModel;
  std::string id;        // "Qwen/Qwen3-0.6B"
  std::string revision;  // a branch, tag or commit; empty: the main branch

  std::string plural() const { return kind == RepoKind::kModel ? "models" : "datasets"; }
  std::string noun() const { return kind == RepoKind::kModel ? "model" : "data set"; }
};

// Reads "ORG/NAME", "NAME" or either with "@REVISION". Returns nullopt when the text cannot be such a name. The rules
// are those of huggingface_hub: at most one slash; letters, digits, '-', '_' and '.'; neither '-' nor '.' at an end of
// ORG or NAME; no '..', no '--', no '.git' at the end; at most 96 characters in NAME. Throws UserError for a revision
// that check_revision refuses.
std::optional<RepoName> read_repo_name(RepoKind kind, const std::string& text);

// Throws UserError if `revision` cannot name a branch, a tag or a commit. This check is needed because the revision
// becomes part of a path.
void check_revision(const std::string& revision);

// Returns whether `path`, which a server named, stays inside the folder that it is joined to. Also returns false
// if `path` has backslashes, control characters or names that are too long.
bool is_path_inside(const std::string& path);

// Returns whether the text consists of `digits` lower-case hexadecimal digits.
bool is_hex(const std::string& text, size_t digits);

}  // namespace fettle
