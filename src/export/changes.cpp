#include "export/changes.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <thread>

#include "adapters/merge.h"
#include "base/error.h"
#include "checkpoint/load.h"
#include "step/state/adapter_arrays.h"
#include "step/state/merged_adapters.h"

namespace fettle {
namespace {

HostArray transposed(const HostArray& x) {
  const int64_t rows = x.shape().dims[0], columns = x.shape().dims[1];
  HostArray out({DType::kF32, {columns, rows}});
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) out.as<float>()[j * rows + i] = x.as<float>()[i * columns + j];
  return out;
}

// Their shapes are the model's, which base has been checked against.
void check_expert_pair(const AdapterFolder& adapter, const Param& param, int64_t layer) {
  const TensorEntry* entry = adapter.file.find("base_model.model." + param.stored_name(layer));
  if (entry == nullptr || entry->shape.dims != param.stored_dims())
    throw UserError("{}: {} is {}, wanted {}; it is another model's adapter", adapter.file.path().string(),
                    param.stored_name(layer), entry == nullptr ? "missing" : entry->shape.to_string(),
                    to_string(param.stored_dims()));
}

bool of_experts(const AdapterFolder& adapter, const AdapterTensor& tensor) {
  const size_t holder = tensor.module.find(".mlp.experts");
  return !adapter.config.target_parameters.empty() && holder != std::string::npos;
}

// Adds rows [first, first + w's rows) of the change to `w`, on all cores.
void add(const Change& change, int64_t first, std::span<float> w) {
  const int64_t rank = change.left.shape().dims[1], columns = change.right.shape().dims[1];
  const int64_t rows = static_cast<int64_t>(w.size()) / columns;
  const float* left = change.left.as<float>().data() + first * rank;
  const float* right = change.right.as<float>().data();
  const float scale = static_cast<float>(change.scale);
  auto work = [&](int64_t from, int64_t to) {
    std::vector<float> sum(columns);
    for (int64_t i = from; i < to; ++i) {
      std::fill(sum.begin(), sum.end(), 0.0f);
      for (int64_t k = 0; k < rank; ++k) {
        const float factor = left[i * rank + k];
        const float* row = right + k * columns;
        for (int64_t j = 0; j < columns; ++j) sum[j] += factor * row[j];
      }
      float* out = w.data() + i * columns;
      for (int64_t j = 0; j < columns; ++j) out[j] += scale * sum[j];
    }
  };
  const int64_t worth =
      std::clamp<int64_t>(static_cast<int64_t>(w.size()) / 65536, 1, rows);  // less is not worth a thread
  const int64_t threads = std::clamp<int64_t>(std::thread::hardware_concurrency(), 1, worth);
  std::vector<std::jthread> pool;
  for (int64_t t = 0; t < threads; ++t) pool.emplace_back(work, rows * t / threads, rows * (t + 1) / threads);
}

// Brings the outputs of rows [first, first + w's rows) to their magnitudes; by column `w` is the whole weight.
void bring_to_magnitude(const Change& change, int64_t first, std::span<float> w) {
  const int64_t columns = change.right.shape().dims[1], rows = static_cast<int64_t>(w.size()) / columns;
  std::vector<double> square(change.by_column ? columns : rows, 0);
  auto output = [&](int64_t i, int64_t j) { return change.by_column ? j : i; };
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j)
      square[output(i, j)] += static_cast<double>(w[i * columns + j]) * w[i * columns + j];
  const float* magnitude = change.magnitude->as<float>().data() + (change.by_column ? 0 : first);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j)
      w[i * columns + j] *=
          static_cast<float>(magnitude[output(i, j)] / std::sqrt(std::max(square[output(i, j)], kLeastSquare)));
}

}  // namespace

void apply_change(const Change& change, int64_t first, std::span<float> w) {
  add(change, first, w);
  if (change.magnitude) bring_to_magnitude(change, first, w);
}

// All of the model's, by name.
std::map<std::string, Changes::ExpertWeight> Changes::expert_weights(const Model& model) {
  std::map<std::string, ExpertWeight> out;
  const ModelConfig& c = model.config;
  if (c.num_experts == 0) return out;
  const std::vector<std::string> parameters = expert_parameters(model, {"gate_up_proj", "down_proj"});
  auto add = [&](const std::string& module, const std::string& parameter, int64_t first_row) {
    const Param& param = model.linear(module);
    for (int64_t i = 0; i < param.stored_count(); ++i)
      out[param.stored_name(i)] = {parameter, i / c.num_experts, i % c.num_experts, c.num_experts, first_row};
  };
  add(c.experts.gate, parameters[0], 0);
  add(c.experts.up, parameters[0], c.intermediate_size);
  add(c.experts.down, parameters[1], 0);
  return out;
}

Changes::Changes(const BaseTensors& base, const std::vector<AdapterFolder>& adapters, const Model& model)
    : adapters_(adapters),
      fan_in_fan_out_(model.family->fan_in_fan_out),
      layer_prefix_(model.family->layer_prefix),
      experts_(expert_weights(model)) {
  for (const AdapterFolder& adapter : adapters_) {
    const bool experts = !adapter.config.target_parameters.empty();
    options_.push_back(experts ? adapter_options(adapter, model) : LoraOptions{});
    for (const Param& param : expert_lora_params(model, options_.back()))
      for (int64_t layer = 0; layer < model.config.num_hidden_layers; ++layer) check_expert_pair(adapter, param, layer);
  }
  for (const AdapterFolder& adapter : adapters_)
    for (const AdapterTensor& tensor : adapter.tensors) check(base, adapter, tensor);
}

std::string Changes::names() const {
  std::vector<std::string> files;
  for (const AdapterFolder& adapter : adapters_) files.push_back(adapter.file.path().string());
  return fmt::format("{}", fmt::join(files, ", "));
}

std::vector<Change> Changes::of(const std::string& weight) const {
  std::vector<Change> out;
  if (!weight.ends_with(".weight")) return out;
  const size_t first = changes_of(adapters_, weight).first_pair;
  if (const auto expert = experts_.find(weight); expert != experts_.end()) return of_expert(expert->second, first);
  const std::string module = weight.substr(0, weight.size() - std::string(".weight").size());
  for (const AdapterFolder& adapter : std::span(adapters_).subspan(first)) {
    if (adapter.find(module, AdapterPart::kLoraA) == nullptr) continue;
    auto part = [&](AdapterPart which) { return adapter.file.read(*adapter.find(module, which)).to(DType::kF32); };
    HostArray a = part(AdapterPart::kLoraA), b = part(AdapterPart::kLoraB);
    Change change{std::move(b), std::move(a), adapter.config.scale(module), std::nullopt, fan_in_fan_out_};
    if (fan_in_fan_out_) {
      HostArray left = transposed(change.right);
      change.right = transposed(change.left);
      change.left = std::move(left);
    }
    if (adapter.config.use_dora) change.magnitude = part(AdapterPart::kMagnitude);
    out.push_back(std::move(change));
  }
  return out;
}

std::optional<StoredTensor> Changes::saved(const std::string& name) const {
  return changes_of(adapters_, name).saved;
}

std::vector<Change> Changes::of_expert(const ExpertWeight& weight, size_t first_pair) const {
  std::vector<Change> out;
  for (size_t i = first_pair; i < adapters_.size(); ++i) {
    const LoraOptions& options = options_[i];
    if (std::ranges::find(options.parameters, weight.parameter) == options.parameters.end()) continue;
    const std::string module =
        name_of_layer(layer_prefix_ + pair_of_parameter(options, weight.parameter), weight.layer);
    auto part = [&](AdapterPart which) {
      return adapters_[i].file.read(*adapters_[i].find(module, which)).to(DType::kF32);
    };
    const HostArray a = part(AdapterPart::kLoraA), b = part(AdapterPart::kLoraB);
    const int64_t rank = options.rank, in = a.shape().dims[1];
    const bool down = weight.parameter.ends_with("down_proj");
    const int64_t rows = down ? b.shape().dims[0] : b.shape().dims[0] / 2;
    // a [E r, in]: an expert's rows together; b [out, r E]: an expert's columns apart.
    HostArray left({DType::kF32, {rows, rank}}), right({DType::kF32, {rank, in}});
    for (int64_t o = 0; o < rows; ++o)
      for (int64_t k = 0; k < rank; ++k)
        left.as<float>()[o * rank + k] =
            b.as<float>()[((weight.first_row + o) * rank + k) * weight.experts + weight.expert];
    std::copy_n(a.as<float>().data() + weight.expert * rank * in, rank * in, right.as<float>().data());
    out.push_back({std::move(left), std::move(right), options.scale(), std::nullopt, false});
  }
  return out;
}

void Changes::check(const BaseTensors& base, const AdapterFolder& adapter, const AdapterTensor& tensor) const {
  if (tensor.part != AdapterPart::kLoraA && tensor.part != AdapterPart::kSaved) return;
  if (of_experts(adapter, tensor)) return;
  const bool pair = tensor.part == AdapterPart::kLoraA;
  const Dims& weight = base.find(pair ? tensor.module + ".weight" : tensor.module).shape.dims;
  Dims wanted = tensor.entry->shape.dims;
  if (pair) wanted = {adapter.find(tensor.module, AdapterPart::kLoraB)->shape.dims[0], wanted[1]};
  if (pair && fan_in_fan_out_) std::swap(wanted[0], wanted[1]);
  if (wanted != weight)
    throw UserError("{}: what it has for {} is for a weight {}, but the base's is {}; it is another model's adapter",
                    adapter.file.path().string(), tensor.module, to_string(wanted), to_string(weight));
}

}  // namespace fettle
