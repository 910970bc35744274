#include "train/result.h"

#include <fmt/ranges.h>

#include <cmath>
#include <map>

#include "base/arrays/box_copy.h"
#include "base/log.h"
#include "checkpoint/adapter_files.h"
#include "checkpoint/convert.h"
#include "checkpoint/files.h"
#include "checkpoint/load.h"
#include "models/classifier_config.h"

namespace fettle {
namespace {

constexpr int64_t kShardBytes = int64_t{5} << 30;
const std::string kAdapterPrefix = "base_model.model.";

DType result_dtype(const Job& job) {
  return job.lora ? job.trained_dtype : job.model.config.dtype;
}

// PiSSA's pairs have the pairs they started from beside them.
Dims result_dims(const Job& job, const Param& param) {
  Dims dims = param.stored_dims();
  if (job.pissa && param.is_lora()) dims[param.role == Role::kLoraA ? 0 : dims.size() - 1] *= 2;
  return dims;
}

// Which of the parameter's stored tensors are written: those of its layers, with all their experts.
std::vector<int64_t> stored_numbers(const Job& job, const Param& param) {
  const int64_t experts = param.of_experts() ? param.dims[0] : 1;
  std::vector<int64_t> out;
  for (const int64_t layer : job.layers_of(param))
    for (int64_t expert = 0; expert < experts; ++expert) out.push_back((layer - param.layers.first) * experts + expert);
  return out;
}

// The adapter's tensors, or all of the model's.
NamedShapes result_shapes(const Job& job) {
  NamedShapes out;
  for (const Param& param : job.lora ? job.trained : job.model.params)
    for (const int64_t index : stored_numbers(job, param))
      out.emplace_back((job.lora ? kAdapterPrefix : "") + param.stored_name(index),
                       Shape{result_dtype(job), result_dims(job, param)});
  return out;
}

AdapterConfig adapter_config(const Job& job) {
  AdapterConfig config;
  config.base_model_name_or_path = job.recipe.model_name_or_path;
  config.r = job.lora->rank;
  config.lora_alpha = job.lora->alpha;
  if (job.pissa) {  // the same scale at twice the rank
    config.r *= 2;
    config.lora_alpha *= job.lora->rslora ? std::sqrt(2.0) : 2;
  }
  config.lora_dropout = job.lora->dropout;
  if (job.model.classifies()) config.task_type = "SEQ_CLS";
  config.use_rslora = job.lora->rslora;
  config.use_dora = job.lora->dora;
  config.modules_to_save = job.lora->saved;
  config.target_parameters = job.lora->parameters;
  if (!job.lora->layers.empty()) config.selection["layers_to_transform"] = job.lora->layers;
  config.fan_in_fan_out = job.model.family->fan_in_fan_out;
  // PEFT matches a name after a dot; the last part alone is enough unless two modules of a layer share it.
  for (const std::string& module : job.lora->modules) {
    const std::string last = module.substr(module.rfind('.') + 1);
    int64_t same = 0;
    for (const std::string& linear : job.model.linears()) same += linear.ends_with("." + last) ? 1 : 0;
    config.target_modules.push_back(same == 1 ? last : module);
  }
  return config;
}

}  // namespace

ResultWriter::ResultWriter(const std::filesystem::path& folder, const Job& job, const ModelRepository& repository)
    : folder_(folder), job_(job), repository_(repository), dtype_(result_dtype(job)) {
  if (job.lora)
    adapter_.emplace(begin_adapter(folder, adapter_config(job), result_shapes(job)));
  else
    model_.emplace(folder, result_shapes(job), kShardBytes);
}

template <typename Write>
void ResultWriter::for_each_layer(const Param& param, const HostShards& weights, Write write) const {
  const Dims dims = param.stored_dims();
  HostArray layer({weights.shape.dtype, dims}), converted({dtype_, dims});
  Box box = Box::whole(weights.shape.dims);
  for (int d = 0; d < param.stack_dims(); ++d) box.size[d] = 1;
  for (const int64_t index : stored_numbers(job_, param)) {
    if (param.of_experts())
      box.start[0] = index / param.dims[0], box.start[1] = index % param.dims[0];
    else if (param.stacked())
      box.start[0] = index;
    for (const HostShards::Shard& shard : weights.shards)
      copy_common(shard.box, shard.bytes.data(), box, layer.data(), byte_size(weights.shape.dtype));
    convert_elements(layer.data(), weights.shape.dtype, converted.data(), dtype_, converted.shape().elements());
    write(param.stored_name(index), converted);
  }
}

void ResultWriter::write(const std::string& name, const HostArray& weight) {
  const std::span<const std::byte> bytes{weight.data(), static_cast<size_t>(weight.bytes())};
  if (adapter_)
    adapter_->write(kAdapterPrefix + name, bytes);
  else
    model_->write(name, bytes);
}

void ResultWriter::add(const Param& param, const HostShards& weights) {
  for_each_layer(param, weights, [&](const std::string& name, const HostArray& weight) { write(name, weight); });
}

void ResultWriter::add(const Param& param, const HostShards& weights, const HostShards& start) {
  std::map<std::string, HostArray> starts;
  for_each_layer(param, start,
                 [&](const std::string& name, const HostArray& weight) { starts.emplace(name, weight.clone()); });
  // A: [A; start], B: [B, -start].
  const bool is_a = param.role == Role::kLoraA;
  const int64_t each = is_a ? product(param.dims) : param.dims.back(), runs = product(param.dims) / each;
  HostArray both({dtype_, result_dims(job_, param)});
  for_each_layer(param, weights, [&](const std::string& name, const HostArray& weight) {
    const HostArray& from = starts.at(name);
    for (int64_t run = 0; run < runs; ++run)
      for (int64_t i = 0; i < each; ++i) {
        const float old = load_float(from.data(), dtype_, run * each + i);
        store_float(both.data(), dtype_, run * 2 * each + i, load_float(weight.data(), dtype_, run * each + i));
        store_float(both.data(), dtype_, (run * 2 + 1) * each + i, is_a ? old : -old);
      }
    write(name, both);
  });
}

void ResultWriter::finish() {
  if (adapter_) adapter_->finish();
  if (model_) {
    // What was not trained is as it was.
    for (const Param& param : job_.frozen)
      for (const int64_t index : stored_numbers(job_, param)) {
        const std::string name = param.stored_name(index);
        const StoredTensor stored = repository_.find(name);
        write(name, stored.file->read(*stored.entry).to(dtype_));
        stored.file->release(*stored.entry);
      }
    model_->finish();
  }
  copy_tokenizer_files(repository_.folder(), folder_);
  if (model_) copy_model_files(repository_.folder(), folder_);
  if (!job_.model.classifies()) return;
  const nlohmann::json config =
      classifier_config(repository_.config(), job_.model, job_.recipe.problem_type, job_.recipe.id2label);
  if (model_)
    write_json_file(folder_ / "config.json", config);
  else
    write_json_file(folder_ / kAdapterLabels, adapter_labels(config));
}

void write_result(const std::filesystem::path& folder, const Job& job, const ModelRepository& repository,
                  const TrainState& state) {
  ResultWriter writer(folder, job, repository);
  auto read = [&](const std::string& name) { return download_shards(state.buffers.at(name)); };
  for (const Param& param : job.trained)
    if (job.pissa && param.is_lora())
      writer.add(param, read(trained_input(param)), read(start_array(param)));
    else
      writer.add(param, read(trained_input(param)));
  writer.finish();
  if (job.lora && !job.merged.empty())
    info("the adapter is for the base with {0} merged into it: give adapter_name_or_path: {0}, {1}",
         fmt::join(job.merged, ", "), job.recipe.output_dir);
}

int64_t result_bytes(const Job& job) {
  const int64_t tensors = job.count(job.lora ? job.trained : job.model.params);
  return tensors * (job.pissa ? 2 : 1) * byte_size(result_dtype(job));
}

}  // namespace fettle
