#include "inspect/upload_command.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/size_text.h"
#include "hub/upload/upload.h"

namespace fettle {

int run_upload(const UploadOptions& options, std::ostream& out) {
  const std::optional<RepoName> repo = read_repo_name(RepoKind::kModel, options.repository);
  if (!repo || repo->id.find('/') == std::string::npos)
    throw UserError("'{}' is not the name of a repository; names are ORG/NAME or USER/NAME", options.repository);
  const UploadReport report =
      upload_folder(read_hub_settings(hub_of_environment()),
                    {.folder = options.folder,
                     .repo = *repo,
                     .is_public = options.is_public,
                     .message = options.message.empty() ? "Upload by fettle" : options.message});
  out << fmt::format("{} files, {} ({} were sent through Git LFS): {}\n", report.files, size_text(report.bytes),
                     size_text(report.sent_bytes), report.url);
  return 0;
}

}  // namespace fettle
