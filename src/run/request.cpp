#include "run/request.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/error.h"
#include "base/files/json_file.h"
#include "base/log.h"
#include "checkpoint/peft/earlier_adapters.h"
#include "config/recipe.h"
#include "run/batch_spec.h"
#include "run/changes/changed_model.h"
#include "run/device_request.h"
#include "run/labels.h"
#include "run/model_folders.h"
#include "run/resolve/data_spec.h"
#include "run/resolve/expert_balance.h"
#include "run/resolve/quantise.h"
#include "run/resolve/resolve.h"
#include "stages/stages.h"

namespace fettle {
namespace {

namespace fs = std::filesystem;

void require_command_keys(const Recipe& recipe, Command command) {
  switch (command) {
    case Command::kTrain: return require_keys(recipe, {"model_name_or_path", "dataset", "output_dir"}, "train");
    case Command::kPlan: return require_keys(recipe, {"model_name_or_path"}, "plan");
    case Command::kData: return require_keys(recipe, {"model_name_or_path"}, "data");
    case Command::kEval: return require_keys(recipe, {"model_name_or_path"}, "eval");
    case Command::kGenerate: return require_keys(recipe, {"model_name_or_path"}, "generate");
    case Command::kChat: return require_keys(recipe, {"model_name_or_path"}, "chat");
    case Command::kServe: return require_keys(recipe, {"model_name_or_path"}, "serve");
    case Command::kExport: return require_keys(recipe, {"model_name_or_path", "export_dir"}, "export");
  }
}

bool trains(Command command) {
  return command == Command::kTrain || command == Command::kPlan || command == Command::kData;
}

const Stage& stage_with(Head head) {
  return **std::ranges::find(stages(), head, &Stage::head);
}

}  // namespace

Request::Request(const Recipe& recipe, Command command)
    : command_(command), stage_(&stage_named(recipe.stage, recipe.where("stage"))), models_(named_models(recipe)) {
  require_command_keys(recipe, command);
  Variant variant;
  if (!trains(command)) variant.train_from_scratch = false;  // other commands need trained weights
  recipe_ = std::make_shared<const Recipe>(with_variant(recipe, variant));
  if (trains(command)) check_stage_keys(*stage_, KeyValues(*recipe_));
  open(true);
  const std::string missing = missing_adapters();
  if (!missing.empty() && command == Command::kExport) throw UserError("{}", missing);
  if (!missing.empty()) warn("{}", missing);
  if (command == Command::kEval) {
    const bool said = recipe.places.has("stage");
    if (stage_->head == Head::kTokens && !said && has_taught_head()) stage_ = &stage_with(Head::kLabels);
  }
}

void Request::open(bool changes) {
  const bool weights = command_ == Command::kTrain ? !recipe_->train_from_scratch : !trains(command_);
  const auto wanted = weights ? ModelRepository::Weights::kRequired : ModelRepository::Weights::kIgnored;
  models_ = fetch_models(*recipe_, std::move(models_), wanted);
  if (changes) models_ = change_model(*recipe_, *stage_, std::move(models_), trains(command_), wanted);
  repository_ = std::make_shared<const ModelRepository>(ModelRepository::open(models_.model, wanted));
}

const KeyPlaces& Request::places() const {
  return recipe_->places;
}

std::string Request::missing_adapters() const {
  return missing_earlier_adapters(models_.name_of(models_.model), models_.adapters);
}

std::string Request::config_file() const {
  return (repository_->folder() / "config.json").string();
}

const std::string& Request::model_folder() const {
  return models_.model;
}

const std::vector<std::string>& Request::adapters() const {
  return models_.adapters;
}

std::string Request::model_title() const {
  std::string title = models_.name_of(model_folder());
  for (const std::string& adapter : adapters()) title += " + " + models_.name_of(adapter);
  return title;
}

const std::optional<LabelSet>& Request::labels() const {
  const ReadLabels read = command_ == Command::kPlan ? ReadLabels::kIfUnnamed : ReadLabels::kAlways;
  if (!labels_)
    labels_ = std::make_shared<const std::optional<LabelSet>>(
        settled_labels(*recipe_, *stage_, adapters(), repository_->config(), config_file(), read));
  return *labels_;
}

DataSpec Request::data() const {
  return data_spec(*recipe_, *stage_, labels(), cutoff_len_of(*recipe_, *stage_, repository_->config(), config_file()));
}

DataSpec Request::data_without_labels() const {
  return data_spec(*recipe_, *stage_, std::nullopt,
                   cutoff_len_of(*recipe_, *stage_, repository_->config(), config_file()));
}

DeviceRequest Request::devices() const {
  return device_request(*recipe_);
}

AssumedDevices Request::assumed_devices() const {
  return fettle::assumed_devices(*recipe_);
}

nlohmann::json Request::changed_keys() const {
  return KeyValues(*recipe_).changed_values();
}

bool Request::mesh_is_auto() const {
  return recipe_->mesh_is_auto();
}

bool Request::remat_is_auto() const {
  return recipe_->remat_is_auto();
}

bool Request::names_mesh() const {
  return !recipe_->mesh.empty() && !recipe_->mesh_is_auto();
}

MeshAxes Request::mesh(int64_t devices) const {
  return make_mesh(recipe_->mesh, devices);
}

BatchSpec Request::batch(int64_t devices, BatchUse use, Purpose purpose) const {
  const nlohmann::json& json = repository_->config();
  // For an unknown family, uses a default config: the rows can be counted even if Fettle cannot train the model.
  const Family* family = find_family(json);
  const nlohmann::json asked = with_asked_balance(*recipe_, json);
  const ModelConfig config = family == nullptr ? ModelConfig{} : family->read(ConfigReader(asked, config_file()));
  return batch_spec(*recipe_, *stage_, config, cutoff_len_of(*recipe_, *stage_, json, config_file()),
                    mesh_of(*recipe_, devices, purpose, {}), use);
}

const std::string& Request::target() const {
  return recipe_->target;
}

std::optional<int64_t> Request::device_count() const {
  return asked_devices(*recipe_);
}

bool Request::plan_only() const {
  return recipe_->plan_only;
}

GenerationSpec Request::generation() const {
  const Recipe& r = *recipe_;
  return {.prompt = r.prompt,
          .max_new_tokens = r.max_new_tokens,
          .do_sample = r.do_sample,
          .temperature = r.temperature,
          .top_k = r.top_k,
          .top_p = r.top_p,
          .min_p = r.min_p,
          .repetition_penalty = r.repetition_penalty,
          .seed = static_cast<uint64_t>(r.seed)};
}

EvalSpec Request::eval() const {
  const Recipe& r = *recipe_;
  return {.tasks = r.eval_task, .base_model = r.eval_base_model, .output_dir = r.output_dir};
}

ExportSpec Request::exported() const {
  const Recipe& r = *recipe_;
  return {.folder = r.export_dir,
          .shard_bytes = std::max<int64_t>(1, std::llround(r.export_size * 1e9)),
          .splits_gguf = r.places.has("export_size"),
          .dtype = r.export_dtype.empty() ? std::nullopt : std::optional(dtype_from_hf(r.export_dtype)),
          .gguf = r.export_gguf,
          .quantization = r.export_quantization};
}

Run Request::resolve(const RunTarget& target, Purpose purpose, const Variant& variant) const {
  return fettle::resolve({*recipe_, *stage_, models_, {repository_->config(), config_file()}, labels()}, target,
                         purpose, variant);
}

bool Request::has_taught_head() const {
  if (taught_labels().count() > 0) return true;
  return std::ranges::any_of(adapters(), [](const std::string& adapter) {
    const fs::path file = fs::path(adapter) / "adapter_config.json";
    if (!fs::exists(file)) return false;
    const nlohmann::json config = read_json_file(file);
    return config.is_object() && config.value("task_type", nlohmann::json()) == "SEQ_CLS";
  });
}

LabelRequest Request::label_request() const {
  return fettle::label_request(*recipe_);
}

TaughtLabels Request::taught_labels() const {
  return fettle::taught_labels(adapters(), repository_->config(), config_file());
}

std::optional<Quantisation> Request::quantisation(const ModelConfig& config) const {
  return quantisation_of(*recipe_, config, model_folder());
}

Request Request::for_other_rows() const {
  if (!stage_->measured_as) return *this;
  Request out = *this;
  out.stage_ = &stage_->measured_as();
  return out;
}

bool Request::names_reference() const {
  return !models_.reference.empty();
}

bool Request::has_reference() const {
  return stage_->has_reference(KeyValues(*recipe_));
}

Request Request::with_adapters(const std::vector<std::string>& adapters) const {
  Request out = *this;
  out.models_.adapters = adapters;
  out.labels_.reset();
  out.open(false);
  return out;
}

Request Request::without_adapters() const {
  return with_adapters({});
}

Request Request::with_model(const std::string& folder) const {
  Request out = *this;
  out.models_.model = folder;
  out.models_.revision.clear();  // model_revision belongs to model_name_or_path
  out.models_.adapters.clear();
  out.recipe_ = std::make_shared<const Recipe>(with_variant(*recipe_, {.any_labels = true}));
  out.labels_.reset();
  out.open(false);
  return out;
}

Request Request::exact(int64_t num_labels, const std::string& merged) const {
  Request out = *this;
  if (!merged.empty()) {
    out.models_.model = merged;
    out.models_.adapters.clear();
  }
  out.recipe_ = std::make_shared<const Recipe>(with_variant(*recipe_, {.any_bits = !merged.empty(), .exact = true}));
  out.stage_ = &stage_with(num_labels > 0 ? Head::kLabels : Head::kTokens);
  out.open(false);
  std::optional<LabelSet> labels;
  if (num_labels > 0) labels = LabelSet{Problem::kSingleLabel, default_labels(num_labels)};
  out.labels_ = std::make_shared<const std::optional<LabelSet>>(labels);
  return out;
}

}  // namespace fettle
