#include "base/files/cache.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <vector>

#include "base/environment.h"
#include "base/error.h"

namespace fettle {

namespace {

// Returns the absolute path in the variable; nullopt when the variable is unset or empty.
std::optional<std::filesystem::path> folder_in(const char* variable) {
  const std::string value = environment(variable);
  if (value.empty()) return std::nullopt;
  std::filesystem::path folder(value);
  if (folder.is_absolute()) return folder;
  throw UserError("{} is '{}', wanted an absolute path, because Fettle loads code from this folder", variable, value);
}

}  // namespace

std::optional<std::filesystem::path> find_cache() {
  if (const auto folder = folder_in("FETTLE_CACHE")) return folder;
  if (const auto home = folder_in("HOME")) return *home / ".cache/fettle";
  return std::nullopt;
}

std::filesystem::path cache_folder(std::string_view kind) {
  if (const auto cache = find_cache()) return *cache / kind;
  throw UserError(
      "there is no folder for the cache: neither FETTLE_CACHE nor HOME is set; set FETTLE_CACHE to a folder of your "
      "own");
}

void require_writable(const std::filesystem::path& folder) {
  std::error_code code;
  std::filesystem::create_directories(folder, code);
  if (!code && access(folder.c_str(), W_OK) != 0) code = {errno, std::generic_category()};
  if (code)
    throw UserError("{}, a folder of the cache, cannot be written: {}; set FETTLE_CACHE to a folder of your own",
                    folder.string(), code.message());
}

ContentKey::ContentKey() : state_(XXH3_createState(), XXH3_freeState) {
  XXH3_128bits_reset(state_.get());
}

ContentKey& ContentKey::add(std::string_view field) {
  const uint64_t length = field.size();
  XXH3_128bits_update(state_.get(), &length, sizeof length);
  XXH3_128bits_update(state_.get(), field.data(), field.size());
  return *this;
}

ContentKey& ContentKey::add_file(const std::filesystem::path& file, const std::function<void()>& meanwhile) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> in(std::fopen(file.c_str(), "rb"), std::fclose);
  if (!in) throw UserError("{} cannot be read: {}", file.string(), std::strerror(errno));
  std::vector<char> block(size_t{1} << 20);
  uint64_t length = 0;
  while (const size_t count = std::fread(block.data(), 1, block.size(), in.get())) {
    meanwhile();
    XXH3_128bits_update(state_.get(), block.data(), count);
    length += count;
  }
  if (std::ferror(in.get())) throw UserError("{} cannot be read: {}", file.string(), std::strerror(errno));
  XXH3_128bits_update(state_.get(), &length, sizeof length);
  return *this;
}

std::string ContentKey::text() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(state_.get());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

}  // namespace fettle
