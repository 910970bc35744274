#include "checkpoint/table/joined_tensors.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/gguf/places.h"
#include "checkpoint/quantised/group_codes.h"
#include "models/config.h"
#include "models/model.h"
#include "models/quantization_config.h"

namespace fettle {
namespace {

using Json = nlohmann::json;

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

// Returns the weights' dtype in config.json; bfloat16 when config.json states none.
DType stated_dtype(const Json& config) {
  for (const Json* level : {&config, &text_level(config)})
    for (const char* key : {"dtype", "torch_dtype"})
      if (const auto at = level->find(key); at != level->end() && at->is_string())
        return dtype_from_hf(at->get<std::string>());
  return DType::kBF16;
}

std::string config_file(const std::filesystem::path& folder) {
  return (folder / "config.json").string();
}

}  // namespace

void leave_out_activation_scales(TensorTable& table, const Json& config) {
  if (quantization_config(config) == nullptr) return;
  table.erase_if([](std::string_view name) {
    return std::ranges::any_of(std::array{".activation_scale", ".input_scale", ".output_scale", ".q_scale", ".k_scale",
                                          ".v_scale", ".kv_scale"},
                               [&](std::string_view end) { return name.ends_with(end); });
  });
}

void join_mxfp4(TensorTable& table, const Json& config) {
  const std::string blocks_end = "_blocks", scales_end = "_scales";
  const DType dtype = stated_dtype(config);
  std::vector<std::string> names;
  for (const auto& [name, place] : table.places())
    if (name.ends_with(blocks_end)) names.push_back(name.substr(0, name.size() - blocks_end.size()));
  for (const std::string& name : names) {
    const TensorTable::Place place = table.places().at(name + blocks_end);
    const TensorTable::Place* scales_place = table.find(name + scales_end);
    if (scales_place == nullptr) continue;
    const auto [blocks_file, blocks] = table.at(place);
    const auto [scales_file, scales] = table.at(*scales_place);
    const Dims& dims = scales->shape.dims;
    Dims wanted = dims;
    wanted.push_back(Quantisation::kMxfp4Block / 2);
    if (dims.size() != 3 || blocks->shape != Shape{DType::kU8, wanted} || scales->shape.dtype != DType::kU8) continue;
    TensorEntry entry;
    entry.name = name;
    entry.shape = {dtype, {dims[0], dims[2] * Quantisation::kMxfp4Block, dims[1]}};
    entry.mxfp4 = std::make_shared<const Mxfp4Parts>(Mxfp4Parts{blocks_file, scales_file, *blocks, *scales});
    table.erase(name + blocks_end);
    table.erase(name + scales_end);
    table.put(place, std::move(entry));
  }
}

void join_float8(TensorTable& table, const Json& config, const std::filesystem::path& folder) {
  const StoredForm form = stored_form(config, config_file(folder));
  const auto* storage = std::get_if<Float8Storage>(&form);
  if (storage == nullptr) return;
  const DType dtype = stated_dtype(config);
  std::vector<std::string> names;
  for (const auto& [name, place] : table.places())
    if (table.at(place).entry->shape.dtype == DType::kF8E4M3FN) names.push_back(name);
  for (const std::string& name : names) {
    const TensorTable::Place place = table.places().at(name);
    std::string factors_name = name + storage->factors;
    const TensorTable::Place* factors_place = table.find(factors_name);
    if (factors_place == nullptr) factors_place = table.find(factors_name = name + "_scale");
    const auto [codes_file, codes] = table.at(place);
    if (factors_place == nullptr)
      throw UserError("{}: '{}' is in 8-bit floats, but '{}' is missing; download the model again",
                      codes_file->path().string(), name, name + storage->factors);
    const auto [factors_file, factors] = table.at(*factors_place);
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
    table.erase(factors_name);
    table.put(place, std::move(entry));
  }
}

void join_groups(TensorTable& table, const Json& config, const std::filesystem::path& folder) {
  const StoredForm form = stored_form(config, config_file(folder));
  const auto* storage = std::get_if<GroupStorage>(&form);
  if (storage == nullptr) return;
  const bool awq =
      storage->packing == GroupStorage::Packing::kAwqGemm || storage->packing == GroupStorage::Packing::kAwqGemv;
  for (const auto& [name, place] : table.places())
    if (awq && name.ends_with(".act.scales"))
      throw UserError(
          "{} has '{}': AWQ with scaled activations is not implemented; use the original weights of the model, with "
          "quantization_bit: 4 if they are too large",
          folder.string(), name);
  const std::string end = "." + std::string(storage->codes_name());
  std::vector<std::string> modules;
  for (const auto& [name, place] : table.places())
    if (name.ends_with(end)) modules.push_back(name.substr(0, name.size() - end.size()));
  for (const std::string& module : modules) {
    const TensorTable::Place place = table.places().at(module + end);
    std::vector<std::string> used;
    GroupParts parts = find_groups(*storage, module, [&](const std::string& name) -> std::optional<StoredTensor> {
      const TensorTable::Place* found = table.find(name);
      if (found == nullptr) return std::nullopt;
      used.push_back(name);
      return table.at(*found);
    });
    TensorEntry entry = parts.codes;
    entry.name = module + ".weight";
    entry.shape = {storage->dtype, {parts.outputs, parts.inputs}};
    entry.groups = std::make_shared<const GroupParts>(std::move(parts));
    for (const std::string& name : used) table.erase(name);
    if (table.find(entry.name) != nullptr)
      throw UserError("{} has both '{}' and '{}'; remove one of them", folder.string(), entry.name, module + end);
    table.put(place, std::move(entry));
  }
}

void leave_out_modules_in_floats(const TensorTable& table, Json& config, const std::filesystem::path& folder) {
  const StoredForm form = stored_form(config, config_file(folder));
  const auto* storage = std::get_if<GroupStorage>(&form);
  const Family* family = find_family(config);
  if (storage == nullptr || family == nullptr) return;
  std::vector<std::string> left_out, described;
  for (const Param& param : family->params(family->read(ConfigReader(config, config_file(folder))))) {
    if (param.role != Role::kLinear) continue;
    const size_t before = left_out.size();
    const std::vector<int64_t> covered = storage->covered_layers(param);
    for (const int64_t layer : covered) {
      const std::string name = param.stored_name(param.layers.slice_of(layer));
      const TensorTable::Place* place = table.look_up(name);
      if (place != nullptr && !table.at(*place).entry->groups) left_out.push_back(module_of(name));
    }
    if (const size_t count = left_out.size() - before; count > 0)
      described.push_back(fmt::format("{} ({} of {} layers)", module_of(param.hf_name), count, param.layer_count()));
  }
  if (left_out.empty()) return;
  info("{}: the files have these modules in floats, although quantization_config does not say so: {}", folder.string(),
       fmt::join(described, ", "));
  const char* key = storage->packing == GroupStorage::Packing::kPacked ? "ignore" : "modules_to_not_convert";
  Json& list = (*quantization_config(config))[key];
  if (list.is_null()) list = Json::array();
  for (const std::string& module : left_out) list.push_back(module);
}

void join_experts(TensorTable& table, const Json& config, const std::filesystem::path& folder) {
  const Family* family = find_family(config);
  const bool apart = std::ranges::any_of(
      table.places(), [](const auto& named) { return named.first.find(".experts.0.") != std::string::npos; });
  if (family == nullptr || !apart) return;
  const ModelConfig model = family->read(ConfigReader(config, config_file(folder)));
  const ExpertNames& names = model.experts;
  if (!names.fused() || names.in_turns || model.expert_bias) return;
  for (const Param& param : family->params(model)) {
    if (param.role != Role::kExpertsFused) continue;
    for (int64_t i = 0; i < param.stored_count(); ++i) {
      const std::string tensor = param.stored_name(i);
      if (table.look_up(tensor) != nullptr) continue;
      auto experts = std::make_shared<JoinedExperts>();
      std::vector<std::string> found;
      for (int64_t expert = 0; expert < param.dims[0]; ++expert) {
        const std::vector<std::string> modules = expert_modules(tensor, expert);
        experts->each = static_cast<int64_t>(modules.size());
        for (const std::string& module : modules) {
          const TensorTable::Place* place = table.look_up(module + ".weight");
          if (place == nullptr) break;
          const auto [file, stored] = table.at(*place);
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
          throw UserError("{}: '{}' is {}, but '{}' is {}; download the model again", folder.string(), module.name,
                          to_string(module.shape.dims), found[0], to_string(dims));
      experts->inputs_first = names.in_first;
      const TensorTable::Place place = *table.look_up(found[0]);
      const int64_t inputs = dims[1], all = dims[0] * experts->each;
      TensorEntry entry;
      entry.name = tensor;
      entry.shape = {experts->entries[0].shape.dtype,
                     names.in_first ? Dims{param.dims[0], inputs, all} : Dims{param.dims[0], all, inputs}};
      entry.joined_experts = std::move(experts);
      for (const std::string& name : found) table.erase(name);
      table.put(place, std::move(entry));
    }
  }
}

void join_pieces(TensorTable& table) {
  std::map<std::string, std::vector<std::string>> names_of;
  // The pieces of a tensor are in the order of the tensor's rows, because their names sort in this order.
  for (const auto& [name, place] : table.places())
    if (const auto piece = piece_of_name(name)) names_of[piece->whole].push_back(name);
  for (const auto& [whole, names] : names_of) {
    const TensorTable::Place place = table.places().at(names.front());
    TensorEntry entry{whole, table.at(place).entry->shape, 0, 0, {}};
    const PieceName piece = *piece_of_name(names.front());
    const int64_t experts = piece.experts;
    entry.shape.dims[0] = 0;
    JoinedRows joined;
    for (const std::string& name : names) {
      const auto [file, piece] = table.at(table.places().at(name));
      joined.files.push_back(file);
      joined.entries.push_back(*piece);
      entry.shape.dims[0] += piece->shape.dims[0];
      if (piece->shape.dtype != entry.shape.dtype) entry.shape.dtype = DType::kBF16;
      table.erase(name);
    }
    if (experts > 0) {
      entry.shape.dims[0] /= experts;
      entry.shape.dims.insert(entry.shape.dims.begin(), experts);
    }
    if (piece.columns)
      join_columns(piece, std::move(joined), entry);
    else
      entry.joined = std::make_shared<const JoinedRows>(std::move(joined));
    table.put(place, std::move(entry));
  }
}

int64_t grow_tables(TensorTable& table, const TensorFile& new_rows, const Json& config) {
  const std::optional<int64_t> size = vocab_size_of(config);
  internal_check(size.has_value(), "{} adds rows, but config.json lacks vocab_size", kNewRows);
  int64_t gained = 0;
  for (const TensorEntry& rows : new_rows.entries()) {
    const TensorTable::Place* found = table.find(rows.name);
    internal_check(found != nullptr, "{} has rows of '{}', which is not a tensor of the model", kNewRows, rows.name);
    const auto [old_file, old] = table.at(*found);
    TensorEntry entry;
    entry.name = rows.name;
    entry.shape = {old->shape.dtype, {*size, rows.shape.dims[1]}};
    entry.grown =
        std::make_shared<const GrownTable>(GrownTable{old_file, &new_rows, *old, rows, *size - rows.shape.dims[0]});
    gained += entry.shape.bytes() - old->shape.bytes();
    table.put(*found, std::move(entry));
  }
  return gained;
}

}  // namespace fettle
