// Defines StateWriter and StateReader: the training state of checkpoint-N/state/. It is exact to the bit and does not
// depend on the mesh.
//
// Several processes may write parts of one state; each writes the boxes (rectangular parts of arrays) that it owns.
//
// manifest.json names each tensor's global shape and its shards (box, file, offset, XXH3-128). shards-*.bin contain
// their bytes, dense and row-major. A reader can read any box, not only the boxes that were written.
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/arrays/box.h"
#include "base/arrays/host_array.h"
#include "base/error.h"
#include "base/files/mapped_file.h"
#include "base/files/output_file.h"

namespace fettle {

// Thrown when the bytes differ from those that were written, because a file is truncated, missing or changed. The
// message names the file and the fault.
class DamagedState : public UserError {
  using UserError::UserError;
};

// Returns the XXH3-128 hash of the bytes as 32 hexadecimal digits.
std::string xxh3_128(std::span<const std::byte> bytes);

// Returns whether the folder has a file that StateWriter writes: a manifest or shards. They may be damaged.
bool has_state_files(const std::filesystem::path& folder);

class StateWriter {
 public:
  // Creates the folder. `part` is the number of the process if several processes write this state. Throws UserError
  // when the folder is not writable.
  explicit StateWriter(std::filesystem::path folder, int part = 0);
  StateWriter(const StateWriter&) = delete;
  StateWriter& operator=(const StateWriter&) = delete;

  // Appends the shard `box` of tensor `name`: box.elements() elements, dense. Shards of a tensor must not overlap.
  void add(const std::string& name, const Shape& global, const Box& box, std::span<const std::byte> bytes);
  void add(const std::string& name, const HostArray& array);  // appends the whole tensor
  // Writes the manifest with `meta` (step, seed, data position, fingerprints, ...) and flushes. Throws InternalError
  // when a tensor's shards do not cover it exactly.
  void finish(const nlohmann::json& meta);
  // Writes the list of this part's shards, which add_parts() of part 0 reads. Call it instead of finish() in parts
  // other than 0.
  void finish_part();
  // Adds the shards of parts 1 to count - 1, which must be finished. Throws UserError when a part is missing.
  void add_parts(int count);

 private:
  struct Shard {
    Box box;
    size_t file;
    int64_t offset;
    std::string checksum;
  };
  struct Tensor {
    Shape shape;
    std::vector<Shard> shards;
  };
  struct File {
    std::string name;
    int64_t bytes;
  };
  void next_file();
  void add_part(const nlohmann::json& given);
  nlohmann::json contents() const;

  std::filesystem::path folder_;
  int part_;
  std::map<std::string, Tensor> tensors_;
  std::vector<File> files_;
  std::optional<OutputFile> file_;
};

// Move-only.
class StateReader {
 public:
  // Reads and checks the manifest and the files' sizes. Throws DamagedState, or UserError for a state of another
  // version.
  explicit StateReader(const std::filesystem::path& folder);

  const std::filesystem::path& folder() const { return folder_; }
  const nlohmann::json& meta() const { return meta_; }
  std::vector<std::string> names() const;  // sorted
  bool contains(const std::string& name) const { return tensors_.count(name) != 0; }
  // Throws UserError when there is no such tensor.
  const Shape& shape(const std::string& name) const;
  // Verifies the checksums of the shards that overlap the box; verifies each shard at most once. Throws DamagedState.
  void verify(const std::string& name, const Box& box);
  void verify();  // verifies all shards of all tensors
  // Copies the box, dense, to `out`. Verifies the shards first. Throws InternalError when the box is not inside the
  // tensor. Several threads may call it for boxes that were verified before.
  void read_slice(const std::string& name, const Box& box, std::byte* out);
  HostArray read(const std::string& name);
  // Lets the system free the memory that holds the tensor's mapped bytes.
  void release(const std::string& name);

 private:
  struct Shard {
    Box box;
    size_t file;
    int64_t offset, bytes;
    std::string checksum;
    bool verified = false;
  };
  struct Tensor {
    Shape shape;
    std::vector<Shard> shards;
  };
  const Tensor& tensor(const std::string& name) const;
  Tensor& tensor(const std::string& name);
  void read_manifest(const nlohmann::json& manifest, const std::filesystem::path& path);
  void verify(const std::string& name, Shard& shard);

  std::filesystem::path folder_;
  nlohmann::json meta_;
  std::vector<MappedFile> files_;
  std::map<std::string, Tensor> tensors_;
};

}  // namespace fettle
