// Defines functions that keep other users' code out of this process. They make private folders, and check
// files that contain code.
#pragma once

#include <filesystem>
#include <string>

namespace fettle {

// Makes `folder` and its missing parent folders. Only this user may read, write or enter a new folder (mode 0700).
// Existing folders stay as they are. Returns false when a folder cannot be made; errno says why.
bool make_private_folder(const std::filesystem::path& folder);

// Returns why another user could have changed the code in `file`, and the remedy; "" when the file is safe. It is safe
// when this user or root owns both the file and its folder, and nobody else may write to the file or the folder. If
// `file` is a link, the link's own folder is checked, too. Returns "" for a missing file, because the caller cannot
// open it anyway.
std::string distrust(const std::filesystem::path& file);

}  // namespace fettle
