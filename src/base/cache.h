// Defines cache_folder, where what can be made anew is kept between runs, and ContentKey, by which it is found.
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

// XXH3 (128 bits) of fields, each with its length, so that two lists of fields never run together.
class ContentKey {
 public:
  ContentKey();
  ContentKey& add(std::string_view field);
  // Its bytes; throws UserError when it cannot be read. `meanwhile` is called every few MiB and may throw.
  ContentKey& add_file(
      const std::filesystem::path& file, const std::function<void()>& meanwhile = [] {});
  std::string text() const;  // 32 hexadecimal digits

 private:
  std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state_;
};

}  // namespace fettle
