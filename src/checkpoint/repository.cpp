#include "checkpoint/repository.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <fstream>
#include <functional>
#include <memory>
#include <set>

#include "base/error.h"
#include "base/files/file_error.h"
#include "base/files/json_file.h"
#include "checkpoint/gguf/gguf_files.h"
#include "checkpoint/gguf/gguf_folder.h"
#include "checkpoint/gguf/places.h"
#include "checkpoint/model_files.h"
#include "checkpoint/quantised/group_codes.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/saved/result_folder.h"
#include "checkpoint/torch/torch_file.h"
#include "models/config.h"
#include "models/float8_storage.h"
#include "models/model.h"
#include "models/quantisation.h"

namespace fettle {
namespace fs = std::filesystem;
namespace {

using Json = nlohmann::json;
void check_folder(const fs::path& folder) {
  std::error_code code;
  const fs::file_status status = fs::status(folder, code);
  if (status.type() == fs::file_type::not_found) {
    throw UserError("the model folder '{}' does not exist; check model_name_or_path (names on the hub are ORG/NAME)",
                    folder.string());
  }
  if (code) throw_file_error("read", folder, code.value());
  if (status.type() != fs::file_type::directory)
    throw UserError("'{}' is a file; set model_name_or_path to the folder that contains config.json and the weights",
                    folder.string());
  fs::directory_iterator probe(folder, code);
  if (code) throw_file_error("read", folder, code.value());
}

Json read_object(const fs::path& path) {
  Json value = read_json_file(path);
  if (!value.is_object()) throw UserError("{}: contains a JSON {}, wanted an object", path.string(), value.type_name());
  return value;
}

bool has_file_ending(const fs::path& folder, std::string_view start, std::string_view end) {
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(start) && name.ends_with(end)) return true;
  }
  return false;
}

// Returns up to three names that share the longest endings with `name`, for an error message.
std::vector<std::string> near_names(const std::vector<std::string>& names, std::string_view name) {
  std::vector<std::pair<size_t, std::string>> scored;
  for (const std::string& other : names) {
    const auto tail = std::mismatch(name.rbegin(), name.rend(), other.rbegin(), other.rend());
    scored.emplace_back(static_cast<size_t>(tail.first - name.rbegin()), other);
  }
  std::stable_sort(scored.begin(), scored.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<std::string> near;
  for (size_t i = 0; i < std::min<size_t>(3, scored.size()); ++i) near.push_back(scored[i].second);
  return near;
}

void copy_one(const fs::path& from, const fs::path& to) {
  std::error_code code;
  if (fs::equivalent(from, to, code)) return;
  fs::copy_file(from, to, fs::copy_options::overwrite_existing, code);
  if (code) throw_file_error("copy", from, code.value());
}

// Makes `entry` the tensor that consists of these pieces. A row of a piece is an output of the tensor. Changes the
// entry's dims from [experts, outputs, inputs] to [experts, inputs, outputs], or to [experts, outputs] for biases.
void join_columns(const PieceName& piece, JoinedRows pieces, TensorEntry& entry) {
  JoinedExperts joined{std::move(pieces.files), std::move(pieces.entries)};
  const auto count = static_cast<int64_t>(joined.entries.size());
  joined.each = std::max<int64_t>(1, count / piece.experts);
  const int64_t rows = joined.entries[0].shape.dims[0];
  const std::string path = joined.files[0]->path().string();
  if (count != joined.each * piece.experts)
    throw UserError("{}: '{}' has {} parts, wanted a multiple of the number of experts ({}); download the file again",
                    path, entry.name, count, piece.experts);
  for (const TensorEntry& each : joined.entries)
    if (each.shape.dims != Dims{rows, entry.shape.dims[2]})
      throw UserError("{}: a part of '{}' is {}, another is {}; download the file again", path, entry.name,
                      to_string(Dims{rows, entry.shape.dims[2]}), to_string(each.shape.dims));
  joined.in_turns = piece.in_turns;
  joined.biases = entry.shape.dims[2] == 1;
  joined.inputs_first = !joined.biases;
  std::swap(entry.shape.dims[1], entry.shape.dims[2]);
  if (joined.biases) entry.shape.dims.erase(entry.shape.dims.begin() + 1);
  entry.joined_experts = std::make_shared<const JoinedExperts>(std::move(joined));
}

TensorFile open_tensors(const fs::path& path) {
  if (path.extension() == ".bin") return TorchFile::open(path);
  return SafetensorsFile::open(path);
}

// Adds the modules that `named` refers to. `named` is the auto_map of a config, or a value in it. Both "modeling_x.X"
// and "user/repository--modeling_x.X" add "modeling_x". Ignores null.
void add_modules(const Json& named, std::vector<std::string>& modules) {
  if (named.is_structured())
    for (const Json& item : named) add_modules(item, modules);
  if (!named.is_string()) return;
  std::string name = named.get<std::string>();
  if (const size_t repository = name.find("--"); repository != std::string::npos) name = name.substr(repository + 2);
  modules.push_back(name.substr(0, name.find('.')));
}

// Returns the modules that a Python file imports from its own folder: "name" for each line "from .name import ...".
std::vector<std::string> relative_imports(std::string_view text) {
  constexpr std::string_view kBlanks = " \t";
  auto skip_blanks = [&](std::string_view line) {
    return line.substr(std::min(line.find_first_not_of(kBlanks), line.size()));
  };
  std::vector<std::string> modules;
  for (size_t begin = 0, end = 0; begin < text.size(); begin = end + 1) {
    end = std::min(text.find('\n', begin), text.size());
    std::string_view line = skip_blanks(text.substr(begin, end - begin));
    if (!line.starts_with("from ") && !line.starts_with("from\t")) continue;
    line = skip_blanks(line.substr(4));
    if (!line.starts_with('.')) continue;
    line.remove_prefix(1);
    const std::string_view name = line.substr(0, line.find_first_of(kBlanks));
    const bool is_name = !name.empty() && std::ranges::all_of(name, [](unsigned char c) {
      return c < 0x80 && (std::isalnum(c) || c == '_');
    });
    if (is_name && skip_blanks(line.substr(name.size())).starts_with("import")) modules.emplace_back(name);
  }
  return modules;
}

// Returns the files of remote code: the modules that auto_map names in the configs, and the modules that these import
// from the folder.
std::set<std::string> remote_code(const fs::path& folder) {
  std::vector<std::string> modules;
  for (const char* name : {"config.json", "tokenizer_config.json"}) {
    if (!fs::exists(folder / name)) continue;
    const Json config = read_json_file(folder / name);
    if (config.is_object() && config.contains("auto_map")) add_modules(config["auto_map"], modules);
  }
  std::set<std::string> files;
  while (!modules.empty()) {
    const std::string name = modules.back() + ".py";
    modules.pop_back();
    std::ifstream file(folder / name);
    if (!file || !files.insert(name).second) continue;
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    for (std::string& module : relative_imports(text)) modules.push_back(std::move(module));
  }
  return files;
}

void copy_files(const fs::path& from, const fs::path& to, const std::function<bool(const std::string&)>& wanted) {
  std::error_code code;
  fs::directory_iterator it(from, code), end;
  if (code) throw_file_error("read", from, code.value());
  for (; it != end; ++it) {
    const std::string name = it->path().filename().string();
    if (it->is_regular_file() && wanted(name)) copy_one(it->path(), to / name);
  }
  const fs::path others = from / kChatTemplates;
  if (!fs::is_directory(others, code)) return;
  fs::create_directories(to / kChatTemplates, code);
  if (code) throw_file_error("create", to / kChatTemplates, code.value());
  for (const auto& entry : fs::directory_iterator(others))
    if (entry.path().extension() == ".jinja") copy_one(entry.path(), to / kChatTemplates / entry.path().filename());
}

}  // namespace

ModelRepository ModelRepository::open(const fs::path& folder, Weights weights) {
  check_folder(folder);
  ModelRepository repository;
  repository.folder_ = folder;
  const fs::path config = folder / "config.json";
  if (!fs::exists(config)) {
    require_whole_result(folder);
    if (fs::exists(folder / "adapter_config.json"))
      throw UserError(
          "{} is an adapter, not a model; set adapter_name_or_path to it and model_name_or_path to its base model",
          folder.string());
    throw UserError("{} is missing; set model_name_or_path to a Hugging Face model folder", config.string());
  }
  repository.config_ = read_object(config);
  if (fs::exists(folder / "generation_config.json"))
    repository.generation_config_ = read_object(folder / "generation_config.json");
  if (weights == Weights::kRequired) repository.open_weights();
  return repository;
}

void ModelRepository::open_weights() {
  if (fs::exists(folder_ / "model.safetensors")) {
    add_file(SafetensorsFile::open(folder_ / "model.safetensors"));
  } else if (fs::exists(folder_ / "model.safetensors.index.json")) {
    open_shards(folder_ / "model.safetensors.index.json");
  } else if (fs::exists(folder_ / "pytorch_model.bin")) {
    add_file(TorchFile::open(folder_ / "pytorch_model.bin"));
  } else if (fs::exists(folder_ / "pytorch_model.bin.index.json")) {
    open_shards(folder_ / "pytorch_model.bin.index.json");
  } else if (fs::exists(fs::symlink_status(folder_ / kGgufWeights))) {
    for (TensorFile& file : open_gguf(folder_ / kGgufWeights)) add_file(std::move(file));
    join_pieces();
  } else if (has_file_ending(folder_, "model-", ".safetensors")) {
    throw UserError("{} has shards but no model.safetensors.index.json; download that file too", folder_.string());
  } else if (has_file_ending(folder_, "pytorch_model-", ".bin")) {
    throw UserError("{} has shards but no pytorch_model.bin.index.json; download that file too", folder_.string());
  } else {
    throw UserError(
        "{} has no weights: there is no model.safetensors, no pytorch_model.bin and no index of either; download "
        "the weights, or train from random weights (train_from_scratch: true)",
        folder_.string());
  }
  if (fs::exists(folder_ / kNewRows)) files_.push_back(SafetensorsFile::open(folder_ / kNewRows));
  join_mxfp4();
  join_float8();
  join_groups();
  join_experts();
  if (fs::exists(folder_ / kNewRows)) grow_tables();
  for (const auto& [name, place] : tensors_) names_.push_back(name);
}

DType ModelRepository::stated_dtype() const {
  for (const Json* level : {&config_, &text_level(config_)})
    for (const char* key : {"dtype", "torch_dtype"})
      if (const auto at = level->find(key); at != level->end() && at->is_string())
        return dtype_from_hf(at->get<std::string>());
  return DType::kBF16;
}

void ModelRepository::join_float8() {
  const std::string file = (folder_ / "config.json").string();
  std::optional<Float8Storage> storage = stored_float8(config_, file);
  if (!storage) storage = stored_float8(text_level(config_), file);
  if (!storage) return;
  const DType dtype = stated_dtype();
  // Leaves out the scales of activations. Only a computation in 8 bits needs them.
  std::erase_if(tensors_, [](const auto& named) {
    return std::ranges::any_of(std::array{".activation_scale", ".input_scale", ".k_scale", ".v_scale"},
                               [&](std::string_view end) { return named.first.ends_with(end); });
  });
  std::vector<std::string> names;
  for (const auto& [name, place] : tensors_)
    if (stored_at(place).entry->shape.dtype == DType::kF8E4M3FN) names.push_back(name);
  for (const std::string& name : names) {
    const auto of_codes = tensors_.find(name), of_factors = tensors_.find(name + storage->factors);
    const Place place = of_codes->second;
    const auto [codes_file, codes] = stored_at(place);
    if (of_factors == tensors_.end())
      throw UserError("{}: '{}' is in 8-bit floats, but '{}' is missing; download the model again",
                      codes_file->path().string(), name, name + storage->factors);
    const auto [factors_file, factors] = stored_at(of_factors->second);
    Dims wanted = codes->shape.dims;
    Float8Parts parts{codes_file, factors_file, *codes, *factors, storage->rows, storage->columns};
    if (wanted.size() >= 2) {
      int64_t &rows = wanted[wanted.size() - 2], &columns = wanted.back();
      Dims by_row = wanted;
      by_row.back() = 1;
      if (factors->shape.elements() == 1)
        parts.block_rows = rows, parts.block_columns = columns, wanted = factors->shape.dims;
      else if (factors->shape.dims == by_row)
        parts.block_rows = 1, parts.block_columns = columns, wanted = by_row;
      else
        rows = (rows + parts.block_rows - 1) / parts.block_rows,
        columns = (columns + parts.block_columns - 1) / parts.block_columns;
    }
    const bool floats = factors->shape.dtype == DType::kF32 || factors->shape.dtype == DType::kBF16 ||
                        factors->shape.dtype == DType::kF16;
    if (codes->shape.dims.size() < 2 || factors->shape.dims != wanted || !floats)
      throw UserError("{}: '{}' is {}, wanted floats {}: one factor for each {} x {} block of the weight {}",
                      factors_file->path().string(), factors->name, factors->shape.to_string(), to_string(wanted),
                      storage->rows, storage->columns, to_string(codes->shape.dims));
    TensorEntry entry = *codes;
    entry.shape.dtype = dtype;
    entry.float8 = std::make_shared<const Float8Parts>(std::move(parts));
    const TensorEntry& joined = joined_[name] = std::move(entry);
    tensors_.erase(of_factors);
    tensors_[name] = {place.file, place.entry, &joined};
  }
}

void ModelRepository::join_groups() {
  const std::string file = (folder_ / "config.json").string();
  std::optional<GroupStorage> storage = stored_groups(config_, file);
  if (!storage) storage = stored_groups(text_level(config_), file);
  if (!storage) return;
  const std::string end = "." + std::string(storage->codes_name());
  std::vector<std::string> modules;
  for (const auto& [name, place] : tensors_)
    if (name.ends_with(end)) modules.push_back(name.substr(0, name.size() - end.size()));
  for (const std::string& module : modules) {
    const Place place = tensors_.at(module + end);
    std::vector<std::string> used;
    GroupParts parts = find_groups(*storage, module, [&](const std::string& name) -> std::optional<StoredTensor> {
      const auto found = tensors_.find(name);
      if (found == tensors_.end()) return std::nullopt;
      used.push_back(name);
      return stored_at(found->second);
    });
    TensorEntry entry = parts.codes;
    entry.name = module + ".weight";
    entry.shape = {storage->dtype, {parts.outputs, parts.inputs}};
    entry.groups = std::make_shared<const GroupParts>(std::move(parts));
    for (const std::string& name : used) tensors_.erase(name);
    if (tensors_.contains(entry.name))
      throw UserError("{} has both '{}' and '{}'; remove one of them", folder_.string(), entry.name, module + end);
    const std::string name = entry.name;
    const TensorEntry& joined = joined_[name] = std::move(entry);
    tensors_[name] = {place.file, place.entry, &joined};
  }
}

void ModelRepository::join_experts() {
  const Family* family = find_family(config_);
  const bool apart = std::ranges::any_of(
      tensors_, [](const auto& named) { return named.first.find(".experts.0.") != std::string::npos; });
  if (family == nullptr || !apart) return;
  const ModelConfig config = family->read(ConfigReader(config_, (folder_ / "config.json").string()));
  const ExpertNames& names = config.experts;
  if (!names.fused() || names.in_turns || config.expert_bias) return;
  for (const Param& param : family->params(config)) {
    if (param.role != Role::kExpertsFused) continue;
    for (int64_t i = 0; i < param.stored_count(); ++i) {
      const std::string tensor = param.stored_name(i);
      if (look_up(tensor) != nullptr) continue;
      auto experts = std::make_shared<JoinedExperts>();
      std::vector<std::string> found;
      for (int64_t expert = 0; expert < param.dims[0]; ++expert) {
        const std::vector<std::string> modules = expert_modules(tensor, expert);
        experts->each = static_cast<int64_t>(modules.size());
        for (const std::string& module : modules) {
          const Place* place = look_up(module + ".weight");
          if (place == nullptr) break;
          const auto [file, stored] = stored_at(*place);
          experts->files.push_back(file);
          experts->entries.push_back(*stored);
          found.push_back(stored->name);
        }
      }
      // If an expert is missing, adds no entry. Loading then reports that the tensor with all experts is missing.
      if (found.empty() || static_cast<int64_t>(found.size()) != param.dims[0] * experts->each) continue;
      const Dims dims = experts->entries[0].shape.dims;
      for (const TensorEntry& module : experts->entries)
        if (module.shape.dims != dims || dims.size() != 2)
          throw UserError("{}: '{}' is {}, but '{}' is {}; download the model again", folder_.string(), module.name,
                          to_string(module.shape.dims), found[0], to_string(dims));
      experts->inputs_first = names.in_first;
      const Place place = *look_up(found[0]);
      const int64_t inputs = dims[1], all = dims[0] * experts->each;
      TensorEntry entry;
      entry.name = tensor;
      entry.shape = {experts->entries[0].shape.dtype,
                     names.in_first ? Dims{param.dims[0], inputs, all} : Dims{param.dims[0], all, inputs}};
      entry.joined_experts = std::move(experts);
      for (const std::string& name : found) tensors_.erase(name);
      tensors_[tensor] = {place.file, place.entry, &(joined_[tensor] = std::move(entry))};
    }
  }
}

void ModelRepository::join_mxfp4() {
  const std::string blocks_end = "_blocks", scales_end = "_scales";
  const DType dtype = stated_dtype();
  std::vector<std::string> names;
  for (const auto& [name, place] : tensors_)
    if (name.ends_with(blocks_end)) names.push_back(name.substr(0, name.size() - blocks_end.size()));
  for (const std::string& name : names) {
    const auto of_blocks = tensors_.find(name + blocks_end), of_scales = tensors_.find(name + scales_end);
    if (of_scales == tensors_.end()) continue;
    const Place place = of_blocks->second;
    const auto [blocks_file, blocks] = stored_at(place);
    const auto [scales_file, scales] = stored_at(of_scales->second);
    const Dims& dims = scales->shape.dims;
    Dims wanted = dims;
    wanted.push_back(Quantisation::kMxfp4Block / 2);
    if (dims.size() != 3 || blocks->shape != Shape{DType::kU8, wanted} || scales->shape.dtype != DType::kU8) continue;
    TensorEntry entry;
    entry.name = name;
    entry.shape = {dtype, {dims[0], dims[2] * Quantisation::kMxfp4Block, dims[1]}};
    entry.mxfp4 = std::make_shared<const Mxfp4Parts>(Mxfp4Parts{blocks_file, scales_file, *blocks, *scales});
    const TensorEntry& joined = joined_[name] = std::move(entry);
    tensors_.erase(of_blocks);
    tensors_.erase(of_scales);
    tensors_[name] = {place.file, place.entry, &joined};
  }
}

// Joins the pieces (GgufPiece) of tensors that a GGUF file divides. `tensors_` has the pieces of a tensor in the order
// of the tensor's rows, because the names of pieces sort in this order.
void ModelRepository::join_pieces() {
  std::map<std::string, std::vector<std::string>> names_of;
  for (const auto& [name, place] : tensors_)
    if (const auto piece = piece_of_name(name)) names_of[piece->whole].push_back(name);
  for (const auto& [whole, names] : names_of) {
    const Place place = tensors_.at(names.front());
    TensorEntry entry{whole, stored_at(place).entry->shape, 0, 0, {}};
    const PieceName piece = *piece_of_name(names.front());
    const int64_t experts = piece.experts;
    entry.shape.dims[0] = 0;
    JoinedRows joined;
    for (const std::string& name : names) {
      const auto [file, piece] = stored_at(tensors_.at(name));
      joined.files.push_back(file);
      joined.entries.push_back(*piece);
      entry.shape.dims[0] += piece->shape.dims[0];
      if (piece->shape.dtype != entry.shape.dtype) entry.shape.dtype = DType::kBF16;
      tensors_.erase(name);
    }
    if (experts > 0) {
      entry.shape.dims[0] /= experts;
      entry.shape.dims.insert(entry.shape.dims.begin(), experts);
    }
    if (piece.columns)
      join_columns(piece, std::move(joined), entry);
    else
      entry.joined = std::make_shared<const JoinedRows>(std::move(joined));
    tensors_[whole] = {place.file, place.entry, &(joined_[whole] = std::move(entry))};
  }
}

void ModelRepository::grow_tables() {
  const TensorFile& rows_file = files_.back();
  const std::optional<int64_t> size = vocab_size_of(config_);
  internal_check(size.has_value(), "{} adds rows, but config.json lacks vocab_size", kNewRows);
  for (const TensorEntry& rows : rows_file.entries()) {
    const auto found = tensors_.find(rows.name);
    internal_check(found != tensors_.end(), "{} has rows of '{}', which is not a tensor of the model", kNewRows,
                   rows.name);
    const auto [table_file, table] = stored_at(found->second);
    TensorEntry entry;
    entry.name = rows.name;
    entry.shape = {table->shape.dtype, {*size, rows.shape.dims[1]}};
    entry.grown = std::make_shared<const GrownTable>(
        GrownTable{table_file, &rows_file, *table, rows, *size - rows.shape.dims[0]});
    total_bytes_ += entry.shape.bytes() - table->shape.bytes();
    found->second.joined = &(joined_[rows.name] = std::move(entry));
  }
}

void ModelRepository::open_shards(const fs::path& index_file) {
  const Json index = read_object(index_file);
  const auto map = index.find("weight_map");
  if (map == index.end() || !map->is_object())
    throw UserError("{}: it has no object 'weight_map'; download the file again", index_file.string());
  std::set<std::string> shards;
  for (const auto& [name, file] : map->items()) {
    if (!file.is_string())
      throw UserError("{}: weight_map: the value of '{}' is not a file name; download the file again",
                      index_file.string(), name);
    const std::string shard = file.get<std::string>();
    if (shard.empty() || shard.find('/') != std::string::npos || shard == "..")
      throw UserError("{}: weight_map: '{}' has the file '{}', wanted the name of a file in the same folder",
                      index_file.string(), name, shard);
    shards.insert(shard);
  }
  for (const std::string& shard : shards) {
    if (!fs::exists(folder_ / shard))
      throw UserError("{}: the shard {} is missing; download it", index_file.string(), shard);
    add_file(open_tensors(folder_ / shard));
  }
  for (const auto& [name, file] : map->items()) {
    const auto found = tensors_.find(name);
    if (found == tensors_.end() || files_[found->second.file].path().filename() != file.get<std::string>())
      throw UserError(
          "{}: '{}' should be in {}, but that file does not have it; download index and shards from the same place",
          index_file.string(), name, file.get<std::string>());
  }
}

void ModelRepository::add_file(TensorFile file) {
  for (size_t i = 0; i < file.entries().size(); ++i) {
    const TensorEntry& entry = file.entries()[i];
    const auto [place, added] = tensors_.emplace(entry.name, Place{files_.size(), i});
    if (!added)
      throw UserError("both {1} and {2} have the tensor '{0}'; remove the shard that does not belong to the model",
                      entry.name, files_[place->second.file].path().string(), file.path().string());
    total_bytes_ += entry.shape.bytes();
  }
  files_.push_back(std::move(file));
}

namespace {

std::vector<std::string> spellings(std::string_view name) {
  std::vector<std::string> out{std::string(name)};
  for (const auto& [now, then] :
       {std::pair{".LayerNorm.weight", ".LayerNorm.gamma"}, {".LayerNorm.bias", ".LayerNorm.beta"}})
    if (name.ends_with(now))
      out.push_back(std::string(name.substr(0, name.size() - std::string_view(now).size())) + then);
  // Adds the names that Transformers 4 wrote for the text model of a checkpoint with images, and names that
  // Transformers changes when it loads a checkpoint.
  for (const auto& [now, then] :
       {std::pair<std::string_view, const char*>{"model.language_model.", "language_model.model."},
        {"lm_head.", "language_model.lm_head."},
        {"model.", "backbone."}})  // Nemotron-H's older name
    if (name.starts_with(now)) out.push_back(then + std::string(name.substr(now.size())));
  for (const char* base : {"model.", "transformer.", "bert.", "roberta."})
    if (name.starts_with(base))
      for (size_t i = 0, known = out.size(); i < known; ++i)
        out.push_back(out[i].substr(std::string_view(base).size()));
  return out;
}

}  // namespace

const ModelRepository::Place* ModelRepository::look_up(std::string_view name) const {
  if (const auto found = tensors_.find(name); found != tensors_.end()) return &found->second;
  for (const std::string& spelling : spellings(name))
    if (const auto found = tensors_.find(spelling); found != tensors_.end()) return &found->second;
  return nullptr;
}

StoredTensor ModelRepository::find(std::string_view name) const {
  const Place* found = look_up(name);
  if (found == nullptr)
    throw UserError(
        "{} has no tensor '{}' among its {} tensors; similar names: {}. Do config.json and the weights belong to the "
        "same model?",
        folder_.string(), name, names_.size(), fmt::join(near_names(names_, name), ", "));
  return stored_at(*found);
}

StoredTensor ModelRepository::stored_at(const Place& place) const {
  const TensorFile& file = files_[place.file];
  return {&file, place.joined != nullptr ? place.joined : &file.entries()[place.entry]};
}

std::vector<StoredTensor> ModelRepository::tensors() const {
  std::map<std::pair<size_t, size_t>, const Place*> in_order;
  for (const auto& [name, place] : tensors_) in_order[{place.file, place.entry}] = &place;
  std::vector<StoredTensor> out;
  for (const auto& [at, place] : in_order) out.push_back(stored_at(*place));
  return out;
}

void copy_tokenizer_files(const fs::path& from, const fs::path& to) {
  copy_files(from, to, is_tokenizer_file);
}
void copy_model_files(const fs::path& from, const fs::path& to) {
  const std::set<std::string> code = remote_code(from);
  copy_files(from, to, [&](const std::string& name) { return is_model_file(name) || code.contains(name); });
}

}  // namespace fettle
