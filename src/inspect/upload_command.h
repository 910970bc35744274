// Defines run_upload: the command `fettle upload`.
#pragma once

#include <ostream>
#include <string>

namespace fettle {

struct UploadOptions {
  std::string folder;      // the folder of an adapter, a model or an export
  std::string repository;  // ORG/NAME or ORG/NAME@BRANCH
  std::string message;     // the commit's message; empty: "Upload by fettle"
  bool is_public = false;  // whether a new repository is public
};

// Sends the folder to Hugging Face's hub as one commit. Writes to `out` what was sent and the URL of the repository.
// Throws UserError for a name that no repository can have, and the errors of upload_folder.
int run_upload(const UploadOptions& options, std::ostream& out);

}  // namespace fettle
