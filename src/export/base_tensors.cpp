#include "export/base_tensors.h"

#include <algorithm>
#include <set>

#include "adapters/block_codes.h"
#include "adapters/quantised.h"
#include "base/error.h"
#include "checkpoint/load.h"
#include "checkpoint/quantised/bitsandbytes.h"

namespace fettle {
namespace {

constexpr int64_t kBlock = Quantisation::kBlock;
constexpr int64_t kPiece = int64_t{1} << 20;  // elements that are quantised at a time

FindTensor find_in(const ModelRepository& repository) {
  return [&repository](const std::string& name) { return repository.find(name); };
}

}  // namespace

BaseTensors::BaseTensors(const ModelRepository& repository, const Model& model,
                         const std::optional<Quantisation>& format, TensorNames names)
    : repository_(repository), model_(model), format_(format) {
  std::map<std::string, const Param*> quantised;
  std::set<std::string> parts;
  if (format)
    for (const Param& param : model.params)
      if (is_quantised(param, *format, model.config.quantisation || model.config.mxfp4))
        for (int64_t i = 0; i < param.stored_count(); ++i) {
          const std::string name = param.stored_name(i);
          if (any_names(model.config.in_floats, module_of(name))) continue;
          quantised[name] = &param;
          if (model.config.quantisation)
            parts.merge(find_quantised(find_in(repository), name, param.stored_dims(), *format).names);
        }
  struct Use {
    std::string name;  // the parameter's name
    const Param* param;
  };
  std::map<std::string, Use> of_params;  // by the tensor's name in the file
  for (const Param& param : model.params)
    for (int64_t i = 0; i < param.stored_count(); ++i)
      if (const std::string name = param.stored_name(i); repository.contains(name))
        of_params[repository.find(name).entry->name] = {name, &param};
  for (const StoredTensor& stored : repository.tensors()) {
    const TensorEntry& entry = *stored.entry;
    const auto param = of_params.find(entry.name);
    if (names == TensorNames::kOfParams && param == of_params.end()) continue;
    if (param == of_params.end() && is_added_bias(repository, entry.name)) continue;
    const std::string& name = param == of_params.end() ? entry.name : param->second.name;
    const auto at = quantised.find(name);
    if (at == quantised.end() && parts.contains(entry.name)) continue;
    BaseTensor tensor{names == TensorNames::kOfParams ? name : entry.name, name, entry.shape, stored};
    if (param != of_params.end()) tensor.used_by = param->second.param;
    tensor.of_later_layer = is_of_later_layer(*model.family, model.config, entry.name);
    if (at != quantised.end()) {
      tensor.quantised = at->second;
      tensor.shape.dims = at->second->stored_dims();
      if (model.config.quantisation) tensor.shape.dtype = model.config.dtype;
    }
    index_[tensor.param] = all_.size();
    all_.push_back(std::move(tensor));
  }
}

void BaseTensors::add(const std::string& name, const StoredTensor& stored) {
  index_[name] = all_.size();
  all_.push_back({name, name, stored.entry->shape.with_dtype(model_.config.dtype), stored});
}

const BaseTensor& BaseTensors::find(const std::string& name) const {
  const auto at = index_.find(name);
  if (at != index_.end()) return all_[at->second];
  repository_.find(name);  // if the files lack the name, throws an error that lists similar names
  throw UserError(
      "{}: '{}' is only a part of a quantised weight, not a weight; the adapter belongs to another model, or "
      "the base has an unknown quantised form",
      repository_.folder().string(), name);
}

ValueReader::ValueReader(const BaseTensors& tensors, const BaseTensor& tensor)
    : tensor_(tensor),
      format_(tensors.format_.value_or(Quantisation{})),
      held_(tensors.model_.config.dtype),
      rounds_decoded_(tensors.rounds_decoded_) {
  if (tensor.quantised == nullptr) return;
  if (tensors.model_.config.quantisation)
    take_stored(tensors);
  else
    quantise();
}

void ValueReader::quantise() {
  const auto& [file, entry] = tensor_.stored;
  const Dims& dims = tensor_.shape.dims;
  // A tensor with all experts has one matrix for each expert.
  const int64_t experts = dims.size() == 3 ? dims[0] : 1;
  const int64_t n = product(dims), columns = dims.back(), rows = n / columns, rows_of_one = rows / experts;
  internal_check(dims.size() == 2 || dims.size() == 3, "{}: only matrices can be quantised, its shape is {}",
                 tensor_.name, to_string(dims));
  const int64_t blocks = (n + kBlock - 1) / kBlock;
  codes_.resize(static_cast<size_t>(format_.four_bits() ? blocks * kBlock / 2 : n));
  absmax_.resize(static_cast<size_t>(format_.four_bits() ? blocks : rows));
  // The rows that are read at a time must consist of whole blocks.
  int64_t step = std::max<int64_t>(1, kPiece / columns);
  while (format_.four_bits() && step * columns % kBlock != 0) ++step;
  std::vector<float> values;
  for (int64_t row = 0, count = 0; row < rows; row += count) {
    const int64_t of_one = row % rows_of_one, first = row * columns;
    count = std::min(step, rows_of_one - of_one);
    values.resize(static_cast<size_t>(count * columns));
    Box box{{row / rows_of_one, of_one, 0}, {1, count, columns}};
    if (dims.size() == 2) box = {{row, 0}, {count, columns}};
    file->read_slice(*entry, box, DType::kF32, reinterpret_cast<std::byte*>(values.data()));
    if (format_.four_bits())
      quantise_blocks(format_.type, values, codes_.data() + first / 2, absmax_.data() + first / kBlock);
    else
      quantise_rows(values, columns, reinterpret_cast<int8_t*>(codes_.data()) + first, absmax_.data() + row);
  }
  if (!format_.nested) return;
  const size_t of_each = absmax_.size() / static_cast<size_t>(experts);
  for (size_t first = 0; first < absmax_.size(); first += of_each) {
    const std::span<float> of_one = std::span(absmax_).subspan(first, of_each);
    dequantise_absmax(quantise_absmax(of_one), 0, of_one);
  }
}

void ValueReader::take_stored(const BaseTensors& tensors) {
  const StoredQuantised stored =
      find_quantised(find_in(tensors.repository_), tensor_.param, tensor_.shape.dims, format_);
  stored.codes.file->with_bytes(*stored.codes.entry,
                                [&](std::span<const std::byte> bytes) { codes_.assign(bytes.begin(), bytes.end()); });
  const HostArray absmax = stored.absmax.file->read(*stored.absmax.entry);
  if (!format_.nested) {
    absmax_.assign(absmax.as<float>().begin(), absmax.as<float>().end());
    return;
  }
  const HostArray of_blocks = stored.nested_absmax.file->read(*stored.nested_absmax.entry);
  const NestedAbsmax nested{{absmax.as<uint8_t>().begin(), absmax.as<uint8_t>().end()},
                            {of_blocks.as<float>().begin(), of_blocks.as<float>().end()},
                            stored.nested_offset};
  absmax_.resize(nested.codes.size());
  dequantise_absmax(nested, 0, absmax_);
}

void ValueReader::read(const Box& box, float* out) const {
  if (tensor_.quantised == nullptr) {
    const TensorEntry& entry = *tensor_.stored.entry;
    if ((entry.encoding || entry.bitsandbytes || entry.joined || entry.joined_experts) && rounds_decoded_) {
      HostArray held({entry.shape.dtype, box.size});
      tensor_.stored.file->read_slice(entry, box, held.data());
      std::ranges::copy(held.to(DType::kF32).as<float>(), out);
    } else {
      tensor_.stored.file->read_slice(entry, box, DType::kF32, reinterpret_cast<std::byte*>(out));
    }
    return;
  }
  const Dims& dims = tensor_.shape.dims;
  const int64_t columns = dims.back(), rows = dims[dims.size() - 2];
  const int64_t width = box.size.back(), of_box = box.size[box.size.size() - 2];
  HostArray values({DType::kF32, box.size});
  const std::span<float> at = values.as<float>();
  const float* table = format_.four_bits() ? values_of(format_.type).data() : nullptr;
  for (int64_t i = 0; i < static_cast<int64_t>(at.size()); ++i) {
    const int64_t row = i / width, start = box.start[dims.size() - 2];
    const int64_t expert = dims.size() == 3 ? box.start[0] + row / of_box : 0;
    const int64_t element = (expert * rows + start + row % of_box) * columns + box.start.back() + i % width;
    if (format_.four_bits()) {
      const auto pair = static_cast<uint8_t>(codes_[element / 2]);
      at[i] = table[element % 2 == 0 ? pair >> 4 : pair & 15] * absmax_[element / kBlock];
    } else {
      at[i] = static_cast<float>(static_cast<int8_t>(codes_[element])) * (absmax_[element / columns] / 127);
    }
  }
  const HostArray held = values.to(held_).to(DType::kF32);
  std::ranges::copy(held.as<float>(), out);
}

}  // namespace fettle
