#include "checkpoint/quantised/load_groups.h"

#include <algorithm>
#include <cstring>

#include "base/arrays/box_copy.h"
#include "base/error.h"
#include "checkpoint/convert.h"
#include "checkpoint/quantised/expert_modules.h"
#include "checkpoint/quantised/group_codes.h"
#include "checkpoint/quantised/not_stored.h"

namespace fettle {
namespace {

// Returns the tensors of the weight. Throws UserError when one is not stored as the format says.
std::vector<LayerTensor> find_grouped(const QuantisedWeight& weight, const FindTensor& find) {
  std::vector<LayerTensor> layers = find_layers(weight.base, find);
  for (const auto& [file, entry] : layers) {
    if (entry.joined_experts && std::ranges::all_of(entry.joined_experts->entries,
                                                    [](const TensorEntry& module) { return module.groups != nullptr; }))
      continue;
    if (!entry.groups) throw not_stored(*file, entry, fmt::format("as {}", weight.format.name()));
    const GroupParts& parts = *entry.groups;
    if (weight.format.any_order || parts.order_file == nullptr) continue;
    GroupParts in_order = parts;
    in_order.order_file = nullptr;
    if (groups_of_inputs(parts) == groups_of_inputs(in_order)) continue;
    const bool packed = parts.storage.packing == GroupStorage::Packing::kPacked;
    throw UserError(
        "{}: '{}' puts inputs that are not successive into one group, but quantization_config in config.json says that "
        "a group has successive inputs; write {} into quantization_config",
        parts.order_file->path().string(), parts.order.name, packed ? R"("actorder": "group")" : R"("desc_act": true)");
  }
  return layers;
}

// Calls use(source, count, target) for each range of successive elements of the box that lies within one row. `source`
// is the number of the first element in an array with these dims, `target` is its number in the dense box.
template <typename Use>
void for_rows(const Box& box, const Dims& dims, const Use& use) {
  const int64_t columns = dims.back();
  for_each_run(box, dims, box.size, Dims(box.size.size(), 0), [&](int64_t source, int64_t target, int64_t count) {
    for (int64_t end = source + count; source < end;) {
      const int64_t some = std::min(end - source, columns - source % columns);
      use(source, some, target);
      source += some, target += some;
    }
  });
}

// Reads the codes of a box into `out`. If `four_bits`, the array is [out.., in / 2] and a byte has two codes; otherwise
// it is [out.., in].
void read_codes(const GroupParts& parts, bool four_bits, const Box& box, const Dims& dims, std::byte* out) {
  const int64_t per_byte = four_bits ? 2 : 1;
  std::vector<uint8_t> codes;
  for_rows(box, dims, [&](int64_t source, int64_t count, int64_t target) {
    codes.resize(static_cast<size_t>(count * per_byte));
    read_group_codes(parts, source * per_byte, codes);
    for (int64_t i = 0; i < count; ++i) {
      const auto at = static_cast<size_t>(i * per_byte);
      out[target + i] = static_cast<std::byte>(four_bits ? codes[at] | codes[at + 1] << 4 : codes[at]);
    }
  });
}

// Reads a box of the array [out.., groups] into `out`. If `dtype` is u8, the array has the zeros; otherwise it has the
// scales, converted to `dtype`.
void read_of_groups(const GroupParts& parts, DType dtype, const Box& box, const Dims& dims, std::byte* out) {
  const int64_t groups = dims.back();
  int64_t first = 0, last = 0;  // row-major indices of the box's first and last element
  for (size_t d = 0; d < dims.size(); ++d) {
    first = first * dims[d] + box.start[d];
    last = last * dims[d] + box.start[d] + box.size[d] - 1;
  }
  const int64_t first_row = first / groups;
  const GroupRows rows(parts, first_row, last / groups + 1);
  for_rows(box, dims, [&](int64_t source, int64_t count, int64_t target) {
    const auto at = static_cast<size_t>(source - first_row * groups);
    if (dtype == DType::kU8)
      std::memcpy(out + target, rows.zeros().data() + at, static_cast<size_t>(count));
    else
      convert_elements(reinterpret_cast<const std::byte*>(rows.scales().data() + at), DType::kF32,
                       out + target * byte_size(dtype), dtype, count);
  });
}

}  // namespace

std::vector<DeviceBuffer> load_groups(const Client& client, const QuantisedWeight& weight,
                                      const std::vector<Layout>& layouts, const FindTensor& find,
                                      const LoadProgress& progress, const std::string& memory_kind) {
  std::vector<LayerTensor> layers = find_grouped(weight, find);
  const bool four_bits = weight.format.four_bits();
  std::vector<DeviceBuffer> out;
  for (size_t i = 0; i < weight.parts.size(); ++i) {
    const Param& part = weight.parts[i];
    const DType dtype = *part.dtype;
    Dims dims = part.dims;
    if (weight.base.of_experts()) dims.erase(dims.begin());
    for (LayerTensor& layer : layers) layer.entry.shape = {dtype, dims};
    const auto read_module = [&, i](const GroupParts& parts, const Box& box, const Dims& of_module, std::byte* to) {
      if (i == 0) return read_codes(parts, four_bits, box, of_module, to);
      if (i < 3) return read_of_groups(parts, dtype, box, of_module, to);
      const std::vector<int32_t> order = groups_of_inputs(parts);
      std::memcpy(to, order.data() + box.start[0], static_cast<size_t>(box.size[0]) * sizeof(int32_t));
    };
    const LayerReads reads{.read =
                               [&](size_t layer, const Box& box, std::byte* to) {
                                 const TensorEntry& entry = layers[layer].entry;
                                 for_modules(
                                     entry, box, dims, byte_size(dtype), to,
                                     [&](const TensorEntry& module, const Box& part, const Dims& of_module,
                                         std::byte* place) { read_module(*module.groups, part, of_module, place); });
                               },
                           .done = {}};
    out.push_back(load_layers(client, stacked_shape(part, dtype), layouts[i], layers,
                              i == 0 ? progress : LoadProgress{}, memory_kind, reads));
  }
  return out;
}

}  // namespace fettle
