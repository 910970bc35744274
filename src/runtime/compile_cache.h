// Defines CompileCache: compiled programs kept in a folder between runs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "runtime/client.h"

namespace fettle {

// One file a program. The key covers the plugin file's content, the encoded options, the module text, the number and
// kind of devices, and on CPUs the instruction sets of this machine (a program for another CPU loads and then crashes).
// A file is written beside its name and renamed, and carries a checksum: a damaged, truncated or foreign file is
// compiled anew. A folder that cannot be written is not an error (a warning is logged). Several processes may share a
// folder.
//
// Programs are code that runs in this process. So folders are made for this user alone, and a file that another user
// could have changed is not loaded (a warning names it and the remedy).
class CompileCache {
 public:
  // The files together take at most `limit` bytes: storing a program removes those that were used the longest ago.
  explicit CompileCache(std::filesystem::path folder, int64_t limit = default_limit());

  // $FETTLE_COMPILE_CACHE_GB, 10 GB without it; "0" means no limit. Throws UserError when it is not a number.
  static int64_t default_limit();

  // Loads the program, or compiles and stores it.
  Executable compile(const Client& client, const std::string& module_text, Signature signature,
                     const CompileOptions& options = {});
  int hits() const { return hits_; }
  int misses() const { return misses_; }
  // The file this program has or would have.
  std::filesystem::path file_of(const Client& client, const std::string& module_text,
                                const CompileOptions& options) const;

 private:
  void make_room(const std::filesystem::path& newest) const;

  std::filesystem::path folder_;
  int64_t limit_;
  int hits_ = 0;
  int misses_ = 0;
};

}  // namespace fettle
