#include "runtime/compile_cache.h"

#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <optional>
#include <vector>

#include "base/environment.h"
#include "base/error.h"
#include "base/files/cache.h"
#include "base/files/private_files.h"
#include "base/log.h"
#include "base/process_name.h"
#include "base/size_text.h"
#include "runtime/vendors/vendor.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;

constexpr char kMagic[8] = {'f', 'e', 't', 't', 'l', 'e', 'P', '2'};

struct Header {
  char magic[8];
  uint64_t bytes;
  uint64_t checksum;  // xxh3 of the program
  MemoryStats stats;  // the memory that the program needs, as the compiler counts it
};
static_assert(std::is_trivially_copyable_v<MemoryStats>);

struct Entry {
  std::string program;
  MemoryStats stats;
};

// Returns the instruction sets of the host's CPU. Compiled CPU programs use all of them.
std::string cpu_features() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("flags") || line.starts_with("Features")) return line;
  }
  return "";
}

std::optional<Entry> read_entry(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  Header header;
  if (!file.read(reinterpret_cast<char*>(&header), sizeof header)) return std::nullopt;
  std::string program{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0 || header.bytes != program.size() ||
      header.checksum != XXH3_64bits(program.data(), program.size())) {
    return std::nullopt;
  }
  return Entry{std::move(program), header.stats};
}

// Writes the file of a program. Returns false when it cannot be written.
bool write_entry(const fs::path& path, const Entry& entry) {
  const std::string& program = entry.program;
  std::error_code error;
  if (!make_private_folder(path.parent_path())) return false;
  const fs::path partial = fmt::format("{}.{}.partial", path.string(), process_name());
  Header header{{}, program.size(), XXH3_64bits(program.data(), program.size()), entry.stats};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  std::ofstream file(partial, std::ios::binary | std::ios::trunc);
  file.write(reinterpret_cast<const char*>(&header), sizeof header);
  file.write(program.data(), static_cast<std::streamsize>(program.size()));
  file.close();
  if (file) fs::rename(partial, path, error);
  const bool stored = file && !error;
  if (!stored) fs::remove(partial, error);
  return stored;
}

// Returns `options` with the flag for the folder of tuning results. The folder's name is a hash that includes
// $XLA_FLAGS, because some flags turn tuning off or exclude variants. If the user has set a folder in $XLA_FLAGS, the
// options stay unchanged. The options also stay unchanged in a run of several processes, because the processes share
// the work of tuning and would all need the same stored results.
CompileOptions with_tuning_folder(const CompileOptions& options, const Client& client, const fs::path& cache) {
  const std::string flag(client.plugin().vendor().tuning_flag);
  if (flag.empty() || client.local_count() < static_cast<int>(client.devices().size())) return options;
  if (environment("XLA_FLAGS").find(flag) != std::string::npos) return options;
  const fs::path folder =
      cache / "tuning" / ContentKey().add(devices_identity(client)).add(environment("XLA_FLAGS")).text();
  if (!make_private_folder(folder) || !distrust(folder).empty()) return options;
  CompileOptions out = options;
  out.env.emplace(flag, folder.string());
  return out;
}

}  // namespace

std::string devices_identity(const Client& client) {
  ContentKey key;
  key.add(client.plugin().content_hash()).add(client.platform_version());
  for (const DeviceInfo& device : client.devices()) key.add(device.kind);
  if (client.plugin().vendor().staging == Staging::kHostMemory) key.add(cpu_features());
  return key.text();
}

CompileCache::CompileCache(fs::path folder, int64_t limit) : folder_(std::move(folder)), limit_(limit) {}

int64_t CompileCache::default_limit() {
  constexpr double kDefault = 10, kMost = 1e9;
  const std::string text = environment("FETTLE_COMPILE_CACHE_GB");
  if (text.empty()) return static_cast<int64_t>(kDefault * 1e9);
  char* end = nullptr;
  const double gigabytes = std::strtod(text.c_str(), &end);
  if (*end != '\0' || !(gigabytes >= 0 && gigabytes <= kMost)) {
    throw UserError("FETTLE_COMPILE_CACHE_GB is '{}', wanted a number of GB, such as 10 (0: no limit)", text);
  }
  return gigabytes == 0 ? std::numeric_limits<int64_t>::max() : static_cast<int64_t>(gigabytes * 1e9);
}

// Removes programs, least recently used first, until the remaining ones fit into the limit. Keeps `newest`, which is in
// use.
void CompileCache::make_room(const fs::path& newest) const {
  struct Kept {
    fs::file_time_type used;
    int64_t bytes;
    fs::path path;
  };
  std::vector<Kept> entries;
  int64_t total = 0;
  std::error_code error;
  for (const auto& file : fs::directory_iterator(folder_, error)) {
    // Skips files that cannot be read: another process may have just removed them.
    const auto used = file.last_write_time(error);
    const auto bytes = error ? 0 : static_cast<int64_t>(file.file_size(error));
    if (error) continue;
    const bool partial = file.path().extension() == ".partial";
    if (partial && fs::file_time_type::clock::now() - used > std::chrono::hours(24)) {
      fs::remove(file.path(), error);  // an unfinished file of a stopped process
    } else if (partial || file.path().extension() == ".pjrt") {
      total += bytes;
      if (!partial && file.path() != newest) entries.push_back({used, bytes, file.path()});
    }
  }
  std::ranges::sort(entries, {}, &Kept::used);
  for (size_t i = 0; i < entries.size() && total > limit_; ++i) {
    fs::remove(entries[i].path, error);
    total -= entries[i].bytes;
    debug("compile cache: {} removed to stay below {}", entries[i].path.string(), size_text(limit_));
  }
}

fs::path CompileCache::file_of(const Client& client, const std::string& module_text,
                               const CompileOptions& options) const {
  ContentKey key;
  key.add(devices_identity(client)).add(client.encoded_options(options)).add(module_text);
  key.add(environment("XLA_FLAGS"));
  for (const DeviceInfo& device : client.devices()) key.add(std::to_string(device.process_index));
  for (const std::string_view name : client.plugin().vendor().thread_variables)
    key.add(environment(std::string(name).c_str()));
  return folder_ / (key.text() + ".pjrt");
}

std::optional<MemoryStats> CompileCache::memory_stats(const Client& client, const std::string& module_text,
                                                      const CompileOptions& options) const {
  const fs::path path = file_of(client, module_text, options);
  if (!distrust(path).empty()) return std::nullopt;
  const std::optional<Entry> stored = read_entry(path);
  return stored ? std::optional(stored->stats) : std::nullopt;
}

Executable CompileCache::compile(const Client& client, const std::string& module_text, Signature signature,
                                 const CompileOptions& options) {
  if (std::optional<Executable> loaded = load(client, module_text, signature, options)) return std::move(*loaded);
  return compile_again(client, module_text, std::move(signature), options);
}

std::optional<Executable> CompileCache::load(const Client& client, const std::string& module_text,
                                             const Signature& signature, const CompileOptions& options) {
  const fs::path path = file_of(client, module_text, options);
  const std::string distrusted = distrust(path);
  if (!distrusted.empty()) warn("compile cache: the stored program is not used: {}", distrusted);
  if (const std::optional<Entry> stored = distrusted.empty() ? read_entry(path) : std::nullopt) {
    try {
      Executable loaded = client.load(stored->program, signature);
      loaded.set_memory_stats(stored->stats);
      ++hits_;
      std::error_code ignored;
      fs::last_write_time(path, fs::file_time_type::clock::now(), ignored);  // the time of the last use
      return loaded;
    } catch (const DeviceError& error) {
      debug("compile cache: {} does not load, so the program is compiled again: {}", path.string(), error.what());
    }
  }
  return std::nullopt;
}

Executable CompileCache::compile_again(const Client& client, const std::string& module_text, Signature signature,
                                       const CompileOptions& options) {
  const fs::path path = file_of(client, module_text, options);
  Executable compiled = client.compile(module_text, std::move(signature), with_tuning_folder(options, client, folder_));
  try {
    if (write_entry(path, {compiled.program().serialize(), compiled.memory_stats()})) {
      make_room(path);
    } else {
      warn("compile cache: {} cannot be written, so the program is not kept", path.string());
    }
  } catch (const DeviceError& error) {
    debug("compile cache: plugin {} cannot serialize programs: {}", client.plugin().name(), error.what());
  }
  return compiled;
}

}  // namespace fettle
