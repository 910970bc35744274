// Defines cache_folder, the place of files that are kept between runs and can be made again, and ContentKey, which
// names them.
#pragma once

#include <xxhash.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace fettle {

// $FETTLE_CACHE, else $HOME/.cache/fettle; nothing when neither variable is set. Throws UserError for a relative path:
// code is loaded from the cache, and the working directory may be anyone's.
std::optional<std::filesystem::path> find_cache();
// The cache's folder `kind`. Throws UserError when there is no cache.
std::filesystem::path cache_folder(std::string_view kind);

// A 128-bit XXH3 hash of a list of fields. The length of each field is hashed too, so {"ab", "c"} and {"a", "bc"}
// differ.
class ContentKey {
 public:
  ContentKey();
  ContentKey& add(std::string_view field);
  // Adds the content of a file. Throws UserError when it cannot be read. Calls `meanwhile` every MiB; it may throw.
  ContentKey& add_file(
      const std::filesystem::path& file, const std::function<void()>& meanwhile = [] {});
  std::string text() const;  // 32 hexadecimal digits

 private:
  std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state_;
};

}  // namespace fettle
