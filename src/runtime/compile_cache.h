// Defines CompileCache, which keeps compiled programs in a folder between runs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "runtime/client.h"

namespace fettle {

// Returns a text that identifies the devices. The file names of compiled programs and of check results contain the text
// in hashed form. The text depends on the plugin file's content and version, and on the number and kind of devices.
// For CPU devices, it also depends on the instruction sets of the host's CPU.
std::string devices_identity(const Client& client);

// Stores each program in a file. The file's name is a hash of devices_identity(), the encoded options, the module text,
// $XLA_FLAGS, the process index of each device, and the variables that set the number of a CPU plugin's threads,
// because the compiler divides the work by this number. devices_identity() includes the instruction sets of a CPU,
// because a program for another CPU would load and then crash. The process indices are included because a compiler may
// treat devices of one process differently from devices of several processes. The file contains a checksum of the
// program. The file is written under a temporary name and then renamed. If the file is damaged or truncated, or has
// another format, the program is compiled again. If the folder cannot be written, the cache only warns. Several
// processes may share a folder.
//
// GPU plugins tune programs: they measure several variants of a matrix product on the device. The folder "tuning" keeps
// these results in subfolders, one for each combination of devices and $XLA_FLAGS. So another program with the same
// product compiles faster and takes the same variant. The file name of a program does not depend on the tuning results.
// The size of "tuning" is not limited; it has a few KB for each product.
//
// Programs are code that runs in this process. So the cache creates folders that only this user may enter. The cache
// does not load a file that another user could have changed; it warns and names the file and the remedy.
class CompileCache {
 public:
  // After a program is stored, the least recently used other programs are removed until all files have at most `limit`
  // bytes together.
  explicit CompileCache(std::filesystem::path folder, int64_t limit = default_limit());

  // Returns $FETTLE_COMPILE_CACHE_GB in bytes, or 10 GB if the variable is not set. "0" means no limit. Throws
  // UserError when the value is not a number from 0 to 1e9.
  static int64_t default_limit();

  // Loads the program if it is stored. Otherwise compiles and stores it.
  Executable compile(const Client& client, const std::string& module_text, Signature signature,
                     const CompileOptions& options = {});
  // The two halves of compile(). load() returns nullopt when no file has the program, or when the file is not trusted
  // or does not load. compile_again() always compiles the program, and stores it.
  std::optional<Executable> load(const Client& client, const std::string& module_text, const Signature& signature,
                                 const CompileOptions& options = {});
  Executable compile_again(const Client& client, const std::string& module_text, Signature signature,
                           const CompileOptions& options = {});
  // Returns the compiler's count of a stored program's memory. Returns nullopt when no file has the program, or when
  // the file is not trusted.
  std::optional<MemoryStats> memory_stats(const Client& client, const std::string& module_text,
                                          const CompileOptions& options = {}) const;
  int hits() const { return hits_; }
  // Returns the path of this program's file, which may not exist.
  std::filesystem::path file_of(const Client& client, const std::string& module_text,
                                const CompileOptions& options) const;

 private:
  void make_room(const std::filesystem::path& newest) const;

  std::filesystem::path folder_;
  int64_t limit_;
  int hits_ = 0;
};

}  // namespace fettle
