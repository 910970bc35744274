#include "step/state/merged_adapters.h"

#include <algorithm>
#include <numeric>

#include "adapters/merge.h"
#include "base/error.h"
#include "graph/ops.h"
#include "step/state/adapter_arrays.h"

namespace fettle {

TensorChanges changes_of(const std::vector<AdapterFolder>& adapters, const std::string& tensor) {
  for (size_t i = adapters.size(); i-- > 0;)
    if (const TensorEntry* entry = adapters[i].find(tensor, AdapterPart::kSaved))
      return {StoredTensor{&adapters[i].file, entry}, i + 1};
  return {};
}

MergedAdapters::MergedAdapters(const Job& job) : job_(job) {
  for (const std::string& folder : job.merged) {
    adapters_.push_back(open_adapter(folder));
    options_.push_back(adapter_options(adapters_.back(), job.model));
  }
}

std::vector<Param> MergedAdapters::pair_of(size_t i, const Param& param) const {
  LoraOptions options = options_[i];
  if (!param.of_experts()) {
    std::erase_if(options.modules,
                  [&](const std::string& module) { return job_.model.linear(module).hf_name != param.hf_name; });
    options.parameters.clear();
    return lora_params(job_.model, options);
  }
  const bool down = param.role == Role::kExpertDown;
  const std::vector<Param> pairs = expert_lora_params(job_.model, options);
  for (size_t p = 0; p < options.parameters.size(); ++p)
    if (options.parameters[p].ends_with("down_proj") == down) return {pairs[2 * p], pairs[2 * p + 1]};
  return {};
}

DeviceBuffer MergedAdapters::merged(Devices& devices, const Param& param, DeviceBuffer weight) const {
  for (size_t i = changes_of(adapters_, param.stored_name(0)).first_pair; i < adapters_.size(); ++i)
    if (!pair_of(i, param).empty()) weight = merge_one(devices, i, param, std::move(weight));
  return weight;
}

DeviceBuffer MergedAdapters::merge_one(Devices& devices, size_t i, const Param& param, DeviceBuffer weight) const {
  const LoraOptions& options = options_[i];
  Program program(job_.sharding.mesh());
  BuildScope scope(program.block());
  Bindings inputs{{"weight", &weight}};
  const Partition partition = job_.partition(param);
  const Memory memory = param.memory;
  auto in = [&](Memory where, const Tensor& x) { return memory == Memory::kHost ? place(x, where, partition) : x; };
  const Tensor base = in(Memory::kDevice, program.input("weight", weight.shape(), partition, memory));
  std::map<std::string, DeviceBuffer> parts;
  std::vector<Tensor> pair;
  for (const Param& part : pair_of(i, param)) {
    parts.emplace(part.hf_name, load_adapter_param(devices, job_, part, DType::kF32, adapters_[i], options));
    pair.push_back(program.input(part.hf_name, stacked_shape(part, DType::kF32), job_.partition(part)));
  }
  for (auto& [name, buffer] : parts) inputs[name] = &buffer;
  Tensor changed;
  if (param.of_experts()) {
    const int64_t out = param.dims[1];
    const int64_t first = param.role == Role::kExpertUp ? out : 0;
    const Tensor b = slice(pair[1], 1, first, first + out);
    changed = merged_experts(base, pair[0], b, options.scale());
  } else {
    const LoraParts lora{pair[0], pair[1], options.dora ? pair[2] : Tensor{}};
    changed = merged_weight(base, lora, options, options.scale());
  }
  program.output("weight", in(Memory::kHost, changed), partition, "weight", memory);
  Dims all(changed.rank());
  std::iota(all.begin(), all.end(), 0);
  program.output("finite", convert(reduce_and(is_finite(changed), all), DType::kI32));
  std::map<std::string, DeviceBuffer> outputs = run(devices.compile(program), inputs);
  if (outputs.at("finite").download().as<int32_t>()[0] == 0)
    throw UserError("{}: merged into {} it makes values that are not finite in {}; {}",
                    adapters_[i].file.path().string(), param.hf_name, hf_name(changed.dtype()),
                    changed.dtype() == DType::kF16 ? "set bf16: true in the place of fp16" : "the adapter is broken");
  return std::move(outputs.at("weight"));
}

}  // namespace fettle
