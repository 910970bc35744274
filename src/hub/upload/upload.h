// Defines upload_folder, which sends a folder as one commit to a repository on Hugging Face's hub. Sources: the
// requests of huggingface_hub (preupload, commit) and the Git LFS batch API, with its transfers "basic" and
// "multipart".
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "hub/repo_name.h"
#include "hub/settings.h"

namespace fettle {

struct Upload {
  std::filesystem::path folder;
  RepoName repo;
  bool is_public = false;  // true: make a new repository public; an existing one keeps its visibility
  std::string message;     // the commit's message
};

struct UploadReport {
  std::string url;         // the repository's page
  std::string commit;      // the commit's hash; "" when the hub does not name it
  size_t files = 0;        // files of the commit
  int64_t bytes = 0;       // bytes of these files
  int64_t sent_bytes = 0;  // bytes of the large files that the hub did not have yet
};

// Makes the repository if there is none, sends the large files that the hub lacks, and then makes one commit with all
// files. So the repository never has only some of the files, and a second call does not send large files again. Leaves
// out hidden files, checkpoints and logs (uploaded_files), and files that the repository's .gitignore excludes. Prints
// progress. Throws UserError with the remedy when there is no token, when the hub refuses or cannot be reached, when
// the folder has no files, and for ModelScope. After a signal, throws like InterruptScope::check.
UploadReport upload_folder(const HubSettings& settings, const Upload& upload);

// Returns the paths of the files that upload_folder sends, relative to `folder`, sorted: all regular files, except
// hidden ones, checkpoint-N, unfinished results (*.tmp-*), the logs of a run (trainer_log.jsonl, fettle_run.json,
// report.html, train.log, recipe.yaml, runs, wandb), and predictions (*predictions.jsonl).
std::vector<std::string> uploaded_files(const std::filesystem::path& folder);

}  // namespace fettle
