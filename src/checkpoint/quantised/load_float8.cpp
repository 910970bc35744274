#include "checkpoint/quantised/load_float8.h"

#include "base/arrays/box_copy.h"
#include "base/error.h"
#include "checkpoint/quantised/expert_modules.h"
#include "checkpoint/quantised/not_stored.h"

namespace fettle {
namespace {

// Throws UserError unless the tensor is in 8-bit floats and each block of `rows` x `columns` values has one factor.
void check_stored(const TensorEntry& entry, const TensorFile& file, const Quantisation& format, int64_t rows,
                  int64_t columns) {
  if (!entry.float8) throw not_stored(file, entry, "in 8-bit floats");
  const Float8Parts& parts = *entry.float8;
  const Dims& dims = parts.codes.shape.dims;
  auto whole = [](int64_t block, int64_t of_file, int64_t dim) { return of_file >= dim || of_file % block == 0; };
  if (whole(rows, parts.block_rows, dims[dims.size() - 2]) && whole(columns, parts.block_columns, dims.back())) return;
  throw UserError(
      "{}: '{}' has a factor for each block of {} x {} values, but quantization_config in config.json says: {}; "
      "correct quantization_config (fp8: weight_block_size, compressed-tensors: strategy and block_structure)",
      parts.factors_file->path().string(), parts.factors.name, parts.block_rows, parts.block_columns, format.name());
}

// Returns the tensors of the weight.
std::vector<LayerTensor> find_float8(const QuantisedWeight& weight, const FindTensor& find) {
  std::vector<LayerTensor> layers = find_layers(weight.base, find);
  const Dims &codes = weight.parts[0].dims, &factors = weight.parts[1].dims;
  const size_t columns = codes.size() - 1, rows = columns - 1;
  for (const auto& [file, entry] : layers) {
    const std::vector<TensorEntry> single{entry};
    for (const TensorEntry& module : entry.joined_experts ? entry.joined_experts->entries : single)
      check_stored(module, *file, weight.format, codes[rows] / factors[rows], codes[columns] / factors[columns]);
  }
  return layers;
}

// Reads a box of the factors into `out`. The factors have the dims `blocks`, the weight has the dims `codes`.
void read_factors(const Float8Parts& parts, const Dims& codes, const Box& box, const Dims& blocks, float* out) {
  const HostArray stored = parts.factors_file->read(parts.factors).to(DType::kF32);
  for_each_run(box, blocks, box.size, Dims(box.size.size(), 0), [&](int64_t source, int64_t target, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      int64_t rest = source + i, element = 0, stride = 1;  // element: the first element of the block
      for (size_t d = codes.size(); d-- > 0; rest /= blocks[d], stride *= codes[d])
        element += rest % blocks[d] * (codes[d] / blocks[d]) * stride;
      out[target + i] = stored.as<float>()[static_cast<size_t>(parts.factor_of(element))];
    }
  });
}

}  // namespace

std::vector<DeviceBuffer> load_float8(const Client& client, const QuantisedWeight& weight,
                                      const std::vector<Layout>& layouts, const FindTensor& find,
                                      const LoadProgress& progress, const std::string& memory_kind) {
  const std::vector<LayerTensor> layers = find_float8(weight, find);
  std::vector<Dims> dims;  // the dims of each part of one tensor
  for (const Param& part : weight.parts) {
    dims.push_back(part.dims);
    if (weight.base.of_experts()) dims.back().erase(dims.back().begin());
  }
  std::vector<DeviceBuffer> out;
  for (size_t i = 0; i < 2; ++i) {
    std::vector<LayerTensor> shaped = layers;
    for (LayerTensor& layer : shaped) layer.entry.shape = {*weight.parts[i].dtype, dims[i]};
    const auto read = [&, i](size_t layer, const Box& box, std::byte* to) {
      for_modules(layers[layer].entry, box, dims[i], byte_size(*weight.parts[i].dtype), to,
                  [&](const TensorEntry& module, const Box& part, const Dims& blocks, std::byte* place) {
                    const Float8Parts& parts = *module.float8;
                    const Dims of_codes(dims[0].end() - static_cast<std::ptrdiff_t>(blocks.size()), dims[0].end());
                    if (i == 1) return read_factors(parts, of_codes, part, blocks, reinterpret_cast<float*>(place));
                    TensorEntry codes = parts.codes;
                    codes.shape = {DType::kU8, of_codes};
                    parts.codes_file->read_slice(codes, part, place);
                  });
    };
    out.push_back(load_layers(client, stacked_shape(weight.parts[i], *weight.parts[i].dtype), layouts[i], shaped,
                              i == 0 ? progress : LoadProgress{}, memory_kind, {.read = read, .done = {}}));
  }
  return out;
}

}  // namespace fettle
