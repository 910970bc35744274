#include "export/export.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <ranges>

#include "base/error.h"
#include "base/files/json_file.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/seconds_since.h"
#include "checkpoint/chat_files.h"
#include "checkpoint/copy_files.h"
#include "checkpoint/load.h"
#include "checkpoint/peft/adapter_options.h"
#include "checkpoint/saved/atomic_folder.h"
#include "export/weights.h"
#include "models/classifier.h"
#include "models/classifier_config.h"
#include "models/quantization_config.h"

namespace fettle {
namespace {

constexpr const char* kScratch = ".check";  // subfolder of the unfinished export, for files that the checks need

// Sets the dtype of the weights in config.json. A model with images can have a dtype in the config of each part, too.
void set_dtype(nlohmann::json& config, DType dtype) {
  bool stated = false;
  auto set = [&](nlohmann::json& part) {
    for (const char* key : {"dtype", "torch_dtype"})
      if (part.contains(key)) part[key] = hf_name(dtype), stated = true;
  };
  set(config);
  for (const char* part : {"text_config", "vision_config", "audio_config"})
    if (config.contains(part) && config[part].is_object()) set(config[part]);
  if (!stated) config["torch_dtype"] = hf_name(dtype);
}

// Says in config.json that the files have no layers that predict tokens further ahead.
void set_no_later_layers(nlohmann::json& config) {
  constexpr const char* kCount = "num_nextn_predict_layers";
  if (config.contains(kCount)) config[kCount] = 0;
  if (config.contains("text_config") && config["text_config"].is_object() && config["text_config"].contains(kCount))
    config["text_config"][kCount] = 0;
}

// Copies the base's model files, with the chat template and end token of `chat`, and writes config.json. Its
// quantization_config describes the written weights, not those of the base.
void write_config(const ModelRepository& base, const ResultChat& chat, const WrittenForm& form,
                  const std::optional<nlohmann::json>& other, const std::filesystem::path& folder) {
  copy_model_files(base.folder(), folder);
  write_result_chat(chat, base, true, folder);
  nlohmann::json config = other.value_or(base.config());
  const std::optional<DType>& dtype = form.dtype;
  const bool was_quantised = remove_quantization(config);
  if (!was_quantised && !dtype && !other && form.compressed == nullptr) return;
  if (form.compressed != nullptr) {
    config["quantization_config"] = form.compressed->config();
    set_no_later_layers(config);
  }
  if (dtype) set_dtype(config, *dtype);
  write_json_file(folder / "config.json", config);
}

// Returns the number of labels of the exported classifier. The number comes from the adapters' head, or else from
// config.json. Returns 0 for a language model.
int64_t exported_labels(const Family& family, const nlohmann::json& config, const std::string& file,
                        const std::vector<AdapterFolder>& adapters) {
  int64_t labels = read_taught_labels(config, file).count();
  for (const AdapterFolder& adapter : adapters) {
    if (adapter.config.task_type != "SEQ_CLS") continue;
    const std::string name = family.classifier.modules.back() + ".weight";
    const TensorEntry* head = adapter.find(name, AdapterPart::kSaved);
    if (head == nullptr)
      throw UserError(
          "{}: this is a classifier's adapter (task_type SEQ_CLS), but it has no '{}'; save it again with that module",
          adapter.file.path().string(), name);
    if (head->shape.rank() != 2 || head->shape.elements() == 0)
      throw UserError("{}: '{}' is {}, wanted [labels, hidden]; save the adapter again", adapter.file.path().string(),
                      name, head->shape.to_string());
    labels = head->shape.dims[0];
  }
  // An encoder without a head is exported without one; the number of labels does not matter then.
  return labels == 0 && family.encoder ? 1 : labels;
}

// Returns whether the base's tensors have the parameters' names. A base model that was saved without its head has other
// tensor names, but adapters always use the parameters' names.
bool named_as_params(const ModelRepository& base, const Model& model) {
  const std::string name = model.params.front().stored_name(0);
  return base.find(name).entry->name == name;
}

// Adds the tensors of the classifier's head that the base lacks. Takes each tensor from the last adapter that has it.
void add_head(BaseTensors& tensors, const Model& model, const std::vector<AdapterFolder>& adapters) {
  for (const Param& param : model.params) {
    if (!param.of_classifier() || tensors.contains(param.hf_name)) continue;
    const TensorEntry* found = nullptr;
    for (const AdapterFolder& adapter : adapters | std::views::reverse)
      if (const TensorEntry* entry = adapter.find(param.hf_name, AdapterPart::kSaved)) {
        if (entry->shape.dims != param.stored_dims())
          throw UserError("{}: '{}' is {}, wanted {}; it is the adapter of another model", adapter.file.path().string(),
                          param.hf_name, entry->shape.to_string(), to_string(param.stored_dims()));
        tensors.add(param.hf_name, {&adapter.file, found = entry});
        break;
      }
    if (found == nullptr)
      throw UserError("neither the base nor {} has '{}'; train the adapter with that module in additional_target",
                      adapters.back().file.path().string(), param.hf_name);
  }
}

// Returns config.json of the merged classifier. The names of the labels come from the recipe, or else from the base or
// the adapter.
nlohmann::json merged_config(const Request& request, const Model& model) {
  const LabelRequest asked = request.label_request();
  const TaughtLabels taught = request.taught_labels();
  check_taught(asked, taught);
  const bool same = taught.count() == model.config.num_labels;
  std::vector<std::string> names = asked.id2label;
  std::optional<Problem> problem = asked.problem;
  if (same && names.empty()) names = taught.id2label;
  if (same && !problem && request.stage().head != Head::kScore) problem = taught.problem;
  return classifier_config(request.repository().config(), model, problem ? std::string(name_of(*problem)) : "", names);
}

std::vector<const GgufFileType*> gguf_types(const ExportSpec& spec) {
  std::vector<const GgufFileType*> types;
  for (const std::string& key : spec.gguf) {
    const GgufFileType* type = find_gguf_file_type(key);
    internal_check(type != nullptr, "export_gguf has no type '{}'", key);
    if (std::ranges::find(types, type) == types.end()) types.push_back(type);
  }
  return types;
}

void check_gguf_request(const Request& request, const ExportSpec& spec, const Model& model) {
  if (spec.dtype)
    throw UserError(
        "{}: export_dtype is for safetensors; with export_gguf, the types of the files say how weights are stored. "
        "Remove export_dtype. To choose the dtype, put f32, f16 or bf16 in export_gguf",
        request.places().of("export_gguf"));
  if (model.classifies() || model.family->encoder)
    throw UserError("{}: export_gguf does not write classifiers and encoders; export this model as safetensors",
                    request.model_title());
}

void check_quantization_request(const Request& request, const ExportSpec& spec) {
  if (!spec.gguf.empty())
    throw UserError("{}: export_quantization is for safetensors; remove export_quantization or export_gguf",
                    request.places().of("export_quantization"));
}

// Warns if the base has layers that predict tokens further ahead, because export_quantization does not write them.
void warn_of_later_layers(const ModelRepository& base, const Model& model, const std::string& name) {
  if (std::ranges::any_of(base.names(), [&](const std::string& tensor) {
        return is_of_later_layer(*model.family, model.config, tensor);
      }))
    warn(
        "{}: export_quantization leaves out the layers that predict tokens further ahead (after layer {}), and sets "
        "num_nextn_predict_layers to 0 in config.json; without the key, an export keeps them",
        name, model.config.num_hidden_layers - 1);
}

// Returns the folder with the tokenizer, the chat template and the licence for GGUF files: the base's folder, or a copy
// of these files in `scratch` when the result has another chat template or end token.
std::filesystem::path folder_of_texts(const ModelRepository& base, const ResultChat& chat,
                                      const std::filesystem::path& scratch) {
  if (!chat.changes()) return base.folder();
  std::filesystem::create_directories(scratch);
  copy_model_files(base.folder(), scratch);
  copy_licence_files(base.folder(), scratch);
  write_result_chat(chat, base, true, scratch);
  return scratch;
}

// Returns the folder's name without its path; "model" when it has none.
std::string title_of(const std::filesystem::path& folder) {
  std::filesystem::path plain = std::filesystem::absolute(folder).lexically_normal();
  if (plain.filename().empty()) plain = plain.parent_path();
  const std::string name = plain.filename().string();
  return name.empty() ? "model" : name;
}

std::string base_title(const Request& request) {
  return title_of(request.without_adapters().model_title());
}

// The folder that the export writes. While it exists, Ctrl-C and SIGTERM end the export at the next call of
// check_signal(), and the destructor removes the unfinished folder.
struct Target {
  explicit Target(const std::string& path) : folder(path, AtomicFolder::Existing::kRefuse) {
    notice.set("stopping and removing the unfinished export; Ctrl-C again ends at once and leaves it");
  }

  const InterruptScope interrupts;
  InterruptNotice notice;
  AtomicFolder folder;
};

// What all forms of an export work on. It stays at its place, because `tensors` refers to `model`.
struct ExportJob {
  explicit ExportJob(const Request& request);
  ExportJob(const ExportJob&) = delete;
  ExportJob& operator=(const ExportJob&) = delete;

  const AdapterMerge* merge_or_null() const { return merge ? &*merge : nullptr; }
  // Begins the merge, if there are adapters. With `checked`, or with adapters, opens the devices for the check of the
  // written model. Throws before anything is written if the logits of base + adapter cannot be computed.
  void begin(bool checked);

  Phases phases;
  const Request& request;
  const ExportSpec spec;
  const std::vector<const GgufFileType*> gguf;  // the types of GGUF files to write; empty: none
  const ModelRepository& base;
  std::vector<AdapterFolder> adapters;  // begin() moves them into `merge`
  const int64_t labels;
  const Model model;
  const bool merges, classifier;  // classifier: a classifier is merged
  BaseTensors tensors;
  const ResultChat chat;
  std::optional<AdapterMerge> merge;
  std::optional<Devices> devices;
};

std::vector<AdapterFolder> open_adapters(const Request& request) {
  std::vector<AdapterFolder> adapters;
  for (const std::string& adapter : request.adapters()) adapters.push_back(open_adapter(adapter));
  return adapters;
}

// Returns the checked model.
Model model_to_export(const Request& request, const ExportSpec& spec, int64_t labels) {
  Model model = make_model(request.repository().config(), request.config_file(), labels);
  if (!spec.gguf.empty()) check_gguf_request(request, spec, model);
  if (!spec.quantization.empty()) check_quantization_request(request, spec);
  check_weights(request.repository(), model);
  return model;
}

TensorNames names_to_read(const ExportJob& job) {
  const bool converts = !job.gguf.empty() || !job.spec.quantization.empty();
  const bool renames = job.classifier || (!named_as_params(job.base, job.model) && job.model.family->carried.empty());
  return converts || (job.merges && renames) ? TensorNames::kOfParams : TensorNames::kStored;
}

ExportJob::ExportJob(const Request& given)
    : request(given),
      spec(request.exported()),
      gguf(gguf_types(spec)),
      base(request.repository()),
      adapters(open_adapters(request)),
      labels(exported_labels(family_of(base.config(), request.config_file()), base.config(), request.config_file(),
                             adapters)),
      model(model_to_export(request, spec, labels)),
      merges(!adapters.empty()),
      classifier(merges && model.classifies()),
      tensors(base, model, request.quantisation(model.config), names_to_read(*this)),
      chat(result_chat(base, request.data_without_labels(), !model.classifies(), request.adapters(),
                       ResultOf::kExport)) {
  if (classifier) add_head(tensors, model, adapters);
}

void ExportJob::begin(bool checked) {
  if (checked || merges) {
    devices.emplace(request.devices());
    // The reference of the check is computed from rounded values, because training and inference round the values of
    // GGUF blocks to the tensors' dtypes. So the export must round them, too.
    tensors.round_decoded();
  }
  if (merges) {
    request.exact(labels).resolve(target_of(*devices), Purpose::kInference);  // the result is not used
    merge.emplace(model, std::move(adapters));
  } else {
    info("adapter_name_or_path is not set; {} is exported without an adapter", request.model_folder());
  }
}

void check_merge_count(const AdapterMerge& merge, const MergeCount& count) {
  if (!count.nonzero)
    throw UserError(
        "{}: the adapter is zero, so there is nothing to merge. Was it trained? Remove adapter_name_or_path to export "
        "the base",
        merge.names());
}

ExportReport export_gguf(ExportJob& job) {
  Target target(job.spec.folder);
  const std::filesystem::path folder = target.folder.path(), scratch = folder / kScratch;
  const std::filesystem::path texts = folder_of_texts(job.base, job.chat, scratch / "texts");
  const GgufNames names{job.request.model_title(), title_of(job.spec.folder),
                        job.merges ? base_title(job.request) : ""};
  GgufPlan plan = plan_gguf(job.base, job.model, job.tensors, names, texts, scratch / "tokenizer");
  job.begin(true);
  job.phases.done("checked the model");
  plan.keep_codes(job.merge_or_null());
  ExportReport report{.folder = job.spec.folder, .merged = job.merges};
  MergeCount count;
  report.gguf = write_gguf_files(plan, job.gguf, title_of(job.spec.folder), job.tensors, job.merge_or_null(), texts,
                                 folder, job.spec.splits_gguf ? job.spec.shard_bytes : 0, count);
  if (job.merge) check_merge_count(*job.merge, count);
  report.merged_tensors = count.tensors;
  job.phases.done("wrote the weights");
  check_signal();
  check_gguf_logits(*job.devices, job.request, folder, scratch, report.gguf);
  job.phases.done("compared the logits");
  check_signal();
  std::filesystem::remove_all(scratch);
  target.folder.commit();
  return report;
}

// Writes the weights in safetensors, config.json and the other files of the model folder. Returns what the merge
// changed.
MergeCount write_model(ExportJob& job, const WrittenForm& form, const std::filesystem::path& folder,
                       ExportReport& report) {
  ModelWriter writer(folder, written_shapes(job.tensors, form), job.spec.shard_bytes);
  const MergeCount count = write_weights(job.tensors, job.merge_or_null(), form, writer);
  writer.finish();
  write_config(job.base, job.chat, form,
               job.classifier ? std::optional(merged_config(job.request, job.model)) : std::nullopt, folder);
  report.files = writer.shard_count();
  report.bytes = writer.total_bytes();
  report.merged_tensors = count.tensors;
  job.phases.done("wrote the weights");
  check_signal();
  if (!job.merge) return count;
  check_merge_count(*job.merge, count);
  if (count.tensors == 0)
    throw UserError("{}: rounding the merged weights to {} removes every change; {}", job.merge->names(),
                    form.compressed != nullptr ? job.spec.quantization : hf_name(count.narrowest),
                    form.compressed != nullptr ? "remove export_quantization" : "set export_dtype: float32");
  return count;
}

ExportReport export_compressed(ExportJob& job) {
  const CompressedExport compressed(
      compressed_scheme(job.spec.quantization), job.spec.dtype.value_or(job.model.config.dtype), job.model, job.tensors,
      std::ranges::any_of(job.base.names(), [&](const std::string& name) { return carries(*job.model.family, name); }),
      job.request.model_title());
  warn_of_later_layers(job.base, job.model, job.request.model_title());
  job.begin(true);
  Target target(job.spec.folder);
  job.phases.done("checked the model");
  ExportReport report{.folder = job.spec.folder, .merged = job.merges, .quantization = job.spec.quantization};
  write_model(job, {job.spec.dtype, &compressed}, target.folder.path(), report);
  report.coded = LogitReference(*job.devices, job.request).check_coded(target.folder.path(), job.spec.quantization);
  job.phases.done("compared the logits");
  check_signal();
  target.folder.commit();
  return report;
}

ExportReport export_safetensors(ExportJob& job) {
  job.begin(false);
  Target target(job.spec.folder);
  job.phases.done("checked the model");
  ExportReport report{.folder = job.spec.folder, .merged = job.merges};
  const MergeCount count = write_model(job, {job.spec.dtype}, target.folder.path(), report);
  if (job.merges) {
    report.logits = check_logits(*job.devices, job.request, target.folder.path(), count.narrowest, job.labels);
    job.phases.done("compared the logits");
    check_signal();
  }
  target.folder.commit();
  return report;
}

}  // namespace

ExportReport run_export(const Request& request) {
  ExportJob job(request);
  if (!job.gguf.empty()) return export_gguf(job);
  return job.spec.quantization.empty() ? export_safetensors(job) : export_compressed(job);
}

std::string format_export(const ExportReport& report) {
  if (!report.gguf.empty()) {
    const std::string merged =
        report.merged ? fmt::format(": {} weights merged with the adapter", report.merged_tensors) : "";
    return fmt::format("{}{}\n{}", report.folder.string(), merged, format_gguf(report.gguf));
  }
  const bool small = report.bytes < 1'000'000'000;
  std::string text =
      fmt::format("{}: {:.2f} {} of weights in {} file{}", report.folder.string(), report.bytes / (small ? 1e6 : 1e9),
                  small ? "MB" : "GB", report.files, report.files == 1 ? "" : "s");
  if (report.merged) text += fmt::format(", {} tensors merged with the adapter", report.merged_tensors);
  if (!report.merged && report.quantization.empty()) return text;
  if (!report.logits && !report.coded) return text + "\nlogits not compared";
  if (report.coded)
    return text + fmt::format(
                      "\nlinear layers stored as {}; on {} prompts of {} tokens, computed in f32, the logits differ "
                      "from those of the original model by {:.1f} % of their standard deviation, and the most likely "
                      "token is the same at {:.1f} % of the positions",
                      report.quantization, kCheckedPrompts, kCheckedLength, 100 * report.coded->error,
                      100 * report.coded->agreement);
  return text + fmt::format(
                    "\nlargest difference of logits, {} prompts of {} tokens, f32: between merged model and base + "
                    "adapter {:.3g} (bound {:.3g}), between merged model and base {:.3g}; largest logit {:.3g}",
                    kCheckedPrompts, kCheckedLength, report.logits->difference_from_adapter, report.logits->bound,
                    report.logits->difference_from_base, report.logits->scale);
}

}  // namespace fettle
