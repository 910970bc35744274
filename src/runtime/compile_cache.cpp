#include "runtime/compile_cache.h"

#include <unistd.h>
#include <xxhash.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>

#include "base/cache.h"
#include "base/error.h"
#include "base/log.h"
#include "base/process_name.h"
#include "runtime/vendors/vendor.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;

constexpr char kMagic[8] = {'f', 'e', 't', 't', 'l', 'e', 'P', '1'};

struct Header {
  char magic[8];
  uint64_t bytes;
  uint64_t checksum;  // xxh3 of the program
};

// The instruction sets of this machine: compiled CPU programs use all of them.
std::string cpu_features() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("flags") || line.starts_with("Features")) return line;
  }
  return "";
}

std::optional<std::string> read_entry(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  Header header;
  if (!file.read(reinterpret_cast<char*>(&header), sizeof header)) return std::nullopt;
  const std::string program{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0 || header.bytes != program.size() ||
      header.checksum != XXH3_64bits(program.data(), program.size())) {
    return std::nullopt;
  }
  return program;
}

// False when the folder or the disk does not take it.
bool write_entry(const fs::path& path, const std::string& program) {
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  const fs::path partial = fmt::format("{}.{}.partial", path.string(), ProcessName::own().text());
  Header header{{}, program.size(), XXH3_64bits(program.data(), program.size())};
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

}  // namespace

CompileCache::CompileCache(fs::path folder) : folder_(std::move(folder)) {}

fs::path CompileCache::file_of(const Client& client, const std::string& module_text,
                               const CompileOptions& options) const {
  ContentKey key;
  key.add(client.plugin().content_hash()).add(client.platform_version());
  key.add(client.encoded_options(options)).add(module_text);
  for (const DeviceInfo& device : client.devices()) key.add(device.kind);
  const char* flags = std::getenv("XLA_FLAGS");
  key.add(flags == nullptr ? "" : flags);
  if (client.plugin().vendor().staging == Staging::kHostMemory) key.add(cpu_features());
  return folder_ / (key.text() + ".pjrt");
}

Executable CompileCache::compile(const Client& client, const std::string& module_text, Signature signature,
                                 const CompileOptions& options) {
  const fs::path path = file_of(client, module_text, options);
  if (const std::optional<std::string> stored = read_entry(path)) {
    try {
      Executable loaded = client.load(*stored, signature);
      ++hits_;
      return loaded;
    } catch (const DeviceError& error) {
      debug("compile cache: {} does not load, compiling anew: {}", path.string(), error.what());
    }
  }
  ++misses_;
  Executable compiled = client.compile(module_text, std::move(signature), options);
  try {
    if (!write_entry(path, compiled.program().serialize())) {
      warn("compile cache: {} cannot be written, the program is not kept", path.string());
    }
  } catch (const DeviceError& error) {
    debug("compile cache: plugin {} does not serialize: {}", client.plugin().name(), error.what());
  }
  return compiled;
}

}  // namespace fettle
