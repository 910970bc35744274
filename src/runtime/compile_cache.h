// Defines CompileCache, which keeps compiled programs in a folder between runs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "runtime/client.h"

namespace fettle {

// Returns a text that identifies the devices, for the file names of compiled programs and of check results: the plugin
// file's content and version, the number and kind of devices, and on CPUs the instruction sets of this machine.
std::string devices_identity(const Client& client);

// Each program has a file. The file's name is a hash of devices_identity(), the encoded options, the module text,
// $XLA_FLAGS, and the process of each device. devices_identity() includes the instruction sets of a CPU, because a
// program for another CPU would load and then crash. A compiler may treat devices of one process differently from
// devices of several. A file contains a checksum of the program. The file is written under a temporary name and then
// renamed. If the file is damaged or truncated, or has another format, the program is compiled again. A folder that
// cannot be written only causes a warning. Several processes may share a folder.
//
// GPU plugins tune programs: they measure several variants of a matrix product on the device. A folder in "tuning"
// keeps these results for the devices and $XLA_FLAGS, so that another program with the same product compiles faster and
// takes the same variant. It is not part of a file's name, and its size is not limited: it has some KB for a product.
//
// Programs are code that runs in this process. So the cache creates folders that only this user may enter. It does not
// load a file that another user could have changed; a warning then names the file and the remedy.
class CompileCache {
 public:
  // After a program is stored, the least recently used other programs are removed until all files have at most `limit`
  // bytes together.
  explicit CompileCache(std::filesystem::path folder, int64_t limit = default_limit());

  // Returns $FETTLE_COMPILE_CACHE_GB in bytes, and 10 GB if it is not set; "0" means no limit. Throws UserError when it
  // is not a number from 0 to 1e9.
  static int64_t default_limit();

  // Loads the program, or compiles and stores it.
  Executable compile(const Client& client, const std::string& module_text, Signature signature,
                     const CompileOptions& options = {});
  // The two halves of compile(). load() returns nullopt when the program is not stored, is not trusted or does not
  // load. compile_again() always compiles, and stores the program.
  std::optional<Executable> load(const Client& client, const std::string& module_text, const Signature& signature,
                                 const CompileOptions& options = {});
  Executable compile_again(const Client& client, const std::string& module_text, Signature signature,
                           const CompileOptions& options = {});
  // Returns the compiler's count of a stored program's memory; nullopt when the program is not stored or not trusted.
  std::optional<MemoryStats> memory_stats(const Client& client, const std::string& module_text,
                                          const CompileOptions& options = {}) const;
  int hits() const { return hits_; }
  // Returns the file in which this program is stored, or would be stored.
  std::filesystem::path file_of(const Client& client, const std::string& module_text,
                                const CompileOptions& options) const;

 private:
  void make_room(const std::filesystem::path& newest) const;

  std::filesystem::path folder_;
  int64_t limit_;
  int hits_ = 0;
};

}  // namespace fettle
