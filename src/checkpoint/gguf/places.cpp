#include "checkpoint/gguf/places.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/error.h"

namespace fettle {
namespace {

constexpr int64_t kMostExperts = 4096;  // experts of a layer

// The parts of a tensor's name: "blk.12.attn_q.weight" has the module "blk.{}.attn_q" and the layer 12.
struct ModuleName {
  std::string module;
  std::optional<int64_t> layer;
  std::string ending;  // ".weight" or ".bias"
};

ModuleName split_name(const std::string& tensor) {
  ModuleName out{tensor, {}, {}};
  const size_t dot = tensor.rfind('.');
  if (dot != std::string::npos) out.module = tensor.substr(0, dot), out.ending = tensor.substr(dot);
  constexpr std::string_view kBlock = "blk.";
  if (!out.module.starts_with(kBlock)) return out;
  int64_t layer = 0;
  const char *begin = out.module.data() + kBlock.size(), *end = out.module.data() + out.module.size();
  const auto [rest, error] = std::from_chars(begin, end, layer);
  if (error != std::errc() || layer < 0) return out;
  out.layer = layer;
  out.module = std::string(kBlock) + "{}" + std::string(rest, end);
  return out;
}

std::string with_number(const std::string& name, int64_t number) {
  const size_t at = name.find("{}");
  return name.substr(0, at) + std::to_string(number) + name.substr(at + 2);
}

DType dtype_of_type(const BlockType& type) {
  return type.name == "F32" ? DType::kF32 : type.name == "F16" ? DType::kF16 : DType::kBF16;
}

// A name with {} in place of its numbers, and these numbers: "model.layers.3.mlp.experts.5.up_proj" becomes
// "model.layers.{}.mlp.experts.{}.up_proj" with 3 and 5.
struct NumberedName {
  std::string pattern;
  std::vector<int64_t> numbers;
};

NumberedName split_numbers(const std::string& name) {
  NumberedName out;
  for (size_t at = 0; at <= name.size();) {
    const size_t end = std::min(name.find('.', at), name.size());
    int64_t number = 0;
    const char *first = name.data() + at, *last = name.data() + end;
    const auto [rest, error] = std::from_chars(first, last, number);
    if (at > 0) out.pattern += '.';
    if (first < last && error == std::errc() && rest == last) {
      out.pattern += "{}";
      out.numbers.push_back(number);
    } else {
      out.pattern.append(first, last);
    }
    at = end + 1;
  }
  return out;
}

// Returns the name that the weight has in a text-only checkpoint. In a checkpoint with images, the weights of the text
// model have other prefixes.
std::string without_wrapper(const std::string& name) {
  for (const auto& [prefix, plain] : {std::pair{"model.language_model.", "model."},
                                      {"language_model.model.", "model."},
                                      {"language_model.lm_head.", "lm_head."}})
    if (name.starts_with(prefix)) return plain + name.substr(std::string_view(prefix).size());
  return name;
}

// Returns the name of a piece. Names of later pieces of the same tensor compare as greater.
std::string name_of_piece(const PieceName& name, int64_t position) {
  return fmt::format("{}#{}#{}#{:08}", name.whole,
                     name.in_turns  ? "turns"
                     : name.columns ? "columns"
                                    : "rows",
                     name.experts, position);
}

bool has_pieces(GgufForm form) {
  return (form >= GgufForm::kKeysOfHeads && form <= GgufForm::kExperts) ||
         (form >= GgufForm::kGateUpOfExperts && form <= GgufForm::kDownInColumns);
}

bool is_of_experts(GgufForm form) {
  return form >= GgufForm::kGatesOfExperts && has_pieces(form) && form != GgufForm::kGates && form != GgufForm::kUps;
}

}  // namespace

std::optional<PieceName> piece_of_name(const std::string& name) {
  const size_t kind = name.find('#'), experts = kind == std::string::npos ? kind : name.find('#', kind + 1);
  if (experts == std::string::npos) return std::nullopt;
  const std::string_view word = std::string_view(name).substr(kind + 1, experts - kind - 1);
  return PieceName{name.substr(0, kind), std::stoll(name.substr(experts + 1)), word != "rows", word == "turns"};
}

bool has_experts_in_one(const GgufFamily& family) {
  return std::ranges::any_of(family.names, [](const GgufName& name) { return is_of_experts(name.form); });
}

bool has_gates_and_ups_in_one(const GgufFamily& family) {
  return std::ranges::any_of(family.names, [](const GgufName& name) { return name.form == GgufForm::kGates; });
}

bool is_table_of_rope(const std::string& name) {
  return name.starts_with("rope_freqs.") || name.starts_with("rope_factors_") || name.ends_with(".attn_rot_embd");
}

GgufPlaces::GgufPlaces(const GgufFamily& family, const GgufHeads& heads, std::string file)
    : family_(family), file_(std::move(file)), heads_(heads) {
  constexpr int64_t kMost = 1 << 20;  // products of these numbers fit into 64 bits
  for (const auto& [key, number] : {std::pair{"attention.head_count", heads.heads},
                                    {"ssm.group_count", heads.groups},
                                    {"ssm.time_step_rank", heads.values},
                                    {"ssm.state_size", heads.key_dim},
                                    {"attention.key_length_mla - rope.dimension_count", heads.plain_dim},
                                    {"attention.value_length_mla or ssm.state_size", heads.value_dim},
                                    {"expert_count", heads.experts},
                                    {"expert_feed_forward_length", heads.expert_size},
                                    {"embedding_length", heads.width},
                                    {"feed_forward_length or expert_shared_feed_forward_length", heads.shared_size},
                                    {"embedding_length / attention.head_count", heads.head_dim}})
    if (number < 0 || number > kMost) throw UserError("{}: {} is {}, wanted 0 to {}", file_, key, number, kMost);
  for (const GgufName& name : family.names) {
    by_gguf_[name.gguf] = &name;
    by_hf_[name.hf].push_back(&name);
  }
}

// Returns the table's entry for the tensor `module` + `ending`, and sets `ending` to "". If there is no such entry,
// returns the entry for the module and keeps `ending`. Returns nullptr when the family's table has neither.
const GgufName* GgufPlaces::find_gguf(const std::string& module, std::string& ending) const {
  if (const auto whole = by_gguf_.find(module + ending); whole != by_gguf_.end()) {
    ending.clear();
    return whole->second;
  }
  const auto found = by_gguf_.find(module);
  return found != by_gguf_.end() && (ending == ".weight" || ending == ".bias") ? found->second : nullptr;
}

void GgufPlaces::add(const GgufTensor& tensor, std::vector<TensorEntry>& entries) const {
  if (is_table_of_rope(tensor.name)) return;
  ModuleName name = split_name(tensor.name);
  if (name.layer && *name.layer >= heads_.layers) return;
  const GgufName* found = find_gguf(name.module, name.ending);
  if (found == nullptr)
    throw UserError("{}: the tensor '{}' is unknown for the architecture '{}' ({}); Fettle does not support this model",
                    file_, tensor.name, family_.architecture, family_.model_type);
  if (tensor.type->decode == nullptr)
    throw UserError("{}: tensor '{}' has the type {}, which Fettle does not read; take a file of type {}", file_,
                    tensor.name, tensor.type->name, kReadTypes);
  const std::string layer_name = name.layer ? with_number(found->hf, *name.layer) : found->hf;
  TensorEntry entry = place(tensor, *found, layer_name, name.ending);
  if (has_pieces(found->form)) {
    entry.name = layer_name + name.ending;
    return add_pieces(tensor, found->form, std::move(entry), entries);
  }
  if (layer_name.find("{}") == std::string::npos) {
    entry.name = layer_name + name.ending;
    entries.push_back(std::move(entry));
    return;
  }
  if (tensor.dims.size() < 2) throw UserError("{}: tensor '{}' has no dim for experts", file_, tensor.name);
  const int64_t experts = entry.shape.dims.front();
  if (experts > kMostExperts)
    throw UserError("{}: tensor '{}' has {} experts; Fettle reads up to {}", file_, tensor.name, experts, kMostExperts);
  entry.shape.dims.erase(entry.shape.dims.begin());
  if (experts > 0) entry.bytes /= experts;
  for (int64_t expert = 0; expert < experts; ++expert) {
    entry.name = with_number(layer_name, expert) + name.ending;
    entries.push_back(entry);
    entry.offset += entry.bytes;
  }
}

// Returns the pieces of a tensor of this form, in the order of the file.
std::vector<GgufPiece> GgufPlaces::pieces_of(GgufForm form) const {
  std::vector<GgufPiece> pieces;
  const auto add_part = [&](int64_t groups, const Dims& sizes, size_t part) {
    int64_t all = 0, before = 0;
    for (size_t i = 0; i < sizes.size(); ++i) all += sizes[i], before += i < part ? sizes[i] : 0;
    for (int64_t group = 0; group < groups; ++group)
      pieces.push_back(
          {group * all + before, sizes[part], group * static_cast<int64_t>(sizes.size()) + static_cast<int64_t>(part)});
  };
  const Dims head{heads_.plain_dim, heads_.value_dim};
  const int64_t values = heads_.groups > 0 ? heads_.values / heads_.groups * heads_.value_dim : 0;
  const Dims group{heads_.key_dim, heads_.key_dim, values, values};
  if (form == GgufForm::kKeysOfHeads) add_part(heads_.heads, head, 0);
  if (form == GgufForm::kValuesOfHeads) add_part(heads_.heads, head, 1);
  for (const size_t part : {0, 1, 2})
    if (form == GgufForm::kQkv) add_part(heads_.groups, group, part);
  if (form == GgufForm::kGate) add_part(heads_.groups, group, 3);
  const Dims expert{heads_.expert_size, heads_.expert_size};
  if (form == GgufForm::kGatesOfExperts) add_part(heads_.experts, expert, 0);
  if (form == GgufForm::kUpsOfExperts) add_part(heads_.experts, expert, 1);
  if (form == GgufForm::kExperts) add_part(heads_.experts, {heads_.width}, 0);
  if (form == GgufForm::kGateUpOfExperts) add_part(heads_.experts, {2 * heads_.expert_size}, 0);
  const int64_t packed = heads_.heads * heads_.head_dim;
  for (const auto& [packs, part] : {std::pair{GgufForm::kPackedQ, 0}, {GgufForm::kPackedK, 1}, {GgufForm::kPackedV, 2}})
    if (form == packs) add_part(1, {packed, packed, packed}, static_cast<size_t>(part));
  const Dims shared{heads_.shared_size, heads_.shared_size};
  if (form == GgufForm::kGates) add_part(1, shared, 0);
  if (form == GgufForm::kUps) add_part(1, shared, 1);
  const auto add_columns = [&](int64_t size, int64_t each, int64_t part, bool in_turns) {
    for (int64_t expert = 0; expert < heads_.experts; ++expert)
      pieces.push_back({(expert * each + (in_turns ? 0 : part)) * size + (in_turns ? part : 0), size,
                        expert * each + part, in_turns ? each : 1});
  };
  if (form == GgufForm::kGatesInColumns) add_columns(heads_.expert_size, 2, 0, false);
  if (form == GgufForm::kUpsInColumns) add_columns(heads_.expert_size, 2, 1, false);
  if (form == GgufForm::kGatesInTurns) add_columns(heads_.expert_size, 2, 0, true);
  if (form == GgufForm::kUpsInTurns) add_columns(heads_.expert_size, 2, 1, true);
  if (form == GgufForm::kDownInColumns) add_columns(heads_.width, 1, 0, false);
  return pieces;
}

// Adds an entry for each piece. `entry` is the whole tensor of the file, with the name of the checkpoint's tensor.
void GgufPlaces::add_pieces(const GgufTensor& tensor, GgufForm form, TensorEntry entry,
                            std::vector<TensorEntry>& entries) const {
  const std::vector<GgufPiece> pieces = pieces_of(form);
  const bool of_heads = form == GgufForm::kKeysOfHeads || form == GgufForm::kValuesOfHeads,
             of_experts = is_of_experts(form), columns_apart = !pieces.empty() && pieces[0].step > 0,
             flipped = form == GgufForm::kKeysOfHeads;
  int64_t rows = 0;
  for (const GgufPiece& piece : pieces) rows += piece.count;
  const Dims& dims = tensor.dims;
  const bool fits = of_heads ? dims.size() == 3 && dims[0] == heads_.heads &&
                                   dims[flipped ? 2 : 1] == (flipped ? heads_.plain_dim : heads_.value_dim)
                    : of_experts ? (dims.size() == 3 || (columns_apart && dims.size() == 2)) &&
                                       dims[0] == heads_.experts && dims[0] * dims[1] == rows
                                 : dims.size() == 2 && dims[0] == rows;
  if (!fits || rows == 0) {
    const std::string wanted =
        flipped      ? fmt::format("[{}, any, {}]", heads_.heads, heads_.plain_dim)
        : of_heads   ? fmt::format("[{}, {}, any]", heads_.heads, heads_.value_dim)
        : of_experts ? fmt::format("[{}, {}, any]", heads_.experts, rows / std::max<int64_t>(1, heads_.experts))
                     : fmt::format("[{}, any]", rows);
    const char* keys =
        flipped      ? "attention.head_count, attention.key_length_mla"
        : of_heads   ? "attention.head_count, attention.value_length_mla"
        : of_experts ? "expert_count, expert_feed_forward_length, embedding_length"
        : form == GgufForm::kQkv || form == GgufForm::kGate  ? "ssm.group_count, ssm.time_step_rank, ssm.state_size"
        : form == GgufForm::kGates || form == GgufForm::kUps ? "feed_forward_length, expert_shared_feed_forward_length"
                                                             : "embedding_length";
    throw UserError("{}: tensor '{}' has the dims {}, wanted {} from the keys {}; download the file again", file_,
                    tensor.name, to_string(dims), wanted, keys);
  }
  const PieceName whole{entry.name, of_experts ? heads_.experts : 0, columns_apart,
                        form == GgufForm::kGatesInTurns || form == GgufForm::kUpsInTurns};
  const int64_t columns = columns_apart && dims.size() == 2 ? 1 : dims[flipped ? 1 : dims.size() - 1];
  for (const GgufPiece& piece : pieces) {
    entry.name = name_of_piece(whole, piece.position);
    entry.shape.dims = {piece.count, columns};
    entry.bytes = tensor.bytes * piece.count / rows;
    if (flipped) entry.strides = {1, piece.count};
    entries.push_back(entry);
    entry.offset += entry.bytes;
  }
}

TensorEntry GgufPlaces::place(const GgufTensor& tensor, const GgufName& name, const std::string& hf,
                              const std::string& ending) const {
  TensorEntry entry{tensor.name, {dtype_of_type(*tensor.type), tensor.dims}, tensor.offset, tensor.bytes, {}};
  Encoding encoding{tensor.type};
  if (family_.storage.pairs_rows && (hf.ends_with(".q_proj") || hf.ends_with(".k_proj")))
    encoding.swap = swap(tensor, hf.ends_with(".q_proj") ? heads_.heads : heads_.kv_heads, 2);
  if (name.form == GgufForm::kPackedQ || name.form == GgufForm::kPackedK) encoding.swap = swap(tensor, heads_.heads, 2);
  if (family_.storage.parts_first && hf.ends_with(".query_key_value")) encoding.swap = swap_parts(tensor);
  if (family_.storage.adds_one && name.gguf.ends_with("norm") && !name.gguf.ends_with("ssm_norm") &&
      ending == ".weight")
    encoding.shift = -1;
  if (family_.storage.spreads_values && !tensor.dims.empty()) {
    const int64_t rows = tensor.dims.front(), keys = 2 * heads_.groups * heads_.key_dim;
    if (hf.ends_with("linear_attn.in_proj_qkv") || hf.ends_with("linear_attn.conv1d"))
      encoding.swap = swap_values(tensor, keys, rows);
    for (const char* module : {"in_proj_z", "in_proj_a", "in_proj_b", "A_log", "dt_bias"})
      if (hf.ends_with(std::string("linear_attn.") + module)) encoding.swap = swap_values(tensor, 0, rows);
    if (hf.ends_with("linear_attn.out_proj")) encoding.column_swap = swap_values(tensor, 0, tensor.dims.back());
  }
  encoding.log_of_negative = name.form == GgufForm::kNegativeColumn || name.form == GgufForm::kNegative;
  if (!tensor.type->is_float() || encoding.swap.swaps() || encoding.column_swap.swaps() || encoding.shift != 0 ||
      encoding.log_of_negative)
    entry.encoding = encoding;
  if (transposes(hf + ending, tensor.dims)) {
    entry.shape.dims = {tensor.dims[1], tensor.dims[0]};
    entry.strides = {1, tensor.dims[1]};
  }
  if (ending == ".bias" || name.form == GgufForm::kSame) return entry;
  if (name.form != GgufForm::kSqueezed)
    entry.shape.dims = {product(tensor.dims)};
  else if (tensor.dims.size() == 2)
    entry.shape.dims = {tensor.dims[0], 1, tensor.dims[1]};
  return entry;
}

bool GgufPlaces::transposes(const std::string& hf, const Dims& dims) const {
  return family_.storage.transposes && hf.ends_with(".weight") && dims.size() == 2 &&
         hf.find(".c_") != std::string::npos;
}

// Returns the swap for the rows of q or k. `parts` is 2: each head has two halves, and rope turns row i of the first
// half together with row i of the second half. Hugging Face stores the rows in the order (half, i). The file stores
// them in the order (i, half).
RowSwap GgufPlaces::swap(const GgufTensor& tensor, int64_t heads, int64_t parts) const {
  const int64_t rows = tensor.dims.front();
  if (heads <= 0 || rows % (heads * parts) != 0)
    throw UserError(
        "{}: tensor '{}' has {} rows, wanted a multiple of {} x {} heads (attention.head_count, for keys "
        "attention.head_count_kv)",
        file_, tensor.name, rows, parts, heads);
  return {.first = parts, .second = rows / heads / parts, .inner = 1};
}

// Returns the swap for the rows or columns [begin, size), which belong to the value heads of linear attention. Hugging
// Face stores the heads in the order (key head, its value heads). The file stores first the first value heads of all
// key heads, then the second ones, and so on.
RowSwap GgufPlaces::swap_values(const GgufTensor& tensor, int64_t begin, int64_t size) const {
  const int64_t heads = heads_.values, groups = heads_.groups;
  if (groups <= 0 || heads <= 0 || heads % groups != 0 || size <= begin || (size - begin) % heads != 0)
    throw UserError(
        "{}: tensor '{}' has {} rows or columns, which do not fit {} value heads (ssm.time_step_rank) and {} key heads "
        "(ssm.group_count)",
        file_, tensor.name, size, heads, groups);
  return {.first = groups, .second = heads / groups, .inner = (size - begin) / heads, .begin = begin};
}

// Returns the swap for the rows of a fused q|k|v (GgufStorage::parts_first).
RowSwap GgufPlaces::swap_parts(const GgufTensor& tensor) const {
  const int64_t rows = tensor.dims.front();
  const int64_t heads = heads_.heads;
  if (heads <= 0 || rows % (heads * 3) != 0)
    throw UserError("{}: tensor '{}' has {} rows, wanted a multiple of 3 x {} heads (attention.head_count)", file_,
                    tensor.name, rows, heads);
  return {.first = heads, .second = 3, .inner = rows / heads / 3};
}

// Returns the table's entries for the tensor with this pattern. Sets `ending` to what must follow the entries' names:
// ".weight", ".bias" or "". Returns none when the family's table does not have the tensor.
std::vector<const GgufName*> GgufPlaces::find_hf(const std::string& pattern, std::string& ending) const {
  if (const auto whole = by_hf_.find(pattern); whole != by_hf_.end()) {
    ending.clear();
    return whole->second;
  }
  const size_t dot = std::min(pattern.rfind('.'), pattern.size());
  ending = pattern.substr(dot);
  const auto found = by_hf_.find(pattern.substr(0, dot));
  if (found == by_hf_.end() || (ending != ".weight" && ending != ".bias")) return {};
  return found->second;
}

std::vector<GgufTarget> GgufPlaces::find(const std::string& hf) const {
  const NumberedName name = split_numbers(without_wrapper(hf));
  std::string ending;
  std::vector<GgufTarget> targets;
  if (name.numbers.size() > 2) return targets;
  for (const GgufName* found : find_hf(name.pattern, ending)) {
    GgufTarget target{found->gguf, std::nullopt, pieces_of(found->form)};
    if (!name.numbers.empty()) target.tensor = with_number(target.tensor, name.numbers[0]);
    if (name.numbers.size() == 2) target.expert = name.numbers[1];
    target.tensor += ending;
    targets.push_back(std::move(target));
  }
  return targets;
}

Dims GgufPlaces::stored_dims(const GgufTarget& target, const std::string& hf, const Dims& dims) const {
  std::string ending;
  const std::vector<const GgufName*> found = find_hf(split_numbers(without_wrapper(hf)).pattern, ending);
  const GgufForm form = found.empty() || ending == ".bias" ? GgufForm::kSame : found[0]->form;
  if (!target.pieces.empty()) {
    int64_t rows = 0;
    for (const GgufPiece& piece : target.pieces) rows += piece.count;
    if (target.pieces[0].step > 0)
      return dims.size() == 3 ? Dims{dims[0], target.pieces[0].count, dims[1]} : Dims{dims[0], target.pieces[0].count};
    if (dims.size() == 3) return {dims[0], target.pieces[0].count, dims[2]};
    if (form != GgufForm::kKeysOfHeads && form != GgufForm::kValuesOfHeads) return {rows, dims[1]};
    const int64_t size = target.pieces[0].count;
    return target.pieces[0].position == 0 ? Dims{heads_.heads, dims[1], size} : Dims{heads_.heads, size, dims[1]};
  }
  if (form == GgufForm::kSqueezed && dims.size() == 3) return {dims[0], dims[2]};
  if (form == GgufForm::kColumn || form == GgufForm::kNegativeColumn) return {dims[0], 1};
  if (form == GgufForm::kGrouped) return {heads_.groups, dims[0] / heads_.groups};
  return transposes(hf, dims) ? Dims{dims[1], dims[0]} : dims;
}

}  // namespace fettle
