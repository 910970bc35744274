// Defines cache_folder, where what can be made anew is kept between runs, and ContentKey, by which it is found.
#pragma once

#include <xxhash.h>

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

namespace fettle {

// $FETTLE_CACHE/`kind`, else ~/.cache/fettle/`kind`.
std::filesystem::path cache_folder(std::string_view kind);

// XXH3 (128 bits) of fields, each with its length, so that two lists of fields never run together.
class ContentKey {
 public:
  ContentKey();
  ContentKey& add(std::string_view field);
  ContentKey& add_file(const std::filesystem::path& file);  // its bytes; throws UserError when it cannot be read
  std::string text() const;                                 // 32 hexadecimal digits

 private:
  std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state_;
};

}  // namespace fettle
