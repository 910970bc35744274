// Defines HubFile and Listing: the files of a repository at one commit, with their sizes and checksums.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace fettle {

struct HubFile {
  std::string path;  // path inside the repository; is_path_inside() is true
  int64_t size = 0;  // bytes
  std::string etag;  // the checksum (see Digest), also the name of the blob: 64 or 40 hex digits; "" if it is unknown
  std::string oid;   // git's id (40 digits) of the file or of its LFS pointer; for ModelScope the same as `etag`
  std::string xet;   // the content's hash in the hub's Xet store; Fettle only keeps it in listings, for huggingface_hub
};

// The files of a commit, sorted by path.
using Listing = std::vector<HubFile>;

// Returns the file with this path; null when there is none.
const HubFile* find_file(const Listing& listing, const std::string& path);

// The next two functions read and write a listing in huggingface_hub's form: trees/<commit>.json in a repository's
// folder. read_listing returns nullopt when the file is missing, broken or of another format. write_listing ignores
// errors.
std::optional<Listing> read_listing(const std::filesystem::path& file);
void write_listing(const std::filesystem::path& file, const Listing& listing);

// Checks and sorts the entries that a server sent. Throws UserError for a path that is_path_inside refuses, a missing
// size, an invalid checksum or a path that occurs twice. `place` is the address for the message.
void check_listing(Listing& listing, const std::string& place);

}  // namespace fettle
