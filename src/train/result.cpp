#include "train/result.h"

#include "base/box_copy.h"
#include "checkpoint/adapter_files.h"
#include "checkpoint/convert.h"
#include "checkpoint/load.h"

namespace fettle {
namespace {

constexpr int64_t kShardBytes = int64_t{5} << 30;
const std::string kAdapterPrefix = "base_model.model.";

DType result_dtype(const Job& job) {
  return job.lora ? job.trained_dtype : job.model.config.dtype;
}

NamedShapes result_shapes(const Job& job) {
  NamedShapes out;
  for (const WeightRow& row : job.trained)
    for (int64_t i = 0; i < row.stored_count(job.model.config); ++i)
      out.emplace_back((job.lora ? kAdapterPrefix : "") + row.stored_name(i),
                       Shape{result_dtype(job), row.stored_dims()});
  return out;
}

AdapterConfig adapter_config(const Job& job) {
  AdapterConfig config;
  config.base_model_name_or_path = job.recipe.model_name_or_path;
  config.r = job.lora->rank;
  config.lora_alpha = job.lora->alpha;
  config.lora_dropout = job.lora->dropout;
  config.use_rslora = job.lora->rslora;
  config.fan_in_fan_out = job.model.family->fan_in_fan_out;
  // PEFT matches a name after a dot; the last part alone is enough unless two modules of a layer share it.
  for (const std::string& module : job.lora->modules) {
    const std::string last = module.substr(module.rfind('.') + 1);
    int64_t same = 0;
    for (const std::string& linear : job.model.family->linears) same += linear.ends_with("." + last) ? 1 : 0;
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

void ResultWriter::add(const WeightRow& row, const HostShards& weights) {
  const Dims dims = row.stored_dims();
  HostArray layer({weights.shape.dtype, dims}), converted({dtype_, dims});
  Box box = Box::whole(weights.shape.dims);
  for (int d = 0; d < row.stack_dims(); ++d) box.size[d] = 1;
  for (int64_t i = 0; i < row.stored_count(job_.model.config); ++i) {
    if (row.of_experts())
      box.start[0] = i / row.dims[0], box.start[1] = i % row.dims[0];
    else if (row.stacked())
      box.start[0] = i;
    for (const HostShards::Shard& shard : weights.shards)
      copy_common(shard.box, shard.bytes.data(), box, layer.data(), byte_size(weights.shape.dtype));
    convert_elements(layer.data(), weights.shape.dtype, converted.data(), dtype_, converted.shape().elements());
    const std::span<const std::byte> bytes{converted.data(), static_cast<size_t>(converted.bytes())};
    const std::string name = row.stored_name(i);
    if (adapter_)
      adapter_->write(kAdapterPrefix + name, bytes);
    else
      model_->write(name, bytes);
  }
}

void ResultWriter::finish() {
  if (adapter_)
    adapter_->finish();
  else
    model_->finish();
  copy_tokenizer_files(repository_.folder(), folder_);
  if (model_) copy_model_files(repository_.folder(), folder_);
}

void write_result(const std::filesystem::path& folder, const Job& job, const ModelRepository& repository,
                  const TrainState& state) {
  ResultWriter writer(folder, job, repository);
  for (const WeightRow& row : job.trained) writer.add(row, download_shards(state.buffers.at(trained_input(row.name))));
  writer.finish();
}

int64_t result_bytes(const Job& job) {
  return job.count(job.trained) * byte_size(result_dtype(job));
}

}  // namespace fettle
