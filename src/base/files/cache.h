// Defines cache_folder, which returns the folder for files that Fettle can make again, such as compiled programs.
// ContentKey makes the names of these files.
#pragma once

#include <xxhash.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace fettle {

// Returns the cache's folder: $FETTLE_CACHE, or else $HOME/.cache/fettle. Returns nothing when both variables are unset
// or empty. Throws UserError for a relative path. The cache would then be in the working directory, where other users
// may be able to write, and Fettle loads code from the cache.
std::optional<std::filesystem::path> find_cache();
// Returns the path of the cache's subfolder `kind`, which may not exist yet. Throws UserError when there is no cache.
std::filesystem::path cache_folder(std::string_view kind);
// Creates a folder of the cache whose files a command cannot do without. Throws UserError when it cannot be written.
void require_writable(const std::filesystem::path& folder);

// A 128-bit XXH3 hash of a list of fields. The length of each field is hashed too, so {"ab", "c"} and {"a", "bc"}
// differ.
class ContentKey {
 public:
  ContentKey();
  ContentKey& add(std::string_view field);
  // Adds the content of a file. Calls `meanwhile`, which may throw, for each MiB of the file. Throws UserError when the
  // file cannot be read.
  ContentKey& add_file(
      const std::filesystem::path& file, const std::function<void()>& meanwhile = [] {});
  std::string text() const;  // 32 hexadecimal digits

 private:
  std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state_;
};

}  // namespace fettle
