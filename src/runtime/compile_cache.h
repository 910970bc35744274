// Defines CompileCache: compiled programs kept in a folder between runs.
#pragma once

#include <filesystem>
#include <string>

#include "runtime/client.h"

namespace fettle {

// One file a program. The key covers the plugin file's content, the encoded options, the module text, the number and
// kind of devices, and on CPUs the instruction sets of this machine (a program for another CPU loads and then crashes).
// A file is written beside its name and renamed, and carries a checksum: a damaged, truncated or foreign file is
// compiled anew. A folder that cannot be written is not an error (a warning is logged). Several processes may share a
// folder.
class CompileCache {
 public:
  explicit CompileCache(std::filesystem::path folder);

  // Loads the program, or compiles and stores it.
  Executable compile(const Client& client, const std::string& module_text, Signature signature,
                     const CompileOptions& options = {});
  int hits() const { return hits_; }
  int misses() const { return misses_; }
  // The file this program has or would have.
  std::filesystem::path file_of(const Client& client, const std::string& module_text,
                                const CompileOptions& options) const;

 private:
  std::filesystem::path folder_;
  int hits_ = 0;
  int misses_ = 0;
};

}  // namespace fettle
