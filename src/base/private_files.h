// Defines functions that keep other users' code out of this process: they make private folders and check files of code.
#pragma once

#include <filesystem>
#include <string>

namespace fettle {

// Makes `folder` and the folders above it that are missing. Only this user may read, write or enter those that are
// made (mode 0700); folders that exist stay as they are. False when a folder cannot be made; errno says why.
bool make_private_folder(const std::filesystem::path& folder);

// Why another user could have put code into `file`, and the remedy; empty when none could. Nobody could when this user
// or root owns the file and its folder and nobody else may write to either. A link is followed, and its own folder is
// checked too. A file that is missing counts as safe: whoever opens it finds out.
std::string distrust(const std::filesystem::path& file);

}  // namespace fettle
