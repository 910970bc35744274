#include "train/checkpoints/base_digest.h"

#include <algorithm>
#include <set>

#include "base/files/cache.h"
#include "base/files/json_file.h"
#include "base/parallel.h"
#include "checkpoint/load.h"
#include "checkpoint/peft/adapter_files.h"
#include "checkpoint/saved/state.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

// A sample has blocks of kBlock bytes: at most kMostBlocks for a model or adapter, and at most kMostOfTensor for a
// tensor.
constexpr size_t kBlock = 4096, kMostBlocks = 8192, kMostOfTensor = 16;
constexpr const char* kNone = "none";

struct NamedTensor {
  std::string name;
  StoredTensor stored;
};

std::string digest(std::span<const std::byte> bytes, size_t blocks) {
  if (bytes.size() <= blocks * kBlock) return xxh3_128(bytes);
  std::vector<std::byte> sample;
  const size_t last = bytes.size() - kBlock;
  for (size_t i = 0; i < blocks; ++i) {
    const size_t at = blocks == 1 ? last / 2 : last / (blocks - 1) * i;
    sample.insert(sample.end(), bytes.begin() + static_cast<std::ptrdiff_t>(at),
                  bytes.begin() + static_cast<std::ptrdiff_t>(at + kBlock));
  }
  return xxh3_128(sample);
}

std::string digest(const StoredTensor& tensor, size_t blocks);

// Samples the stored tensors of evenly spaced experts. A sample of the joined array would be slow: all values of that
// array would have to be computed, and this would read the whole files.
std::string digest(const JoinedExperts& experts, size_t blocks) {
  const size_t each = static_cast<size_t>(experts.each), count = experts.entries.size() / each;
  const size_t sampled = std::clamp(blocks / each, size_t{1}, count);
  const size_t blocks_of_one = std::max(blocks / (sampled * each), size_t{1});
  ContentKey key;
  for (size_t i = 0; i < sampled; ++i)
    for (size_t part = 0; part < each; ++part) {
      const size_t at = i * count / sampled * each + part;
      key.add(digest(StoredTensor{experts.files[at], &experts.entries[at]}, blocks_of_one));
    }
  return key.text();
}

std::string digest(const StoredTensor& tensor, size_t blocks) {
  if (tensor.entry->joined_experts) return digest(*tensor.entry->joined_experts, blocks);
  const TensorFile& file = *tensor.file;
  std::string out;
  if (tensor.entry->dense_places()) {
    file.with_bytes(*tensor.entry, [&](std::span<const std::byte> bytes) { out = digest(bytes, blocks); });
  } else {
    const HostArray dense = file.read(*tensor.entry);
    out = digest({dense.data(), static_cast<size_t>(dense.bytes())}, blocks);
  }
  file.release(*tensor.entry);
  return out;
}

// Adds the tensors' names, shapes and dtypes, and a sample of their bytes. If there are kMostBlocks tensors or more,
// reads the bytes of every second (third, ...) tensor only.
void add(ContentKey& key, const std::vector<NamedTensor>& tensors) {
  const size_t step = tensors.size() / kMostBlocks + 1;
  const size_t blocks = std::clamp(kMostBlocks / std::max<size_t>(tensors.size(), 1), size_t{1}, kMostOfTensor);
  std::vector<std::string> sampled((tensors.size() + step - 1) / step);
  parallel_for(static_cast<int64_t>(sampled.size()), kReaders, [&](int64_t i) {
    sampled[static_cast<size_t>(i)] = digest(tensors[static_cast<size_t>(i) * step].stored, blocks);
  });
  for (const NamedTensor& tensor : tensors) key.add(tensor.name).add(tensor.stored.entry->shape.to_string());
  for (const std::string& one : sampled) key.add(one);
}

std::string digest(const std::vector<NamedTensor>& tensors) {
  if (tensors.empty()) return kNone;
  ContentKey key;
  add(key, tensors);
  return key.text();
}

// Returns the config without fields that are null or do not affect the computation. Also removes such fields from
// nested objects.
Json computing(const Json& config) {
  static const std::set<std::string> kOthers{"_name_or_path", "transformers_version", "architectures", "auto_map",
                                             "use_cache",     "torch_dtype",          "dtype",         "id2label",
                                             "label2id",      "num_labels",           "problem_type",  "bos_token_id",
                                             "eos_token_id",  "pad_token_id"};
  if (!config.is_object()) return config;
  Json out = Json::object();
  for (const auto& [key, value] : config.items())
    if (!value.is_null() && !kOthers.contains(key)) out[key] = computing(value);
  return out;
}

void add_names(std::set<std::string>& names, const Param& param) {
  for (int64_t i = 0; i < param.stored_count(); ++i) names.insert(param.stored_name(i));
}

// Returns the tensors with these names. Leaves out names that the repository lacks: these belong to a head whose
// weights are initialised instead of read.
std::vector<NamedTensor> found(const ModelRepository& repository, const std::set<std::string>& names) {
  std::vector<NamedTensor> out;
  for (const std::string& name : names)
    if (repository.contains(name)) out.push_back({name, repository.find(name)});
  return out;
}

// Returns the base's tensors that the run reads and does not save in its checkpoint.
std::vector<NamedTensor> kept_of_base(const Run& run, const ModelRepository& repository) {
  if (run.from_scratch) return {};
  std::set<std::string> names;
  for (const Param& param : run.frozen)
    if (param.role != Role::kQuantisedParts && !run.keeps(param)) add_names(names, param);
  if (run.reference.folder.empty() && run.adapter.folder.empty())
    for (const Param& param : run.reference.params)
      if (!param.is_lora()) add_names(names, param);
  std::set<std::string> quantised;
  for (const QuantisedWeight& weight : run.quantised) add_names(quantised, weight.base);
  for (const std::string& name : quantised) {
    names.insert(name);
    // Adds the tensors that are stored beside the quantised weight: "<weight>.*" with 4 bits, "<module>.*" with 8 bits.
    const std::string module = name.substr(0, name.rfind('.') + 1);
    const std::vector<std::string>& all = repository.names();
    for (auto it = std::lower_bound(all.begin(), all.end(), module); it != all.end() && it->starts_with(module); ++it)
      names.insert(*it);
  }
  return found(repository, names);
}

// Adds the other stored tensors from which the values of `entry` are computed, such as scales. digest(StoredTensor)
// does not read the bytes of these tensors.
void add_parts(const TensorEntry& entry, std::vector<NamedTensor>& parts) {
  auto add_part = [&](const TensorFile* file, const TensorEntry& part) {
    if (file != nullptr) parts.push_back({part.name, {file, &part}});
  };
  if (entry.mxfp4) {
    add_part(entry.mxfp4->blocks_file, entry.mxfp4->blocks);
    add_part(entry.mxfp4->scales_file, entry.mxfp4->scales);
  }
  if (entry.bitsandbytes) {
    add_part(entry.bitsandbytes->absmax_file, entry.bitsandbytes->absmax);
    add_part(entry.bitsandbytes->nested_file, entry.bitsandbytes->nested_absmax);
  }
  if (entry.float8) add_part(entry.float8->factors_file, entry.float8->factors);
  if (entry.groups) {
    add_part(entry.groups->scales_file, entry.groups->scales);
    add_part(entry.groups->zeros_file, entry.groups->zeros);
    add_part(entry.groups->order_file, entry.groups->order);
  }
  if (entry.joined_experts)
    for (const TensorEntry& expert : entry.joined_experts->entries) add_parts(expert, parts);
}

std::vector<NamedTensor> parts_of(const std::vector<NamedTensor>& tensors) {
  std::vector<NamedTensor> parts;
  for (const NamedTensor& tensor : tensors) add_parts(*tensor.stored.entry, parts);
  std::ranges::sort(parts, {}, &NamedTensor::name);
  return parts;
}

void add_adapter(ContentKey& key, const fs::path& folder) {
  const Json config = read_json_file(folder / "adapter_config.json");
  for (const char* field : {"r", "lora_alpha", "use_rslora", "use_dora", "rank_pattern", "alpha_pattern"})
    key.add(config.value(field, Json()).dump());
  const TensorFile file = open_adapter_weights(folder);
  std::vector<NamedTensor> tensors;
  for (const TensorEntry& entry : file.entries()) tensors.push_back({entry.name, {&file, &entry}});
  std::ranges::sort(tensors, {}, &NamedTensor::name);
  add(key, tensors);
}

std::string digest_of_adapters(const std::vector<std::string>& folders) {
  if (folders.empty()) return kNone;
  ContentKey key;
  for (const std::string& folder : folders) add_adapter(key, folder);
  return key.text();
}

// Returns the digest of the adapters that the run reads but does not save in its checkpoint. These are the adapters
// that are merged into weights, and run.adapter.folder if the reference model has a copy of it.
std::string adapters_digest(const Run& run) {
  std::vector<std::string> folders = run.adapter.merged;
  if (!run.adapter.folder.empty() && !run.reference.params.empty() && run.reference.folder.empty())
    folders.push_back(run.adapter.folder);
  return digest_of_adapters(folders);
}

struct ModelDigests {
  std::string weights, parts;
};

ModelDigests digests_of(const std::vector<NamedTensor>& tensors) {
  return {digest(tensors), digest(parts_of(tensors))};
}

ModelDigests reference_digests(const Run& run) {
  if (run.reference.folder.empty() || run.reference.params.empty()) return {kNone, kNone};
  std::set<std::string> names;
  for (const Param& param : run.reference.params) add_names(names, param);
  const ModelRepository other = ModelRepository::open(run.reference.folder);
  return digests_of(found(other, names));
}

}  // namespace

Json base_identity(const Run& run, const ModelRepository& repository) {
  const std::string config = computing(repository.config()).dump();
  const ModelDigests base = digests_of(kept_of_base(run, repository)), reference = reference_digests(run);
  return {{"config", xxh3_128(std::as_bytes(std::span(config)))},
          {"weights", base.weights},
          {"weights_parts", base.parts},
          {"adapters", adapters_digest(run)},
          {"ref_model", reference.weights},
          {"ref_model_parts", reference.parts},
          {"paths",
           {{"model_name_or_path", run.model_folder},
            {"adapter_name_or_path", run.adapter.folders()},
            {"ref_model", run.reference.folder}}}};
}

std::string start_digest(const Run& run, const ModelRepository& repository) {
  if (run.from_scratch) return kNone;
  std::set<std::string> names;
  for (const Param& param : run.trained)
    if (!param.is_lora()) add_names(names, param);
  return digest(found(repository, names));
}

std::string adapter_digest(const Run& run) {
  return digest_of_adapters(run.adapter.folder.empty() ? std::vector<std::string>{} : std::vector{run.adapter.folder});
}

}  // namespace fettle
