#include "train/result.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <system_error>

#include "base/arrays/box_copy.h"
#include "base/files/json_file.h"
#include "base/log.h"
#include "checkpoint/chat_files.h"
#include "checkpoint/convert.h"
#include "checkpoint/copy_files.h"
#include "checkpoint/load.h"
#include "checkpoint/peft/adapter_files.h"
#include "checkpoint/peft/earlier_adapters.h"
#include "checkpoint/pieces.h"
#include "models/classifier_config.h"
#include "models/quantization_config.h"

namespace fettle {
namespace {

constexpr int64_t kShardBytes = int64_t{5} << 30;

DType result_dtype(const Run& run) {
  return run.adapter.lora ? run.precision.trained : run.model.config.dtype;
}

// Returns the dims of a stored tensor in the result. The result of PiSSA has twice the rank, because it also contains
// the initial A and B.
Dims result_dims(const Run& run, const Param& param) {
  Dims dims = param.stored_dims();
  if (run.adapter.pissa && param.is_lora()) dims[param.role == Role::kLoraA ? 0 : dims.size() - 1] *= 2;
  return dims;
}

// Returns the indices (Param::stored_name) of the tensors that are written for the parameter. A parameter has one
// tensor for each of its layers, or for each expert of each layer.
std::vector<int64_t> stored_numbers(const Run& run, const Param& param) {
  const int64_t experts = param.of_experts() ? param.dims[0] : 1;
  std::vector<int64_t> out;
  for (const int64_t layer : run.layers_of(param))
    for (int64_t expert = 0; expert < experts; ++expert) out.push_back(param.layers.slice_of(layer) * experts + expert);
  return out;
}

// Returns the tensor's name in the files of a full result. If the result also has tensors that are copied from the base
// (Family::carried), returns the name in the base's files. Otherwise returns `name`.
std::string written_name(const Run& run, const ModelRepository& base, const std::string& name) {
  const bool whole = !run.model.family->carried.empty() && base.contains(name);
  return whole ? base.find(name).entry->name : name;
}

// Returns whether full tuning copies this tensor of the base unchanged.
bool is_copied(const Run& run, const std::string& name) {
  return carries(*run.model.family, name) || is_unused(*run.model.family, run.model.config, name);
}

// Returns the names and shapes of the result's tensors: the adapter's tensors, or the model's tensors and the tensors
// that are copied from the base.
NamedShapes result_shapes(const Run& run, const ModelRepository& base) {
  NamedShapes out;
  std::vector<Param> params = run.adapter.lora ? run.trained : run.model.params;
  std::ranges::copy_if(run.frozen, std::back_inserter(params), &Param::of_adapter);
  for (const Param& param : params)
    for (const int64_t index : stored_numbers(run, param))
      out.emplace_back(
          run.adapter.lora ? adapter_key(param.stored_name(index)) : written_name(run, base, param.stored_name(index)),
          Shape{param.written_dtype(result_dtype(run)), result_dims(run, param)});
  if (run.adapter.lora && saves_tied_head(run.model, *run.adapter.lora))
    for (const Param& param : params)
      if (param.role == Role::kTokenEmbedding)
        out.emplace_back(adapter_key(tied_head(run.model)), Shape{result_dtype(run), param.dims});
  if (run.adapter.lora) return out;
  for (const std::string& name : base.names())
    if (is_copied(run, name)) out.emplace_back(name, base.find(name).entry->shape);
  return out;
}

// Returns a regular expression that matches exactly this text, which is a part of a tensor's name.
std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) out += c == '.' ? std::string("\\.") : std::string(1, c);
  return out;
}

// Returns a regular expression that matches the beginning of the names of modules in these layers; an empty list means
// all layers.
std::string layer_pattern(const std::string& prefix, const std::vector<int64_t>& layers) {
  const size_t number = prefix.find("{}");
  const std::string numbers = layers.empty() ? "\\d+" : fmt::format("(?:{})", fmt::join(layers, "|"));
  return escaped(prefix.substr(0, number)) + numbers + escaped(prefix.substr(number + 2));
}

AdapterConfig adapter_config(const Run& run) {
  AdapterConfig config;
  config.base_model_name_or_path = run.model_name;
  config.r = run.adapter.lora->rank;
  config.lora_alpha = run.adapter.lora->alpha;
  if (run.adapter.pissa) {  // keeps the scale, although the rank doubles
    config.r *= 2;
    config.lora_alpha *= run.adapter.lora->rslora ? std::sqrt(2.0) : 2;
  }
  config.lora_dropout = run.adapter.lora->dropout;
  if (run.model.classifies()) config.task_type = "SEQ_CLS";
  config.use_rslora = run.adapter.lora->rslora;
  config.use_dora = run.adapter.lora->dora;
  const LoraOptions trained = without_stored(*run.adapter.lora);
  config.modules_to_save = trained.saved;
  if (saves_tied_head(run.model, trained))
    for (const std::string& name : {run.model.head().hf_name, tied_head(run.model)}) {
      if (std::ranges::none_of(config.modules_to_save,
                               [&](const std::string& saved) { return saved_with(name, saved); }))
        config.modules_to_save.push_back(last_part(module_of(name)));
    }
  for (const ExpertParameter& parameter : run.adapter.lora->parameters)
    config.target_parameters.push_back(parameter.name);
  if (const int64_t factor = run.adapter.lora->gate_up_factor; factor != 1) {
    const std::string pattern = ".*\\.gate_up_proj";
    config.rank_pattern = {{pattern, factor * run.adapter.lora->rank}};
    config.alpha_pattern = {{pattern, static_cast<double>(factor) * run.adapter.lora->alpha}};
  }
  config.fan_in_fan_out = run.model.family->fan_in_fan_out;
  if (!run.model.family->carried.empty()) {  // the vision tower may have modules with the same names
    // PEFT refuses layers_to_transform beside a pattern, so the pattern has the numbers of the layers.
    std::vector<std::string> modules, outside;
    for (const std::string& module : run.adapter.lora->modules)
      (run.model.path_of(module) == module ? outside : modules).push_back(escaped(module));
    if (!modules.empty())
      outside.insert(outside.begin(), layer_pattern(run.model.family->layer_prefix, run.adapter.lora->layers) +
                                          fmt::format("({})", fmt::join(modules, "|")));
    config.target_pattern = fmt::format("{}", fmt::join(outside, "|"));
    return config;
  }
  if (!run.adapter.lora->layers.empty()) config.selection["layers_to_transform"] = run.adapter.lora->layers;
  // In PEFT, a name in target_modules matches each module whose path ends with a dot and this name. The last part of
  // the name is enough, unless two modules of a layer end with the same part.
  for (const std::string& module : run.adapter.lora->modules) {
    const std::string last = last_part(module);
    int64_t same = 0;
    for (const std::string& linear : run.model.linears()) same += linear.ends_with("." + last) ? 1 : 0;
    config.target_modules.push_back(same == 1 ? last : module);
  }
  return config;
}

}  // namespace

std::vector<ResultPart> result_parts(const Run& run) {
  std::vector<ResultPart> parts;
  for (const Param& param : run.trained)
    parts.push_back({&param, trained_input(param), run.adapter.pissa && param.is_lora() ? start_array(param) : ""});
  for (const Param& param : run.frozen)
    if (run.keeps(param)) parts.push_back({&param, frozen_input(param), ""});
  return parts;
}

std::vector<StateArray> result_arrays(const Run& run) {
  std::set<std::string> names;
  for (const ResultPart& part : result_parts(run)) names.insert({part.weights, part.start});
  std::vector<StateArray> arrays = trained_arrays(run);
  std::erase_if(arrays, [&](const StateArray& array) { return !names.contains(array.name); });
  return arrays;
}

ResultWriter::ResultWriter(const std::filesystem::path& folder, const Run& run, const ModelRepository& repository)
    : folder_(folder), run_(run), repository_(repository), dtype_(result_dtype(run)) {
  if (run.adapter.lora && saves_tied_head(run.model, *run.adapter.lora)) tied_ = run.model.head().hf_name;
  if (run.adapter.lora)
    adapter_.emplace(begin_adapter(folder, adapter_config(run), result_shapes(run, repository)));
  else
    model_.emplace(folder, result_shapes(run, repository), kShardBytes);
}

ReadableArray::ReadableArray(const HostShards& shards)
    : shape(shards.shape), read([&shards](const Box& box, std::byte* out) {
        bool any = false;
        for (const HostShards::Shard& shard : shards.shards) {
          any |= intersect(shard.box, box).elements() > 0;
          copy_common(shard.box, shard.bytes.data(), box, out, byte_size(shards.shape.dtype));
        }
        return any;
      }) {}

ReadableArray::ReadableArray(StateReader& state, const std::string& name)
    : shape(state.shape(name)), read([&state, name](const Box& box, std::byte* out) {
        state.read_slice(name, box, out);
        return true;
      }) {}

template <typename Write>
void ResultWriter::for_each_layer(const Param& param, const ReadableArray& weights, Write write) const {
  const Dims dims = param.stored_dims();
  const DType dtype = param.written_dtype(dtype_);
  const DType from = weights.shape.dtype;
  HostArray layer({dtype, dims});
  Box box = Box::whole(weights.shape.dims);
  for (int d = 0; d < param.stack_dims(); ++d) box.size[d] = 1;
  for (const int64_t index : stored_numbers(run_, param)) {
    if (param.of_experts())
      box.start[0] = index / param.dims[0], box.start[1] = index % param.dims[0];
    else if (param.stacked())
      box.start[0] = index;
    std::atomic<bool> found = false;
    fill_box_in_pieces(box, byte_size(dtype), layer.data(), [&](const Box& piece, std::byte* out) {
      const std::span<std::byte> staged = staging(piece.elements() * byte_size(from));
      if (!weights.read(piece, staged.data())) return;
      found = true;
      convert_elements(staged.data(), from, out, dtype, piece.elements());
    });
    if (found) write(param.stored_name(index), layer);
  }
}

void ResultWriter::write(const std::string& name, const HostArray& weight) {
  const std::span<const std::byte> bytes{weight.data(), static_cast<size_t>(weight.bytes())};
  if (adapter_) adapter_->write(adapter_key(name), bytes);
  if (adapter_ && name == tied_) adapter_->write(adapter_key(tied_head(run_.model)), bytes);
  if (!adapter_) model_->write(written_name(run_, repository_, name), bytes);
}

void ResultWriter::add(const Param& param, const ReadableArray& weights) {
  for_each_layer(param, weights, [&](const std::string& name, const HostArray& weight) { write(name, weight); });
}

void ResultWriter::add(const Param& param, const ReadableArray& weights, const ReadableArray& start) {
  std::map<std::string, HostArray> starts;
  for_each_layer(param, start,
                 [&](const std::string& name, const HostArray& weight) { starts.emplace(name, weight.clone()); });
  // For PiSSA, A becomes [A; start] and B becomes [B, -start].
  const bool is_a = param.role == Role::kLoraA;
  const int64_t each = is_a ? product(param.dims) : param.dims.back(), runs = product(param.dims) / each;
  HostArray both({dtype_, result_dims(run_, param)});
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
    // Copies the weights that were not trained.
    for (const Param& param : run_.frozen) {
      if (run_.keeps(param)) continue;  // add() has written it
      for (const int64_t index : stored_numbers(run_, param)) {
        const std::string name = param.stored_name(index);
        const StoredTensor stored = repository_.find(name);
        write(name, stored.file->read(*stored.entry).to(param.written_dtype(dtype_)));
        stored.file->release(*stored.entry);
      }
    }
    for (const std::string& name : repository_.names()) {
      if (!is_copied(run_, name)) continue;
      const StoredTensor stored = repository_.find(name);
      const HostArray values = stored.file->read(*stored.entry);
      model_->write(name, {values.data(), static_cast<size_t>(values.bytes())});
      stored.file->release(*stored.entry);
    }
    model_->finish();
  }
  // Reads the files of the adapter that was trained further before they are replaced, because `folder_` may have them.
  const ResultChat chat =
      result_chat(repository_, run_.data, !run_.model.classifies(), run_.adapter.folders(), ResultOf::kTraining);
  copy_tokenizer_files(repository_.folder(), folder_);
  if (model_) copy_model_files(repository_.folder(), folder_);
  // An adapter that is written into the folder of its base leaves the base's files as they are.
  std::error_code missing;
  if (model_ || !std::filesystem::equivalent(run_.output.folder, repository_.folder(), missing))
    write_result_chat(chat, repository_, model_.has_value(), folder_);
  nlohmann::json base = repository_.config();
  // The result has no quantization_config, because its weights are floats even if the base's weights are quantised.
  const bool was_quantised = remove_quantization(base);
  if (was_quantised && model_) write_json_file(folder_ / "config.json", base);
  if (adapter_ && !run_.adapter.merged.empty())
    write_earlier_adapters(folder_, nlohmann::json::parse(run_.output.changed_keys));
  if (!run_.model.classifies()) return;
  const std::optional<LabelSet>& labels = run_.labels();
  const nlohmann::json config = classifier_config(base, run_.model, labels ? std::string(name_of(labels->problem)) : "",
                                                  labels ? labels->id2label : std::vector<std::string>());
  if (model_)
    write_json_file(folder_ / "config.json", config);
  else
    write_json_file(folder_ / kAdapterLabels, adapter_labels(config));
}

namespace {

// A WithArray calls `use` with the array that is called `name`, or with one part of this array after another
// (FetchArray). The array or part may be freed after `use` has returned.
using UseArray = std::function<void(const ReadableArray& array)>;
using WithArray = std::function<void(const std::string& name, const UseArray& use)>;

void write_from(const std::filesystem::path& folder, const Run& run, const ModelRepository& repository,
                const WithArray& with_array) {
  ResultWriter writer(folder, run, repository);
  for (const ResultPart& part : result_parts(run))
    with_array(part.weights, [&](const ReadableArray& weights) {
      if (part.start.empty()) return writer.add(*part.param, weights);
      with_array(part.start, [&](const ReadableArray& start) { writer.add(*part.param, weights, start); });
    });
  writer.finish();
}

// Returns the modules with LoRA weights that PEFT takes for experts (Family::mlp_is_experts_in_peft).
std::vector<std::string> taken_for_experts(const Run& run) {
  std::vector<std::string> out;
  if (!run.adapter.lora || !run.model.family->mlp_is_experts_in_peft) return out;
  std::ranges::copy_if(run.adapter.lora->modules, std::back_inserter(out), [](const std::string& module) {
    return std::set<std::string>{"gate_proj", "up_proj", "down_proj"}.contains(last_part(module));
  });
  return out;
}

}  // namespace

void warn_of_result(const Run& run) {
  if (run.adapter.lora && !run.adapter.lora->parameters.empty())
    warn(
        "this adapter has LoRA weights of experts or routers (target_parameters). PEFT loads them, but vLLM does not: "
        "version 0.32 refuses such an adapter, and older versions ignore these weights without a message; for vLLM, "
        "merge the adapter with `fettle export`");
  if (const std::vector<std::string> modules = taken_for_experts(run); !modules.empty())
    warn(
        "this adapter has LoRA weights of {}. Under Transformers 5, PEFT takes these names in {} for the routed "
        "experts, so it does not load these weights; for PEFT, merge the adapter with `fettle export`, or train with "
        "only attention's layers in lora_target",
        fmt::join(modules, ", "), run.model.family->model_type);
  if (run.adapter.lora && !run.adapter.merged.empty())
    warn(
        "the adapter was trained on the base with {0} merged into the base, and works only together with it; to use "
        "the adapter, set adapter_name_or_path: {0}, {1}",
        fmt::join(run.adapter.merged, ", "), run.output.folder);
}

void write_result(const std::filesystem::path& folder, const Run& run, const ModelRepository& repository,
                  const FetchArray& fetch) {
  write_from(folder, run, repository, [&](const std::string& name, const UseArray& use) {
    fetch(name, [&](const HostShards& array) { use(array); });
  });
}

void write_result(const std::filesystem::path& folder, const Run& run, const ModelRepository& repository,
                  const TrainState& state) {
  write_result(folder, run, repository, fetch_from(state));
}

void write_result(const std::filesystem::path& folder, const Run& run, const ModelRepository& repository,
                  StateReader& state) {
  write_from(folder, run, repository, [&](const std::string& name, const UseArray& use) {
    // Each process wrote its part of every layer, so the first layer already needs all shards. Verifying them here uses
    // several threads; read_slice() would verify one after the other.
    state.verify(name, Box::whole(state.shape(name).dims));
    use(ReadableArray(state, name));
    state.release(name);
  });
}

int64_t result_bytes(const Run& run, const ModelRepository& repository) {
  int64_t bytes = 0;
  for (const auto& [name, shape] : result_shapes(run, repository)) bytes += shape.bytes();
  return bytes;
}

}  // namespace fettle
