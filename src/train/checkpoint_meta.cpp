#include "train/checkpoint_meta.h"

#include <set>

#include "base/error.h"
#include "step/state/train_state.h"

namespace fettle {
namespace {

using Json = nlohmann::json;

// What must agree between a checkpoint and the run that continues it.
Json identity(const Job& job) {
  const Recipe& r = job.recipe;
  Json out{{"model_type", job.model.family->model_type},
           {"stage", r.stage},
           {"finetuning_type", job.lora             ? "lora"
                               : job.frozen.empty() ? "full"
                                                    : "freeze"},
           {"optim", job.optimizer.rule->name},
           {"seed", r.seed},
           {"packing", r.packing},
           {"cutoff_len", r.cutoff_len},
           {"disable_shuffling", r.disable_shuffling}};
  if (job.lora) {
    out["lora_alpha"] = job.lora->alpha;
    out["use_rslora"] = job.lora->rslora;
  }
  if (r.stage == "dpo")
    out.update({{"pref_loss", r.pref_loss},
                {"pref_beta", r.pref_beta},
                {"pref_ftx", r.pref_ftx},
                {"dpo_label_smoothing", r.dpo_label_smoothing},
                {"simpo_gamma", r.simpo_gamma}});
  if (r.stage == "cls") out.update({{"problem_type", r.problem_type}, {"id2label", r.id2label}});
  if (r.stage == "kto")
    out.update({{"pref_beta", r.pref_beta},
                {"kto_chosen_weight", r.kto_chosen_weight},
                {"kto_rejected_weight", r.kto_rejected_weight}});
  out["quantization"] = job.quantised.empty() ? "none" : job.quantised[0].format.name();
  return out;
}

int64_t rows_per_step(const Job& job) {
  return job.rows_per_micro_batch() * job.recipe.gradient_accumulation_steps;
}

std::string checkpoint_of(const StateReader& state) {
  return state.folder().parent_path().string();
}

[[noreturn]] void refuse(const StateReader& state, std::string_view key, const std::string& found,
                         const std::string& wanted) {
  throw UserError(
      "{} was written with {} = {}, this run has {}; resume with the recipe and the version of fettle that wrote it, "
      "or start afresh",
      checkpoint_of(state), key, found, wanted);
}

void check_arrays(const StateReader& state, const Job& job) {
  std::set<std::string> wanted;
  for (const StateArray& array : trained_arrays(job)) {
    wanted.insert(array.name);
    if (!state.contains(array.name))
      refuse(state, "trained arrays", "(no " + array.name + ")", array.name + " " + array.shape.to_string());
  }
  for (const std::string& name : state.names())
    if (!wanted.contains(name))
      refuse(state, "trained arrays", name + " " + state.shape(name).to_string(), "(no " + name + ")");
  for (const StateArray& array : trained_arrays(job))
    if (const Shape& found = state.shape(array.name); found != array.shape)
      refuse(state, array.name, found.to_string(), array.shape.to_string());
}

// What makes this run's steps as large as the checkpoint's.
std::string remedy(const Job& job, int64_t rows) {
  const int64_t shards = job.batch_shards(), accumulation = job.recipe.gradient_accumulation_steps;
  const int64_t each = job.recipe.per_device_train_batch_size;
  if (rows % (shards * accumulation) == 0)
    return fmt::format("set per_device_train_batch_size: {}", rows / (shards * accumulation));
  if (rows % (shards * each) == 0) return fmt::format("set gradient_accumulation_steps: {}", rows / (shards * each));
  if (rows % shards == 0)
    return fmt::format("set per_device_train_batch_size: {} and gradient_accumulation_steps: 1", rows / shards);
  return fmt::format("{} rows do not divide over {} devices: use a number of devices that divides them", rows, shards);
}

void check_rows_per_step(const StateReader& state, const Job& job) {
  const int64_t found = state.meta().value("rows_per_step", int64_t{0}), wanted = rows_per_step(job);
  if (found == wanted) return;
  throw UserError(
      "{} was written with {} rows a step, this run has {} (per_device_train_batch_size {} x {} device{} x "
      "gradient_accumulation_steps {}): the order of rows would change; {}, or start a new run from its weights "
      "({}: {})",
      checkpoint_of(state), found, wanted, job.recipe.per_device_train_batch_size, job.batch_shards(),
      job.batch_shards() == 1 ? "" : "s", job.recipe.gradient_accumulation_steps, remedy(job, found),
      job.lora ? "adapter_name_or_path" : "model_name_or_path", checkpoint_of(state));
}

}  // namespace

Json checkpoint_meta(const Job& job, int64_t step, const Json& base, const DataIdentity& data,
                     const std::string& trainer_state) {
  return {{"step", step},
          {"rows_per_step", rows_per_step(job)},
          {"rows_per_epoch", data.groups},
          {"data_digest", data.digest},
          {"trainer_state", xxh3_128(std::as_bytes(std::span(trainer_state)))},
          {"identity", identity(job)},
          {"base", base}};
}

void check_meta(const StateReader& state, const Job& job) {
  const Json wanted = identity(job), found = state.meta().value("identity", Json::object());
  auto check = [&](const std::string& key) {
    // Earlier versions wrote fewer keys.
    if (!found.contains(key) && key != "quantization") return;
    if (const Json other = found.value(key, key == "quantization" ? Json("none") : Json()); other != wanted[key])
      refuse(state, key, other.dump(), wanted[key].dump());
  };
  // What explains the most comes first.
  check("model_type");
  check("stage");
  check("finetuning_type");
  check("optim");
  check_arrays(state, job);
  for (const auto& [key, value] : wanted.items()) check(key);
  check_rows_per_step(state, job);
}

void check_base(const StateReader& state, const Json& base) {
  const Json written = state.meta().value("base", Json::object());
  auto check = [&](const char* digest, const char* what, const char* key) {
    if (!written.contains(digest) || written[digest] == base[digest]) return;
    auto path = [&](const Json& of) {
      const Json found = of.value("paths", Json::object()).value(key, Json());
      return found.empty() || found == "" ? "none" : found.is_string() ? found.get<std::string>() : found.dump();
    };
    throw UserError(
        "{}: what is trained there was trained beside {} other than this run's: {} was {}, this run has {}; set it to "
        "what the checkpoint was written with, or start afresh",
        checkpoint_of(state), what, key, path(written), path(base));
  };
  check("ref_model", "a reference model", "ref_model");
  check("adapters", "adapters", "adapter_name_or_path");
  check("config", "a model (config.json)", "model_name_or_path");
  check("weights", "weights of a base model", "model_name_or_path");
}

void check_data(const StateReader& state, const DataIdentity& data) {
  const int64_t found = state.meta().value("rows_per_epoch", int64_t{0});
  if (found != data.groups)
    throw UserError(
        "{} was written in a run over {} rows an epoch, the data has {} now: rows would be lost or repeated; resume "
        "with the data it was written with, or start a new run from its weights",
        checkpoint_of(state), found, data.groups);
  if (state.meta().value("data_digest", data.digest) != data.digest)
    throw UserError(
        "{} was written in a run over other tokens: the rows, the tokenizer, the chat template or a key of the data "
        "(template, cutoff_len, train_on_prompt, ...) has changed since; resume with what it was "
        "written with, or start a new run from its weights",
        checkpoint_of(state));
}

void check_trainer_state(const StateReader& state) {
  const std::filesystem::path file = state.folder().parent_path() / "trainer_state.json";
  if (!std::filesystem::exists(file)) throw DamagedState("{} is missing; the checkpoint is damaged", file.string());
  if (xxh3_128(MappedFile(file).bytes()) != state.meta().value("trainer_state", ""))
    throw DamagedState("{} is not as it was written (its checksum differs); the checkpoint is damaged", file.string());
}

}  // namespace fettle
