#include "train/save.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/adapter_files.h"
#include "checkpoint/atomic_folder.h"
#include "checkpoint/files.h"
#include "checkpoint/load.h"
#include "checkpoint/model_writer.h"
#include "checkpoint/state.h"
#include "step/placement.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;
constexpr int64_t kShardBytes = int64_t{5} << 30;

int64_t layers_of(const WeightRow& row, const Job& job) {
  return row.stacked() ? job.model.config.num_hidden_layers : 1;
}

NamedShapes saved_shapes(const Job& job, const std::string& prefix, DType dtype) {
  NamedShapes out;
  for (const WeightRow& row : job.trained)
    for (int64_t layer = 0; layer < layers_of(row, job); ++layer)
      out.emplace_back(prefix + name_of_layer(row.name, layer), Shape{dtype, row.dims});
  return out;
}

// Calls write(name, bytes) for each layer's tensor of the trained rows, a row at a time.
template <typename Write>
void for_each_tensor(const Job& job, const TrainState& state, DType dtype, Write write) {
  for (const WeightRow& row : job.trained) {
    const HostArray stacked = state.buffers.at(trained_input(row.name)).download().to(dtype);
    const int64_t layers = layers_of(row, job), bytes = stacked.bytes() / layers;
    for (int64_t layer = 0; layer < layers; ++layer)
      write(name_of_layer(row.name, layer),
            std::span<const std::byte>(stacked.data() + layer * bytes, static_cast<size_t>(bytes)));
  }
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

// What must agree between a checkpoint and the run that continues it.
nlohmann::json identity(const Job& job) {
  const Recipe& r = job.recipe;
  nlohmann::json out{{"model_type", job.model.family->model_type},
                     {"finetuning_type", job.lora ? "lora" : "full"},
                     {"optim", job.optimizer.rule->name},
                     {"seed", r.seed},
                     {"rows_per_step", job.rows_per_micro_batch() * r.gradient_accumulation_steps},
                     {"packing", r.packing},
                     {"cutoff_len", r.cutoff_len},
                     {"disable_shuffling", r.disable_shuffling}};
  for (const WeightRow& row : job.trained)
    out["trained"][row.name] = stacked_shape(row, job.model.config, DType::kF32).dims;
  return out;
}

void write_state(const fs::path& folder, const Job& job, const TrainState& state) {
  StateWriter writer(folder);
  for (const std::string& name : trained_arrays(job)) {
    const DeviceBuffer& buffer = state.buffers.at(name);
    const std::vector<int> part_of = buffer.layout().part_of();
    const std::vector<Box> parts = buffer.layout().parts();
    for (size_t part = 0; part < parts.size(); ++part) {
      const auto position = std::find(part_of.begin(), part_of.end(), static_cast<int>(part)) - part_of.begin();
      const HostArray shard = buffer.download_shard(static_cast<int>(position));
      writer.add(name, buffer.shape(), parts[part], {shard.data(), static_cast<size_t>(shard.bytes())});
    }
  }
  writer.finish({{"step", state.step}, {"identity", identity(job)}});
}

}  // namespace

void write_result(const fs::path& folder, const Job& job, const ModelRepository& repository, const TrainState& state) {
  if (job.lora) {
    const std::string prefix = "base_model.model.";
    SafetensorsWriter writer = begin_adapter(folder, adapter_config(job), saved_shapes(job, prefix, job.trained_dtype));
    for_each_tensor(job, state, job.trained_dtype, [&](const std::string& name, std::span<const std::byte> bytes) {
      writer.write(prefix + name, bytes);
    });
    writer.finish();
    copy_tokenizer_files(repository.folder(), folder);
    return;
  }
  const DType dtype = job.model.config.dtype;
  ModelWriter writer(folder, saved_shapes(job, "", dtype), kShardBytes);
  for_each_tensor(job, state, dtype,
                  [&](const std::string& name, std::span<const std::byte> bytes) { writer.write(name, bytes); });
  writer.finish();
  copy_tokenizer_files(repository.folder(), folder);
  copy_model_files(repository.folder(), folder);
}

void save_checkpoint(const Job& job, const ModelRepository& repository, const TrainState& state,
                     const TrainerState& trainer) {
  AtomicFolder folder(checkpoint_path(job.recipe.output_dir, state.step), AtomicFolder::Existing::kReplace);
  write_result(folder.path(), job, repository, state);
  write_trainer_state(folder.path() / "trainer_state.json", trainer);
  write_state(state_folder(folder.path()), job, state);
  folder.commit();
  delete_old_checkpoints(job.recipe.output_dir, job.recipe.save_total_limit);
}

void restore_checkpoint(const CheckpointFolder& checkpoint, const Devices& devices, const Job& job,
                        TrainState& loaded) {
  StateReader reader(state_folder(checkpoint.path));
  const nlohmann::json wanted = identity(job);
  const nlohmann::json found = reader.meta().value("identity", nlohmann::json::object());
  for (const auto& [key, value] : wanted.items())
    if (found.value(key, nlohmann::json()) != value)
      throw UserError(
          "{}: it was written with {} = {}, this run has {}; resume with the same recipe, or start afresh "
          "with another output_dir",
          reader.folder().string(), key, found.value(key, nlohmann::json()).dump(), value.dump());
  for (const std::string& name : trained_arrays(job)) {
    const DeviceBuffer& like = loaded.buffers.at(name);
    loaded.buffers.at(name) =
        DeviceBuffer::upload(devices.client(), like.shape(), like.layout(),
                             [&](const Box& box, std::byte* out) { reader.read_slice(name, box, out); });
  }
  loaded.step = reader.meta().at("step").get<int64_t>();
}

int64_t checkpoint_bytes(const Job& job) {
  const int64_t result = byte_size(job.lora ? job.trained_dtype : job.model.config.dtype);
  int64_t total = job.count(job.trained) * (result + byte_size(job.trained_dtype));
  for (const WeightRow& row : job.trained)
    for (const StateArray& array : optimizer_state(job, row)) total += array.shape.bytes();
  return total;
}

void prepare_output(const Job& job, bool resuming) {
  const Recipe& recipe = job.recipe;
  const fs::path folder = recipe.output_dir;
  clean_leftovers(folder);
  std::error_code ignored;
  const bool used = fs::exists(folder / "trainer_log.jsonl", ignored) || !list_checkpoints(folder).empty();
  if (used && !resuming) {
    if (!recipe.overwrite_output_dir)
      throw UserError(
          "output_dir: {} holds an earlier run; set overwrite_output_dir: true to replace it, "
          "resume_from_checkpoint: true to continue it, or choose another folder",
          folder.string());
    for (const CheckpointFolder& old : list_checkpoints(folder)) remove_folder(old.path);
    for (const char* file :
         {"trainer_log.jsonl", "trainer_state.json", "all_results.json", "train_results.json", "eval_results.json"})
      fs::remove(folder / file, ignored);
  }
  std::error_code failed;
  fs::create_directories(folder, failed);
  if (failed) throw_file_error("create", folder, failed.value());
  write_file(folder / ".writable", "");
  fs::remove(folder / ".writable", ignored);
  const int64_t kept = recipe.save_strategy == "no" ? 1 : recipe.save_total_limit > 0 ? recipe.save_total_limit + 1 : 2;
  require_free_bytes(folder, kept * checkpoint_bytes(job), "checkpoints");
}

}  // namespace fettle
