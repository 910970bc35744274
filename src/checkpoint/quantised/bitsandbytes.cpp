#include "checkpoint/quantised/bitsandbytes.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "adapters/block_codes.h"
#include "base/error.h"
#include "base/json_text.h"

namespace fettle {
namespace {

constexpr int64_t kBlock = Quantisation::kBlock, kNestedBlock = Quantisation::kNestedBlock;

int64_t blocks_of(int64_t elements, int64_t block) {
  return (elements + block - 1) / block;
}

void check_dtype_and_elements(const StoredTensor& stored, const std::string& name, DType dtype, int64_t elements) {
  const Shape& shape = stored.entry->shape;
  if (shape.dtype != dtype || shape.elements() != elements || !stored.entry->dense())
    throw UserError("{}: '{}' is {}, wanted {} elements of dtype {}, because config.json describes a quantised weight",
                    stored.file->path().string(), name, shape.to_string(), elements, safetensors_name(dtype));
}

void check_map(const StoredTensor& stored, const std::string& name, const std::vector<float>& wanted) {
  check_dtype_and_elements(stored, name, DType::kF32, static_cast<int64_t>(wanted.size()));
  const HostArray map = stored.file->read(*stored.entry);
  for (size_t i = 0; i < wanted.size(); ++i)
    if (std::abs(map.as<float>()[i] - wanted[i]) > 1e-6f)
      throw UserError(
          "{}: '{}' has the value {} for code {}, but bitsandbytes' map has {}; other maps are not supported",
          stored.file->path().string(), name, map.as<float>()[i], i, wanted[i]);
}

// Reads the settings from a ".quant_state" tensor.
nlohmann::json state_of(const StoredTensor& stored, const std::string& name) {
  nlohmann::json state;
  stored.file->with_bytes(*stored.entry, [&](std::span<const std::byte> bytes) {
    state = parse_json_or_discard<nlohmann::json>({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  });
  if (!state.is_object())
    throw UserError("{}: '{}' is not a JSON object with the settings of a quantised weight",
                    stored.file->path().string(), name);
  return state;
}

// Throws UserError unless the tensor `name` is missing or has the value 0 (row-major). The values 1 to 3 mean tiled
// orders, each for one kind of GPU. The first versions of bitsandbytes wrote no such tensor; their weights are
// row-major.
// Adds the tensor to `names`.
void check_row_major(const FindTensor& find, const std::string& name, std::set<std::string>& names) {
  StoredTensor stored;
  try {
    stored = find(name);
  } catch (const UserError&) {
    return;
  }
  names.insert(stored.entry->name);
  check_dtype_and_elements(stored, name, DType::kU8, 1);
  if (const auto format = static_cast<int>(stored.file->read(*stored.entry).data()[0]); format != 0)
    throw UserError(
        "{}: '{}' is {}, wanted 0 (row-major): the codes are in another order; save the model again with bitsandbytes",
        stored.file->path().string(), name, format);
}

std::string state_name_of(const std::string& name, const Quantisation& format) {
  return name + ".quant_state.bitsandbytes__" + (format.type == Quantisation::Type::kNf4 ? "nf4" : "fp4");
}

}  // namespace

Dims dims_of_quantised(const FindTensor& find, const std::string& name, const Quantisation& format) {
  if (!format.four_bits()) return find(name).entry->shape.dims;
  const std::string state_name = state_name_of(name, format);
  const StoredTensor stored = find(state_name);
  const nlohmann::json dims = state_of(stored, state_name).value("shape", nlohmann::json());
  const bool counts = dims.is_array() && !dims.empty() && std::ranges::all_of(dims, [](const nlohmann::json& dim) {
                        return dim.is_number_unsigned() && dim > 0 && dim < int64_t{1} << 31;
                      });
  if (!counts || dims.size() > 4)
    throw UserError("{}: '{}' has the shape {}, wanted a list of the weight's dims", stored.file->path().string(),
                    state_name, dims.dump());
  return dims.get<Dims>();
}

StoredQuantised find_quantised(const FindTensor& find, const std::string& name, const Dims& dims,
                               const Quantisation& format) {
  StoredQuantised out;
  auto get = [&](const std::string& tensor) {
    const StoredTensor stored = find(tensor);
    out.names.insert(stored.entry->name);
    return stored;
  };
  const int64_t elements = product(dims);
  out.codes = get(name);
  if (!format.four_bits()) {
    check_dtype_and_elements(out.codes, name, DType::kI8, elements);
    const std::string module = module_of(name);
    out.absmax = get(module + ".SCB");
    check_dtype_and_elements(out.absmax, module + ".SCB", DType::kF32, elements / dims.back());
    check_row_major(find, module + ".weight_format", out.names);
    return out;
  }
  const int64_t blocks = blocks_of(elements, kBlock);
  check_dtype_and_elements(out.codes, name, DType::kU8, (elements + 1) / 2);
  out.absmax = get(name + ".absmax");
  check_dtype_and_elements(out.absmax, name + ".absmax", format.nested ? DType::kU8 : DType::kF32, blocks);
  check_map(get(name + ".quant_map"), name + ".quant_map", values_of(format.type));
  const std::string type = format.type == Quantisation::Type::kNf4 ? "nf4" : "fp4";
  const std::string state_name = state_name_of(name, format);
  const StoredTensor stored_state = get(state_name);
  const nlohmann::json state = state_of(stored_state, state_name);
  auto expect = [&](const char* key, const nlohmann::json& wanted) {
    const nlohmann::json found = state.value(key, nlohmann::json());
    if (found != wanted)
      throw UserError("{}: '{}' has {} {}, wanted {}; other formats are not supported",
                      stored_state.file->path().string(), state_name, key, found.dump(), wanted.dump());
  };
  expect("quant_type", type);
  expect("blocksize", kBlock);
  expect("shape", dims);
  if (!format.nested) return out;
  expect("nested_blocksize", kNestedBlock);
  out.nested_absmax = get(name + ".nested_absmax");
  check_dtype_and_elements(out.nested_absmax, name + ".nested_absmax", DType::kF32, blocks_of(blocks, kNestedBlock));
  check_map(get(name + ".nested_quant_map"), name + ".nested_quant_map", nested_values());
  if (const auto offset = state.find("nested_offset"); offset == state.end() || !offset->is_number())
    throw UserError("{}: '{}' has no nested_offset, wanted a number", stored_state.file->path().string(), state_name);
  out.nested_offset = state["nested_offset"].get<float>();
  return out;
}

}  // namespace fettle
