#include "train/checkpoints/checkpoint_meta.h"

#include <fmt/ranges.h>

#include <cmath>
#include <set>

#include "base/error.h"
#include "base/files/mapped_file.h"
#include "base/log.h"
#include "step/state/train_state.h"

namespace fettle {
namespace {

using Json = nlohmann::json;

// Stage keys whose values identity() leaves out. For ref_model, check_base compares a digest of the reference model's
// weights (base_digest.h). For the other keys, identity() has the labels that result from them.
const std::set<std::string_view> kIdentifiedElsewhere{"ref_model", "problem_type", "num_labels", "id2label"};

// Returns the settings that a checkpoint and the run that continues it must share.
Json identity(const Run& run) {
  Json out{{"model_type", run.model.family->model_type},
           {"stage", run.stage->name},
           {"finetuning_type", run.method()},
           {"optim", run.optimizer.rule->name},
           {"seed", run.seed},
           {"packing", run.batch.packing},
           {"cutoff_len", run.data.cutoff_len},
           {"disable_shuffling", !run.batch.shuffle},
           {"rope_scaling", fmt::format("{} {}", run.model.config.rope.rope_type, run.model.config.rope.factor)}};
  if (run.adapter.lora) {
    out["lora_alpha"] = run.adapter.lora->alpha;
    out["use_rslora"] = run.adapter.lora->rslora;
    out["layers_to_transform"] = run.adapter.lora->layers;
  }
  for (const std::string_view key : run.stage->keys)
    if (!kIdentifiedElsewhere.contains(key)) out[key] = run.keys.json(key);
  if (run.labels()) {
    out["problem_type"] = name_of(run.labels()->problem);
    out["id2label"] = run.labels()->id2label;
  }
  // 8-bit floats do not count as quantised here: a weight has the same values whether the device stores it in 8 or in
  // 16 bits. The base's digest identifies these values.
  const bool quantised = !run.quantised.empty() && run.quantised[0].format.type != Quantisation::Type::kFloat8;
  out["quantization"] = quantised ? run.quantised[0].format.name() : "none";
  return out;
}

// Returns all arguments of the update rule. Numbers are numbers, because 1 and 1.0 are the same value.
Json optim_args(const Run& run) {
  const OptimOptions& options = run.optimizer.options;
  Json out = Json::object();
  for (const OptimArgument& argument : run.optimizer.rule->args) {
    const std::string name(argument.name);
    if (argument.values.empty())
      out[name] = options.number(name);
    else
      out[name] = options.text(name);
  }
  return out;
}

// Returns why the loss of a row depends on the other rows of its micro-batch; "" if it does not.
std::string mixes_rows(const Run& run) {
  if (run.stage->mixes_rows) return fmt::format("the loss of stage {}", run.stage->name);
  return run.model.config.router_aux_loss_coef != 0 ? "the loss that balances the experts" : "";
}

std::string checkpoint_of(const StateReader& state) {
  return state.folder().parent_path().string();
}

// Returns the checkpoint's weights, as a recipe names them for a new run.
std::string weights_of(const StateReader& state, const Run& run) {
  return fmt::format("the checkpoint's weights ({}: {})",
                     run.adapter.lora ? "adapter_name_or_path" : "model_name_or_path", checkpoint_of(state));
}

constexpr const char* kRemedy =
    "resume with the recipe and the version of fettle that wrote the checkpoint, or start a new run";

[[noreturn]] void refuse(const StateReader& state, std::string_view key, const std::string& found,
                         const std::string& wanted) {
  throw UserError("{} was written with {} = {}, but this run has {}; {}", checkpoint_of(state), key, found, wanted,
                  kRemedy);
}

// Refuses 4-bit state with blocks of another size. Each block has one absmax; the codes do not depend on the blocks.
void check_blocks(const StateReader& state, const Run& run) {
  if (run.optimizer.rule->name != "adamw_torch_4bit") return;
  std::set<std::string> same;  // the parameters whose codes have the same shape
  for (const StateArray& array : trained_arrays(run)) {
    const size_t name = array.name.find('/') + 1;
    if (!state.contains(array.name)) continue;
    const bool equal = state.shape(array.name) == array.shape;
    if (array.name.starts_with("m_codes/") && equal) same.insert(array.name.substr(name));
    if (!array.name.starts_with("m_absmax/") || equal || !same.contains(array.name.substr(name))) continue;
    const int64_t now = std::llround(run.optimizer.options.number("block_size")), other = now == 128 ? 256 : 128;
    throw UserError(
        "{} was written with blocks of {} elements in the optimizer's state, but this run has {}; set optim_args: "
        "block_size={}, or start a new run",
        checkpoint_of(state), other, now, other);
  }
}

void check_arrays(const StateReader& state, const Run& run) {
  std::set<std::string> wanted;
  for (const StateArray& array : trained_arrays(run)) {
    wanted.insert(array.name);
    if (!state.contains(array.name))
      throw UserError("{} lacks the array {}, which this run trains; {}", checkpoint_of(state), array.name, kRemedy);
  }
  for (const std::string& name : state.names())
    if (!wanted.contains(name))
      throw UserError("{} has the array {}, which this run does not train; {}", checkpoint_of(state), name, kRemedy);
  for (const StateArray& array : trained_arrays(run))
    if (const Shape& found = state.shape(array.name); found != array.shape) {
      // The weights of lora_A are [(layers,) rank, in] of each module.
      const auto rank = [](const Shape& shape) { return std::to_string(shape.dims[shape.dims.size() - 2]); };
      if (array.name.ends_with("lora_A.weight") && found.dims.size() == array.shape.dims.size() &&
          rank(found) != rank(array.shape))
        refuse(state, "lora_rank", rank(found), rank(array.shape));
      refuse(state, array.name, found.to_string(), array.shape.to_string());
    }
}

std::string micro_batches_of(int64_t rows_per_device, int64_t accumulation) {
  return fmt::format("set per_device_train_batch_size: {} and gradient_accumulation_steps: {}", rows_per_device,
                     accumulation);
}

// Returns an instruction for the user: the keys and values that give each step `rows` rows, as in the checkpoint. If
// no values do this, the instruction asks for another mesh. `together` is the number of rows in the checkpoint's
// micro-batches, if it matters and is known; else 0.
std::string remedy(const Run& run, int64_t rows, int64_t together) {
  const int64_t shards = run.batch_shards(), accumulation = run.batch.micro_batches;
  const int64_t each = run.rows_per_device;
  if (together > 0 && together % shards == 0) return micro_batches_of(together / shards, rows / together);
  if (rows % (shards * accumulation) == 0)
    return fmt::format("set per_device_train_batch_size: {}", rows / (shards * accumulation));
  if (rows % (shards * each) == 0) return fmt::format("set gradient_accumulation_steps: {}", rows / (shards * each));
  if (rows % shards == 0) return micro_batches_of(rows / shards, 1);
  return fmt::format("change the mesh so that dp x fsdp (now {1}) divides the checkpoint's {0} rows per step", rows,
                     shards);
}

void check_rows_per_step(const StateReader& state, const Run& run) {
  const int64_t found = state.meta().value("rows_per_step", int64_t{0}), wanted = run.rows_per_step();
  if (found == wanted) return;
  const int64_t together = mixes_rows(run).empty() ? 0 : state.meta().value("rows_per_micro_batch", int64_t{0});
  throw UserError(
      "{} was written with {} rows per step, but this run has {} (per_device_train_batch_size {} x {} device{} "
      "(dp x fsdp) x gradient_accumulation_steps {}), so the order of rows would change; {}, or start a new run in "
      "another output_dir from {}",
      checkpoint_of(state), found, wanted, run.rows_per_device, run.batch_shards(), run.batch_shards() == 1 ? "" : "s",
      run.batch.micro_batches, remedy(run, found, together), weights_of(state, run));
}

}  // namespace

Json checkpoint_meta(const Run& run, int64_t step, const Json& base, const DataIdentity& data, const RunRecord& record,
                     const std::string& trainer_state) {
  return {{"step", step},
          {"rows_per_step", run.rows_per_step()},
          {"rows_per_micro_batch", run.rows_per_micro_batch()},
          {"rows_per_epoch", data.groups},
          {"data_digest", data.digest},
          {"trainer_state", xxh3_128(std::as_bytes(std::span(trainer_state)))},
          {"running_sums", to_json(record.sums)},
          {"started", to_json(record.started)},
          {"evaluation_due", record.evaluation_due},
          {"held_out", record.held_out},
          {"first_comparable", record.first_comparable},
          {"identity", identity(run)},
          {"optim_args", optim_args(run)},
          {"base", base},
          {"kernels", kernel_ids(run.target.kernels)},
          {"gradient_checkpointing", run.remat.name},
          {"micro_batches", run.batch.micro_batches * run.merged_micro_batches},
          {"micro_batches_at_once", run.merged_micro_batches}};
}

WrittenStep written_step(const StateReader& state) {
  const Json& meta = state.meta();
  return {meta.value("gradient_checkpointing", ""), meta.value("micro_batches", int64_t{0}),
          meta.value("micro_batches_at_once", int64_t{1})};
}

void report_remat(const StateReader& state, const Run& run) {
  const WrittenStep written = written_step(state);
  if (run.remat_auto || written.policy.empty() || (written.policy == run.remat.name && written.merged == 1)) return;
  const std::string merged =
      written.merged > 1 ? fmt::format(", which computed {} micro-batches at once", written.merged) : "";
  warn(
      "{} was written by a run with gradient_checkpointing: {}{}, this run has {}: losses may differ in their last "
      "digits from those of an uninterrupted run",
      checkpoint_of(state), written.policy, merged, run.remat.name);
}

void report_micro_batches(const StateReader& state, const Run& run) {
  // Checkpoints of earlier versions lack this field.
  const int64_t wanted = run.rows_per_micro_batch(), found = state.meta().value("rows_per_micro_batch", wanted);
  const std::string what = mixes_rows(run);
  if (found == wanted || what.empty()) return;
  const int64_t shards = run.batch_shards();
  warn(
      "{} was written with {} rows per micro-batch, this run has {}: {} depends on the rows of a micro-batch, so "
      "losses differ from those of an uninterrupted run; to avoid this, {}",
      checkpoint_of(state), found, wanted, what,
      found % shards == 0 ? micro_batches_of(found / shards, run.rows_per_step() / found)
                          : fmt::format("change the mesh so that dp x fsdp divides {}", found));
}

void report_kernels(const StateReader& state, const Run& run) {
  // Checkpoints of versions without kernels lack this field.
  const auto written = state.meta().value("kernels", std::vector<std::string>{});
  const std::vector<std::string> present = kernel_ids(run.target.kernels);
  if (written == present) return;
  auto words = [](const std::vector<std::string>& ids) {
    return ids.empty() ? std::string("no kernels") : fmt::format("kernels {}", fmt::join(ids, ", "));
  };
  warn(
      "{} was written by a run with {}, this run has {}: losses may differ in their last digits from those of an "
      "uninterrupted run; to choose the kernels, set `kernels` in the recipe",
      checkpoint_of(state), words(written), words(present));
}

void report_optim_args(const StateReader& state, const Run& run) {
  const Json present = optim_args(run);
  const auto found = state.meta().find("optim_args");
  if (found == state.meta().end()) {
    // The keys apollo_* had the same defaults in earlier versions.
    if (run.optimizer.rule->name == "apollo_adamw" && !run.places.has("use_apollo"))
      warn(
          "{} was written by an earlier version of fettle, in which apollo_adamw had other defaults: rank=1, "
          "scale=128, scale_type=tensor; this run has rank={}, scale={}, scale_type={}; if the recipe's optim_args did "
          "not set one of them, set it to the earlier default, or losses differ from those of an uninterrupted run",
          checkpoint_of(state), present["rank"].get<double>(), present["scale"].get<double>(),
          present["scale_type"].get<std::string>());
    return;
  }
  auto words = [](const std::string& name, const Json& value) {
    return fmt::format("{}={}", name, value.is_string() ? value.get<std::string>() : value.dump());
  };
  std::vector<std::string> before, after;
  for (const auto& [name, value] : present.items()) {
    // An argument that is missing was added in a later version.
    const Json written = found->value(name, value);
    if (written == value) continue;
    before.push_back(words(name, written));
    after.push_back(words(name, value));
  }
  if (before.empty()) return;
  warn(
      "{} was written by a run whose optimizer ({}) has {}, this run has {}: losses differ from those of an "
      "uninterrupted run; to avoid this, set the optimizer's arguments to the checkpoint's values",
      checkpoint_of(state), run.optimizer.rule->name, fmt::join(before, ", "), fmt::join(after, ", "));
}

namespace {

// Returns whether an earlier version wrote this value where identity() has another value for the same run. Full tuning
// of a model with buffers was called freeze. If the checkpoint is of another run, it has other arrays (check_arrays).
bool is_earlier_value(const std::string& key, const Json& value, const Run& run) {
  return key == "finetuning_type" && value == "freeze" && run.method() == "full" && !run.frozen.empty();
}

}  // namespace

void check_meta(const StateReader& state, const Run& run) {
  const Json wanted = identity(run), found = state.meta().value("identity", Json::object());
  auto check = [&](const std::string& key) {
    // Checkpoints of earlier versions have fewer keys. Without the key "quantization", the weights were not quantised.
    if (!found.contains(key) && key != "quantization") return;
    const Json other = found.value(key, key == "quantization" ? Json("none") : Json());
    if (other != wanted[key] && !is_earlier_value(key, other, run))
      refuse(state, key, other.dump(), wanted[key].dump());
  };
  // Checks these keys before the arrays, because an error about a key explains more. For example, another optimizer is
  // the reason why arrays have other shapes.
  check("model_type");
  check("stage");
  check("finetuning_type");
  check("optim");
  check_blocks(state, run);
  check_arrays(state, run);
  for (const auto& [key, value] : wanted.items()) check(key);
  check_rows_per_step(state, run);
}

void check_base(const StateReader& state, const Json& base) {
  const Json written = state.meta().value("base", Json::object());
  auto check = [&](const char* digest, const char* what, const char* key) {
    if (!written.contains(digest) || written[digest] == base[digest]) return;
    auto path = [&](const Json& of) {
      const Json found = of.value("paths", Json::object()).value(key, Json());
      return found.empty() || found == "" ? "none" : found.is_string() ? found.get<std::string>() : found.dump();
    };
    if (path(written) == path(base))
      throw UserError(
          "{} was trained with other {} than this run: the files in {} have changed since then; put the earlier files "
          "back, or start a new run",
          checkpoint_of(state), what, path(base));
    throw UserError(
        "{} was trained with other {} than this run: {} was {}, but this run has {}; set the key to the checkpoint's "
        "value, or start a new run",
        checkpoint_of(state), what, key, path(written), path(base));
  };
  // Checkpoints of earlier versions lack ref_model_parts and weights_parts.
  for (const char* digest : {"ref_model", "ref_model_parts"})
    check(digest, "weights of a reference model", "ref_model");
  check("adapters", "adapters", "adapter_name_or_path");
  check("config", "settings of a model (config.json)", "model_name_or_path");
  for (const char* digest : {"weights", "weights_parts"})
    check(digest, "weights of a base model", "model_name_or_path");
}

void check_data(const StateReader& state, const Run& run, const DataIdentity& data) {
  const int64_t found = state.meta().value("rows_per_epoch", int64_t{0});
  if (found != data.groups)
    throw UserError(
        "{} was written in a run with {} rows per epoch, but the data now has {}: rows would be lost or repeated; "
        "resume with the same data, or start a new run in another output_dir from {}",
        checkpoint_of(state), found, data.groups, weights_of(state, run));
  if (state.meta().value("data_digest", data.digest) != data.digest)
    throw UserError(
        "{} was written in a run with other tokens: the rows, the tokenizer, the chat template or a key of the data "
        "(template, cutoff_len, train_on_prompt, ...) has changed since; resume with the same data and settings, or "
        "start a new run in another output_dir from {}",
        checkpoint_of(state), weights_of(state, run));
}

RunRecord read_record(const StateReader& state) {
  const std::filesystem::path file = state.folder().parent_path() / "trainer_state.json";
  if (!std::filesystem::exists(file)) throw DamagedState("{} is missing; the checkpoint is damaged", file.string());
  if (xxh3_128(MappedFile(file).bytes()) != state.meta().value("trainer_state", ""))
    throw DamagedState("{} has changed since it was written (its checksum differs); the checkpoint is damaged",
                       file.string());
  try {
    RunRecord record{read_trainer_state(file), read_log_sums(state.meta().value("running_sums", Json::object()))};
    if (state.meta().contains("started")) record.started = read_local_time(state.meta()["started"]);
    record.evaluation_due = state.meta().value("evaluation_due", false);
    record.held_out = state.meta().value("held_out", "");
    record.first_comparable = state.meta().value("first_comparable", size_t{0});
    return record;
  } catch (const UserError& error) {
    throw DamagedState("{}: {}; the checkpoint is damaged", checkpoint_of(state), error.what());
  }
}

}  // namespace fettle
