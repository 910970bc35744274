// Defines send_large_files, which sends files to the hub's store of large files (Git LFS).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "hub/repo_name.h"
#include "hub/settings.h"

namespace fettle {

// A file whose content goes to the store.
struct LargeFile {
  std::filesystem::path file;
  int64_t size = 0;
  std::string sha256;  // 64 digits
};

// Returns the SHA-256 of the file's content, in hexadecimal digits. Throws UserError when the file cannot be read.
std::string sha256_of(const std::filesystem::path& file);

// Asks the hub which of `files` it lacks, and sends those, four at a time. Returns the number of bytes sent.
// Throws UserError when the hub refuses a file, HttpFailure when a connection breaks again and again.
int64_t send_large_files(const HubSettings& settings, const RepoName& repo, const std::vector<LargeFile>& files);

}  // namespace fettle
