#include "checkpoint/saved/state.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>

#include "base/arrays/box_copy.h"
#include "base/error.h"
#include "base/files/file_error.h"
#include "base/files/json_file.h"
#include "base/parallel.h"

namespace fettle {
namespace fs = std::filesystem;
namespace {

using Json = nlohmann::json;
constexpr std::string_view kFormat = "fettle-state";
constexpr int kVersion = 1;
constexpr int64_t kFileBytes = int64_t{4} << 30;  // largest file size; a shard that does not fit starts a new file
constexpr int64_t kAlignment = 64;
const char* const kManifest = "manifest.json";

// Returns a checksum of the manifest without its checksum field (keys sorted, no spaces). It detects changes in the
// manifest.
std::string manifest_checksum(Json manifest) {
  manifest.erase("checksum");
  const std::string text = manifest.dump();
  return xxh3_128(std::as_bytes(std::span(text)));
}

std::string shard_file(int part, size_t index) {
  return part == 0 ? fmt::format("shards-{:05d}.bin", index + 1)
                   : fmt::format("shards-{:05d}-{:05d}.bin", part, index + 1);
}

std::string part_file(int part) {
  return fmt::format("part-{:05d}.json", part);
}

template <typename Shard>
bool covers_exactly(const Dims& dims, const std::vector<Shard>& shards) {
  int64_t elements = 0;
  for (size_t i = 0; i < shards.size(); ++i) {
    elements += shards[i].box.elements();
    for (size_t j = 0; j < i; ++j)
      if (intersect(shards[i].box, shards[j].box).elements() > 0) return false;
  }
  return elements == product(dims);
}

[[noreturn]] void refuse_state(const fs::path& file, const std::string& what) {
  throw DamagedState("{}: {}; the checkpoint is damaged", file.string(), what);
}

// Turns errors of reading a checkpoint into DamagedState.
template <typename Read>
auto reading(Read read) {
  try {
    return read();
  } catch (const UserError& error) {
    throw DamagedState("{}; the checkpoint is damaged", error.what());
  }
}

Shape read_shape(const std::string& name, const Json& row) {
  Shape shape{dtype_from_safetensors(row.at("dtype").get<std::string>()), row.at("shape").get<Dims>()};
  int64_t bytes = byte_size(shape.dtype);
  for (int64_t d : shape.dims)
    if (d < 0 || __builtin_mul_overflow(bytes, d, &bytes))
      throw UserError("the tensor '{}' of the checkpoint has the shape {}, which is not possible", name,
                      shape.to_string());
  return shape;
}

}  // namespace

std::string xxh3_128(std::span<const std::byte> bytes) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(bytes.data(), bytes.size()));
  std::string text;
  for (unsigned char byte : canonical.digest) text += fmt::format("{:02x}", byte);
  return text;
}

bool has_state_files(const fs::path& folder) {
  std::error_code code;
  for (fs::directory_iterator it(folder, code), end; !code && it != end; it.increment(code))
    if (const std::string name = it->path().filename().string(); name == kManifest || name.starts_with("shards-"))
      return true;
  return false;
}

StateWriter::StateWriter(fs::path folder, int part) : folder_(std::move(folder)), part_(part) {
  std::error_code code;
  fs::create_directories(folder_, code);
  if (code) throw_file_error("create", folder_, code.value());
}

void StateWriter::next_file() {
  if (file_) file_->finish();
  file_.reset();
  files_.push_back({shard_file(part_, files_.size()), 0});
  file_.emplace(folder_ / files_.back().name);
}

void StateWriter::add(const std::string& name, const Shape& global, const Box& box, std::span<const std::byte> bytes) {
  const int64_t count = static_cast<int64_t>(bytes.size());
  internal_check(is_inside(box, global.dims), "StateWriter::add: {} of '{}' is not inside {}", box.to_string(), name,
                 global.to_string());
  internal_check(count == box.elements() * byte_size(global.dtype), "StateWriter::add: {} bytes for {} of '{}' {}",
                 count, box.to_string(), name, global.to_string());
  Tensor& tensor = tensors_.try_emplace(name, Tensor{global, {}}).first->second;
  internal_check(tensor.shape == global, "StateWriter::add: '{}' is {} and {}", name, tensor.shape.to_string(),
                 global.to_string());
  if (!file_ || (files_.back().bytes > 0 && files_.back().bytes + count > kFileBytes)) next_file();
  int64_t& end = files_.back().bytes;
  const int64_t offset = (end + kAlignment - 1) / kAlignment * kAlignment;
  file_->write(offset, bytes);
  if (count > 0) end = offset + count;
  tensor.shards.push_back({box, files_.size() - 1, count > 0 ? offset : 0, xxh3_128(bytes)});
}

void StateWriter::add(const std::string& name, const HostArray& array) {
  add(name, array.shape(), Box::whole(array.shape().dims), {array.data(), static_cast<size_t>(array.bytes())});
}

Json StateWriter::contents() const {
  Json tensors = Json::object();
  for (const auto& [name, tensor] : tensors_) {
    Json shards = Json::array();
    for (const Shard& shard : tensor.shards)
      shards.push_back({{"start", shard.box.start},
                        {"size", shard.box.size},
                        {"file", shard.file},
                        {"offset", shard.offset},
                        {"xxh3_128", shard.checksum}});
    tensors[name] = {
        {"dtype", safetensors_name(tensor.shape.dtype)}, {"shape", tensor.shape.dims}, {"shards", std::move(shards)}};
  }
  Json files = Json::array();
  for (const File& file : files_) files.push_back({{"name", file.name}, {"bytes", file.bytes}});
  return {{"files", std::move(files)}, {"tensors", std::move(tensors)}};
}

void StateWriter::finish_part() {
  if (file_) file_->finish();
  write_json_file(folder_ / part_file(part_), contents());
}

void StateWriter::add_part(const Json& given) {
  const size_t first = files_.size();
  for (const Json& file : given.at("files"))
    files_.push_back({file.at("name").get<std::string>(), file.at("bytes").get<int64_t>()});
  for (const auto& [name, row] : given.at("tensors").items()) {
    Tensor& tensor = tensors_.try_emplace(name, Tensor{read_shape(name, row), {}}).first->second;
    for (const Json& shard : row.at("shards"))
      tensor.shards.push_back({{shard.at("start").get<Dims>(), shard.at("size").get<Dims>()},
                               first + shard.at("file").get<size_t>(),
                               shard.at("offset").get<int64_t>(),
                               shard.at("xxh3_128").get<std::string>()});
  }
}

void StateWriter::add_parts(int count) {
  for (int part = 1; part < count; ++part) {
    const fs::path path = folder_ / part_file(part);
    try {
      add_part(read_json_file(path));
    } catch (const Json::exception& error) {
      refuse_state(path, fmt::format("not the list of the shards of part {} ({})", part, error.what()));
    }
    std::error_code ignored;
    fs::remove(path, ignored);
  }
}

void StateWriter::finish(const Json& meta) {
  if (file_) file_->finish();
  for (const auto& [name, tensor] : tensors_)
    internal_check(covers_exactly(tensor.shape.dims, tensor.shards),
                   "StateWriter::finish: the shards of '{}' {} overlap or leave holes", name, tensor.shape.to_string());
  Json manifest = contents();
  manifest["format"] = kFormat;
  manifest["version"] = kVersion;
  manifest["meta"] = meta;
  manifest["checksum"] = manifest_checksum(manifest);
  write_json_file(folder_ / kManifest, manifest);
}

StateReader::StateReader(const fs::path& folder) : folder_(folder) {
  const fs::path path = folder_ / kManifest;
  const Json manifest = reading([&] { return read_json_file(path); });
  try {
    read_manifest(manifest, path);
  } catch (const Json::exception& error) {
    refuse_state(path, fmt::format("not a manifest of Fettle's state ({})", error.what()));
  }
}

void StateReader::read_manifest(const Json& manifest, const fs::path& path) {
  if (!manifest.is_object() || manifest.value("format", "") != kFormat)
    refuse_state(path, "not a manifest of Fettle's state");
  if (manifest.at("version") != kVersion)
    throw UserError("{}: its version is {}, but this Fettle reads version {}; resume with the Fettle that wrote it",
                    path.string(), manifest.at("version").dump(), kVersion);
  if (manifest.at("checksum") != manifest_checksum(manifest))
    refuse_state(path, "its content does not match its checksum");
  meta_ = manifest.at("meta");
  for (const Json& row : manifest.at("files")) {
    const fs::path file = folder_ / row.at("name").get<std::string>();
    files_.push_back(reading([&] { return MappedFile(file); }));
    const int64_t wanted = row.at("bytes").get<int64_t>();
    const int64_t found = static_cast<int64_t>(files_.back().bytes().size());
    if (found != wanted) refuse_state(file, fmt::format("has {} bytes, but the manifest says {}", found, wanted));
  }
  for (const auto& [name, row] : manifest.at("tensors").items()) {
    Tensor tensor{read_shape(name, row), {}};
    for (const Json& s : row.at("shards")) {
      Shard shard{{s.at("start").get<Dims>(), s.at("size").get<Dims>()},
                  s.at("file").get<size_t>(),
                  s.at("offset").get<int64_t>(),
                  0,
                  s.at("xxh3_128").get<std::string>()};
      if (!is_inside(shard.box, tensor.shape.dims) || shard.file >= files_.size())
        refuse_state(path, fmt::format("a shard of '{}' is out of range", name));
      shard.bytes = shard.box.elements() * byte_size(tensor.shape.dtype);
      const int64_t size = static_cast<int64_t>(files_[shard.file].bytes().size());
      if (shard.offset < 0 || shard.bytes > size || shard.offset > size - shard.bytes)
        refuse_state(path, fmt::format("a shard of '{}' lies outside {}", name, files_[shard.file].path().string()));
      tensor.shards.push_back(std::move(shard));
    }
    if (!covers_exactly(tensor.shape.dims, tensor.shards))
      refuse_state(path, fmt::format("the shards of '{}' overlap or leave holes", name));
    tensors_.emplace(name, std::move(tensor));
  }
}

std::vector<std::string> StateReader::names() const {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors_) names.push_back(name);
  return names;
}

const StateReader::Tensor& StateReader::tensor(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end())
    throw UserError(
        "{}: it has no tensor '{}', so it belongs to another model or recipe; resume with the recipe that "
        "wrote it",
        (folder_ / kManifest).string(), name);
  return found->second;
}

StateReader::Tensor& StateReader::tensor(const std::string& name) {
  return const_cast<Tensor&>(std::as_const(*this).tensor(name));
}

const Shape& StateReader::shape(const std::string& name) const {
  return tensor(name).shape;
}

void StateReader::verify(const std::string& name, Shard& shard) {
  if (shard.verified) return;
  const MappedFile& file = files_[shard.file];
  const std::span<const std::byte> bytes =
      file.bytes().subspan(static_cast<size_t>(shard.offset), static_cast<size_t>(shard.bytes));
  const std::string found = xxh3_128(bytes);
  reading([&] { return file.check(), 0; });
  if (found != shard.checksum)
    refuse_state(file.path(), fmt::format("the {} bytes at offset {} ({} of '{}') do not match their checksum",
                                          shard.bytes, shard.offset, shard.box.to_string(), name));
  shard.verified = true;
}

void StateReader::verify(const std::string& name, const Box& box) {
  std::vector<Shard>& shards = tensor(name).shards;
  parallel_for(static_cast<int64_t>(shards.size()), copy_threads(), [&](int64_t i) {
    Shard& shard = shards[static_cast<size_t>(i)];
    if (intersect(box, shard.box).elements() > 0) verify(name, shard);
  });
}

void StateReader::verify() {
  for (const auto& [name, tensor] : tensors_) {
    verify(name, Box::whole(tensor.shape.dims));
    release(name);
  }
}

void StateReader::read_slice(const std::string& name, const Box& box, std::byte* out) {
  Tensor& tensor = this->tensor(name);
  internal_check(is_inside(box, tensor.shape.dims), "StateReader::read_slice: {} of '{}' is not inside {}",
                 box.to_string(), name, tensor.shape.to_string());
  for (Shard& shard : tensor.shards) {
    if (intersect(box, shard.box).elements() == 0) continue;
    verify(name, shard);
    const MappedFile& file = files_[shard.file];
    copy_common(shard.box, file.bytes().data() + shard.offset, box, out, byte_size(tensor.shape.dtype));
    file.check();
  }
}

HostArray StateReader::read(const std::string& name) {
  HostArray array(shape(name));
  read_slice(name, Box::whole(array.shape().dims), array.data());
  return array;
}

void StateReader::release(const std::string& name) {
  for (const Shard& shard : tensor(name).shards) files_[shard.file].release(shard.offset, shard.bytes);
}

}  // namespace fettle
