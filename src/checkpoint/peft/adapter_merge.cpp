#include "checkpoint/peft/adapter_merge.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "adapters/dora.h"
#include "base/error.h"
#include "base/parallel.h"
#include "checkpoint/peft/adapter_options.h"

namespace fettle {
namespace {

constexpr int64_t kNormBlockBytes = int64_t{4} << 20;  // bytes of the f32 values that are read at once to compute norms

HostArray transposed(const HostArray& x) {
  const int64_t rows = x.shape().dims[0], columns = x.shape().dims[1];
  HostArray out({DType::kF32, {columns, rows}});
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) out.as<float>()[j * rows + i] = x.as<float>()[i * columns + j];
  return out;
}

HostArray read_box(const AdapterFolder& adapter, const TensorEntry& entry, const Box& box, Dims dims) {
  HostArray out({DType::kF32, std::move(dims)});
  adapter.file.read_slice(entry, box, DType::kF32, out.data());
  return out;
}

}  // namespace

void TensorMerge::apply(const Box& box, const Dims& dims, float* values) const {
  if (empty() || box.elements() == 0) return;
  const int64_t columns = changes_[0].right.shape().dims[1], width = box.size.back();
  std::vector<float> sum(static_cast<size_t>(width));
  Dims at = box.start;
  for (int64_t run = box.elements() / width; run > 0; --run, values += width) {
    int64_t first = 0;
    for (size_t d = 0; d < dims.size(); ++d) first = first * dims[d] + at[d];
    const int64_t row = first / columns, column = first % columns;
    for (const Change& change : changes_) {
      const int64_t rank = change.left.shape().dims[1];
      const int64_t expert = row / (change.left.shape().dims[0] / change.experts);
      const float* left = change.left.as<float>().data() + row * rank;
      const float* rights = change.right.as<float>().data() + expert * rank * columns;
      std::fill(sum.begin(), sum.end(), 0.0f);
      for (int64_t k = 0; k < rank; ++k) {
        const float factor = left[k];
        const float* right = rights + k * columns + column;
        for (int64_t j = 0; j < width; ++j) sum[j] += factor * right[j];
      }
      for (int64_t j = 0; j < width; ++j) values[j] += change.scale * sum[j];
      if (change.factor.empty()) continue;
      for (int64_t j = 0; j < width; ++j) values[j] *= change.factor[change.by_column ? column + j : row];
    }
    for (size_t d = dims.size() - 1; d-- > 0;) {
      if (++at[d] < box.start[d] + box.size[d]) break;
      at[d] = box.start[d];
    }
  }
}

void TensorMerge::find_factor(const HostArray& magnitude, const Dims& dims, const ReadValues& read) {
  Change& change = changes_.back();
  const int64_t rows = dims[0], columns = dims[1];
  std::vector<double> square(static_cast<size_t>(change.by_column ? columns : rows), 0);
  const int64_t step = std::max<int64_t>(1, kNormBlockBytes / (4 * columns));
  // If outputs are columns, the sum of a column runs over all blocks in order, so only one thread computes it.
  parallel_for((rows + step - 1) / step, change.by_column ? 1 : copy_threads(), [&](int64_t block) {
    const Box box{{block * step, 0}, {std::min(step, rows - block * step), columns}};
    std::vector<float> values(static_cast<size_t>(box.elements()));
    read(box, values.data());
    apply(box, dims, values.data());
    for (int64_t i = 0; i < box.size[0]; ++i)
      for (int64_t j = 0; j < columns; ++j) {
        const double value = values[i * columns + j];
        square[change.by_column ? j : box.start[0] + i] += value * value;
      }
  });
  std::vector<float> factor(square.size());
  for (size_t i = 0; i < factor.size(); ++i)
    factor[i] = static_cast<float>(magnitude.as<float>()[i] / std::sqrt(std::max(square[i], kLeastSquare)));
  change.factor = std::move(factor);
}

// Turns A [E * r, in] and B [out, r * E] into the factors `left` and `right` of one matrix for each expert: [out, in]
// or, with `in_first`, [in, out].
TensorMerge::Change AdapterMerge::of_all_experts(const HostArray& a, const HostArray& b, int64_t experts,
                                                 bool in_first) {
  const int64_t rank = a.shape().dims[0] / experts, in = a.shape().dims[1], out = b.shape().dims[0];
  const int64_t rows = in_first ? in : out, columns = in_first ? out : in;
  TensorMerge::Change change;
  change.experts = experts;
  change.left = HostArray({DType::kF32, {experts * rows, rank}});
  change.right = HostArray({DType::kF32, {experts * rank, columns}});
  float *of_a = (in_first ? change.left : change.right).as<float>().data(),
        *of_b = (in_first ? change.right : change.left).as<float>().data();
  // A value of `left` is at [expert, row, k]; a value of `right` is at [expert, k, column].
  auto place = [&](bool left, int64_t expert, int64_t at, int64_t k) {
    return left ? (expert * rows + at) * rank + k : (expert * rank + k) * columns + at;
  };
  for (int64_t e = 0; e < experts; ++e)
    for (int64_t k = 0; k < rank; ++k) {
      for (int64_t i = 0; i < in; ++i) of_a[place(in_first, e, i, k)] = a.as<float>()[(e * rank + k) * in + i];
      for (int64_t o = 0; o < out; ++o) of_b[place(!in_first, e, o, k)] = b.as<float>()[(o * rank + k) * experts + e];
    }
  return change;
}

bool AdapterMerge::in_first(const Param& param) const {
  const ExpertNames& names = model_.config.experts;
  return param.role == Role::kExpertsFused && names.in_first && !names.swapped_lora;
}

AdapterMerge::AdapterMerge(const Model& model, std::vector<AdapterFolder> adapters)
    : model_(model), adapters_(std::move(adapters)) {
  for (const Param& param : model.params)
    for (int64_t i = 0; i < param.stored_count(); ++i) places_[param.stored_name(i)] = {&param, i};
  for (const AdapterFolder& adapter : adapters_) {
    options_.push_back(adapter_options(adapter, model));
    check(adapter, options_.back());
  }
}

void AdapterMerge::check(const AdapterFolder& adapter, const LoraOptions& options) const {
  const std::string file = adapter.file.path().string();
  auto refuse = [&](const std::string& name, const Dims& dims, const Dims& wanted) {
    throw UserError(
        "{}: its LoRA weights for {} fit a weight {}, but the base's weight is {}; the adapter belongs to another "
        "model",
        file, name, to_string(dims), to_string(wanted));
  };
  for (const auto& [name, place] : places_) {
    const Dims wanted = place.param->stored_dims();
    if (const TensorEntry* saved = adapter.find(name, AdapterPart::kSaved); saved != nullptr)
      if (saved->shape.dims != wanted) refuse(name, saved->shape.dims, wanted);
    const std::optional<LoraPair> lora = lora_of(adapter, options, place);
    if (!lora) continue;
    Dims a = lora->a->shape.dims, b = lora->b->shape.dims, dims{b[0], a[1]};
    // PEFT stores A as [E * r, in] and B as [out, r * E] for all experts. If experts have a gate, gate and up are
    // halves of one parameter.
    if (place.param->has_experts()) {
      const int64_t all = place.param->dims[0] * lora->rank;
      if (a[0] != all || b[1] != all) refuse(name, dims, wanted);
    }
    if (place.param->of_experts()) {
      const int64_t halves = place.param->role == Role::kExpertDown || !model_.config.experts.gated() ? 1 : 2;
      if (b[0] % halves != 0) refuse(name, dims, wanted);
      dims[0] /= halves;
    }
    if (options.fan_in_fan_out || in_first(*place.param)) std::swap(dims[0], dims[1]);
    if (place.param->role == Role::kExpertsFused) dims.insert(dims.begin(), place.param->dims[0]);
    if (dims != wanted) refuse(name, dims, wanted);
  }
}

std::string AdapterMerge::names() const {
  std::vector<std::string> files;
  for (const AdapterFolder& adapter : adapters_) files.push_back(adapter.file.path().string());
  return fmt::format("{}", fmt::join(files, ", "));
}

std::optional<StoredTensor> AdapterMerge::saved(const std::string& name) const {
  const size_t next = first_lora(name);
  if (next == 0) return std::nullopt;
  return StoredTensor{&adapters_[next - 1].file, adapters_[next - 1].find(name, AdapterPart::kSaved)};
}

bool AdapterMerge::adds_to(const std::string& name) const {
  const auto place = places_.find(name);
  if (place == places_.end()) return false;
  for (size_t i = first_lora(name); i < adapters_.size(); ++i)
    if (lora_of(adapters_[i], options_[i], place->second)) return true;
  return false;
}

TensorMerge AdapterMerge::merge_of(const std::string& name, const ReadValues& read) const {
  TensorMerge out;
  const auto found = places_.find(name);
  if (found == places_.end()) return out;
  const auto& [param, index] = found->second;
  for (size_t i = first_lora(name); i < adapters_.size(); ++i) {
    const AdapterFolder& adapter = adapters_[i];
    const LoraOptions& options = options_[i];
    const std::optional<LoraPair> lora = lora_of(adapter, options, found->second);
    if (!lora) continue;
    TensorMerge::Change change{.scale = static_cast<float>(lora->scale), .by_column = options.fan_in_fan_out};
    if (param->role == Role::kExpertsFused) {
      change = of_all_experts(adapter.file.read(*lora->a).to(DType::kF32), adapter.file.read(*lora->b).to(DType::kF32),
                              param->dims[0], in_first(*param));
      change.scale = static_cast<float>(lora->scale);
    } else if (param->of_experts()) {
      const int64_t experts = param->dims[0], expert = index % experts, rank = lora->rank;
      const int64_t out_dim = param->dims[1], in = param->dims[2];
      const bool second = param->role == Role::kExpertUp && model_.config.experts.gated();
      const int64_t first = second ? out_dim : 0;  // the outputs of the up projection follow the gate's
      TensorEntry by_expert = *lora->b;
      by_expert.shape.dims = {lora->b->shape.dims[0], rank, experts};
      change.left = read_box(adapter, by_expert, {{first, 0, expert}, {out_dim, rank, 1}}, {out_dim, rank});
      change.right = read_box(adapter, *lora->a, {{expert * rank, 0}, {rank, in}}, {rank, in});
    } else {
      HostArray a = adapter.file.read(*lora->a).to(DType::kF32), b = adapter.file.read(*lora->b).to(DType::kF32);
      change.left = options.fan_in_fan_out ? transposed(a) : std::move(b);
      change.right = options.fan_in_fan_out ? transposed(b) : std::move(a);
    }
    out.changes_.push_back(std::move(change));
    if (lora->magnitude != nullptr)
      out.find_factor(adapter.file.read(*lora->magnitude).to(DType::kF32), param->stored_dims(), read);
  }
  return out;
}

size_t AdapterMerge::first_lora(const std::string& name) const {
  for (size_t i = adapters_.size(); i-- > 0;)
    if (adapters_[i].find(name, AdapterPart::kSaved) != nullptr) return i + 1;
  return 0;
}

std::optional<AdapterMerge::LoraPair> AdapterMerge::lora_of(const AdapterFolder& adapter, const LoraOptions& options,
                                                            const Place& place) const {
  const int64_t layer = place.param->of_experts() ? place.index / place.param->dims[0] : place.index;
  LoraPair out;
  for (const Param& param : lora_params_of(model_, options, *place.param)) {
    const TensorEntry* entry = adapter.find(param.stored_name(layer));
    if (param.role == Role::kLoraA) {
      out.a = entry;
      out.rank = param.dims[param.dims.size() - 2];
      out.scale = options.scale(out.rank / options.rank);
    }
    if (param.role == Role::kLoraB) out.b = entry;
    if (param.role == Role::kLoraMagnitude) out.magnitude = entry;
  }
  return out.a == nullptr || out.b == nullptr ? std::nullopt : std::optional(out);
}

}  // namespace fettle
