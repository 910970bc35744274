#include "train/export.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <ranges>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/files.h"
#include "checkpoint/load.h"
#include "checkpoint/model_writer.h"
#include "checkpoint/saved/atomic_folder.h"
#include "data/order.h"
#include "graph/ops.h"
#include "models/blocks/loss.h"
#include "models/classifier.h"
#include "step/state/adapter_arrays.h"
#include "step/state/quantised_rows.h"
#include "step/state/train_state.h"
#include "step/step.h"
#include "train/base_tensors.h"
#include "train/classifier_config.h"

namespace fettle {
namespace {

constexpr int64_t kPrompts = 4, kPromptLength = 32;
constexpr int64_t kBlockBytes = int64_t{4} << 20;  // of f32, merged at a time

// What one adapter does to one weight W [rows, columns]: it adds scale * left [rows, r] right [r, columns]; with DoRA
// each output (row, or column when `by_column`) is then brought to its magnitude.
struct Change {
  HostArray left, right;
  double scale;
  std::optional<HostArray> magnitude;
  bool by_column;
};

HostArray transposed(const HostArray& x) {
  const int64_t rows = x.shape().dims[0], columns = x.shape().dims[1];
  HostArray out({DType::kF32, {columns, rows}});
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) out.as<float>()[j * rows + i] = x.as<float>()[i * columns + j];
  return out;
}

// An expert's weight in the checkpoint: which rows of which parameter of all experts it is.
struct ExpertWeight {
  std::string parameter;  // of expert_parameters
  int64_t layer, expert, experts;
  int64_t first_row;  // of the parameter's
};

// All of the model's, by name.
std::map<std::string, ExpertWeight> expert_weights(const Model& model) {
  std::map<std::string, ExpertWeight> out;
  const ModelConfig& c = model.config;
  if (c.num_experts == 0) return out;
  const std::vector<std::string> parameters = expert_parameters(model, {"gate_up_proj", "down_proj"});
  auto add = [&](const std::string& module, const std::string& parameter, int64_t first_row) {
    const WeightRow& row = model.row(model.family->layer_prefix + module + ".weight");
    for (int64_t i = 0; i < row.stored_count(c); ++i)
      out[row.stored_name(i)] = {parameter, i / c.num_experts, i % c.num_experts, c.num_experts, first_row};
  };
  add(c.experts.gate, parameters[0], 0);
  add(c.experts.up, parameters[0], c.intermediate_size);
  add(c.experts.down, parameters[1], 0);
  return out;
}

// What adapters, one after another, change of a base: with their shapes checked.
class Changes {
 public:
  Changes(const BaseTensors& base, const std::vector<AdapterFolder>& adapters, const Model& model)
      : adapters_(adapters),
        fan_in_fan_out_(model.family->fan_in_fan_out),
        layer_prefix_(model.family->layer_prefix),
        experts_(expert_weights(model)) {
    for (const AdapterFolder& adapter : adapters_) {
      const bool experts = !adapter.config.target_parameters.empty();
      options_.push_back(experts ? adapter_options(adapter, model) : LoraOptions{});
      for (const WeightRow& row : expert_pair_rows(model, options_.back()))
        for (int64_t layer = 0; layer < model.config.num_hidden_layers; ++layer) check_expert_pair(adapter, row, layer);
    }
    for (const AdapterFolder& adapter : adapters_)
      for (const AdapterTensor& tensor : adapter.tensors) check(base, adapter, tensor);
  }

  std::string names() const {
    std::vector<std::string> files;
    for (const AdapterFolder& adapter : adapters_) files.push_back(adapter.file.path().string());
    return fmt::format("{}", fmt::join(files, ", "));
  }
  // In the order of the adapters.
  std::vector<Change> of(const std::string& weight) const {
    std::vector<Change> out;
    if (!weight.ends_with(".weight")) return out;
    if (const auto expert = experts_.find(weight); expert != experts_.end()) return of_expert(expert->second);
    const std::string module = weight.substr(0, weight.size() - std::string(".weight").size());
    for (const AdapterFolder& adapter : adapters_) {
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
  // The tensor that the last adapter saved whole in the place of the base's; nothing when there is none.
  std::optional<StoredTensor> saved(const std::string& name) const {
    for (auto adapter = adapters_.rbegin(); adapter != adapters_.rend(); ++adapter)
      if (const TensorEntry* entry = adapter->find(name, AdapterPart::kSaved))
        return StoredTensor{&adapter->file, entry};
    return std::nullopt;
  }

 private:
  std::vector<Change> of_expert(const ExpertWeight& weight) const {
    std::vector<Change> out;
    for (size_t i = 0; i < adapters_.size(); ++i) {
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

  // Their shapes are the model's, which base has been checked against.
  void check_expert_pair(const AdapterFolder& adapter, const WeightRow& row, int64_t layer) const {
    const TensorEntry* entry = adapter.file.find("base_model.model." + row.stored_name(layer));
    if (entry == nullptr || entry->shape.dims != row.stored_dims())
      throw UserError("{}: {} is {}, wanted {}; it is another model's adapter", adapter.file.path().string(),
                      row.stored_name(layer), entry == nullptr ? "missing" : entry->shape.to_string(),
                      to_string(row.stored_dims()));
  }

  bool of_experts(const AdapterFolder& adapter, const AdapterTensor& tensor) const {
    const size_t holder = tensor.module.find(".mlp.experts");
    return !adapter.config.target_parameters.empty() && holder != std::string::npos;
  }

  void check(const BaseTensors& base, const AdapterFolder& adapter, const AdapterTensor& tensor) const {
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

  const std::vector<AdapterFolder>& adapters_;
  std::vector<LoraOptions> options_;  // of adapters_
  bool fan_in_fan_out_;
  std::string layer_prefix_;
  std::map<std::string, ExpertWeight> experts_;
};

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
      w[i * columns + j] *= static_cast<float>(magnitude[output(i, j)] / std::sqrt(square[output(i, j)]));
}

// What the merge did to the weights.
struct MergeCount {
  int64_t tensors = 0;            // changed on disk
  bool nonzero = false;           // the adapters change something
  DType narrowest = DType::kF64;  // of what was merged, as written
};

// Copies one tensor, changed or converted a block of rows at a time.
void write_tensor(const BaseTensors& base, const BaseTensor& from, const std::vector<Change>& changes, DType dtype,
                  ModelWriter& writer, MergeCount& count) {
  const auto& [file, entry] = from.stored;
  const Dims& dims = from.shape.dims;
  if (changes.empty() && dtype == entry->shape.dtype && from.quantised == nullptr) {
    if (entry->dense()) {
      writer.write(from.name, file->bytes(*entry));
    } else {
      const HostArray values = file->read(*entry);
      writer.write(from.name, {values.data(), static_cast<size_t>(values.bytes())});
    }
    file->release(*entry);
    return;
  }
  const ValueReader reader(base, from);
  const int64_t rows = dims.empty() ? 1 : dims[0], columns = rows == 0 ? 0 : from.shape.elements() / rows;
  int64_t block = std::max<int64_t>(1, kBlockBytes / std::max<int64_t>(1, columns * 4));
  for (const Change& change : changes)
    if (change.magnitude && change.by_column) block = rows;
  bool changed = false;
  for (int64_t first = 0; first < rows && columns > 0; first += block) {
    Box box{Dims(dims.size(), 0), dims};
    if (!dims.empty()) box.start[0] = first, box.size[0] = std::min(block, rows - first);
    HostArray values({DType::kF32, box.size});
    reader.read(box, values.as<float>().data());
    const HostArray before = changes.empty() ? HostArray() : values.clone();
    for (const Change& change : changes) {
      add(change, first, values.as<float>());
      if (change.magnitude) bring_to_magnitude(change, first, values.as<float>());
    }
    const HostArray out = values.to(dtype);
    if (!changes.empty() && !std::ranges::equal(before.as<float>(), std::as_const(values).as<float>())) {
      count.nonzero = true;
      changed |= std::memcmp(before.to(dtype).data(), out.data(), out.bytes()) != 0;
    }
    writer.write(from.name, {out.data(), static_cast<size_t>(out.bytes())}, first * columns * byte_size(dtype));
  }
  count.tensors += changed;
  if (!changes.empty() && byte_size(dtype) < byte_size(count.narrowest)) count.narrowest = dtype;
  file->release(*entry);
}

DType written_dtype(const BaseTensor& tensor, std::optional<DType> dtype) {
  return dtype && is_float(tensor.shape.dtype) ? *dtype : tensor.shape.dtype;
}

// Writes all tensors of the base in the order they are stored in.
MergeCount write_weights(const BaseTensors& base, const Changes* changes, std::optional<DType> dtype,
                         ModelWriter& writer) {
  MergeCount count;
  int64_t done = 0, total = 0;
  for (const BaseTensor& tensor : base.all()) total += tensor.shape.bytes();
  for (const BaseTensor& tensor : base.all()) {
    BaseTensor from = tensor;
    if (const auto saved = changes == nullptr ? std::nullopt : changes->saved(tensor.name)) {
      from.stored = *saved;
      from.quantised = nullptr;
      ++count.tensors, count.nonzero = true;
    }
    write_tensor(base, from, changes == nullptr ? std::vector<Change>{} : changes->of(tensor.name),
                 written_dtype(tensor, dtype), writer, count);
    done += tensor.shape.bytes();
    live_line(fmt::format("writing weights, {:.1f} of {:.1f} GB", done / 1e9, total / 1e9));
  }
  return count;
}

NamedShapes written_shapes(const BaseTensors& base, std::optional<DType> dtype) {
  NamedShapes shapes;
  for (const BaseTensor& tensor : base.all())
    shapes.emplace_back(tensor.name, tensor.shape.with_dtype(written_dtype(tensor, dtype)));
  return shapes;
}

// What is written are plain weights, whatever the base is held in.
void write_config(const ModelRepository& base, std::optional<DType> dtype, const std::optional<nlohmann::json>& other,
                  const std::filesystem::path& folder) {
  copy_model_files(base.folder(), folder);
  nlohmann::json config = other.value_or(base.config());
  if (config.erase("quantization_config") == 0 && !dtype && !other) return;
  if (dtype && config.contains("dtype")) config["dtype"] = hf_name(*dtype);
  if (dtype && (config.contains("torch_dtype") || !config.contains("dtype"))) config["torch_dtype"] = hf_name(*dtype);
  write_json_file(folder / "config.json", config);
}

// Labels of the classifier that is exported: the adapters' head tells, or else config.json; 0 of a language model.
int64_t exported_labels(const Family& family, const nlohmann::json& config,
                        const std::vector<AdapterFolder>& adapters) {
  int64_t labels = labels_of(config);
  for (const AdapterFolder& adapter : adapters) {
    if (adapter.config.task_type != "SEQ_CLS") continue;
    const std::string name = family.classifier.modules.back() + ".weight";
    const TensorEntry* head = adapter.find(name, AdapterPart::kSaved);
    if (head == nullptr)
      throw UserError("{}: a classifier's adapter (task_type SEQ_CLS) without '{}'; save it again with that module",
                      adapter.file.path().string(), name);
    labels = head->shape.dims[0];
  }
  return labels == 0 && family.encoder ? 1 : labels;  // an encoder alone is copied whatever its head may be
}

// Not so where the base model was saved alone: adapters call modules as the whole model does.
bool named_as_rows(const ModelRepository& base, const Model& model) {
  const std::string name = model.weights.front().stored_name(0);
  return base.find(name).entry->name == name;
}

// The head that the base lacks comes from the last adapter that has it.
void add_head(BaseTensors& tensors, const Model& model, const std::vector<AdapterFolder>& adapters) {
  for (const WeightRow& row : model.weights) {
    if (!row.head || tensors.contains(row.name)) continue;
    const TensorEntry* found = nullptr;
    for (const AdapterFolder& adapter : adapters | std::views::reverse)
      if (const TensorEntry* entry = adapter.find(row.name, AdapterPart::kSaved)) {
        tensors.add(row.name, {&adapter.file, found = entry});
        break;
      }
    if (found == nullptr)
      throw UserError("neither the base nor {} has '{}'; train the adapter with it in additional_target",
                      adapters.back().file.path().string(), row.name);
  }
}

// config.json of base and adapters: labels are named by the recipe, else by the file beside the last adapter.
nlohmann::json merged_config(const Recipe& recipe, const ModelRepository& base, const Model& model) {
  std::vector<std::string> names = recipe.id2label;
  std::string problem = recipe.problem_type;
  const std::filesystem::path beside = std::filesystem::path(recipe.adapter_name_or_path.back()) / kAdapterLabels;
  const nlohmann::json config = std::filesystem::exists(beside) ? read_json_file(beside) : base.config();
  if (labels_of(config) == model.config.num_labels) {
    if (problem.empty() && recipe.stage != "rm" && config.contains("problem_type") &&
        config["problem_type"].is_string())
      problem = config["problem_type"];
    for (int64_t i = 0; recipe.id2label.empty() && i < model.config.num_labels; ++i)
      names.push_back(
          config.value("id2label", nlohmann::json::object()).value(std::to_string(i), "LABEL_" + std::to_string(i)));
  }
  return classifier_config(base.config(), model, problem, names);
}

// The recipe for comparing: the exact forward pass in f32 of what is exported.
Recipe exact(Recipe recipe, int64_t labels) {
  recipe.stage = labels > 0 ? "cls" : "sft";
  if (labels > 0) recipe.num_labels = labels;
  recipe.problem_type = "single_label_classification";
  recipe.bf16 = recipe.pure_bf16 = recipe.fp16 = recipe.tf32 = false;
  recipe.lora_dtype = "float32";
  recipe.offload_param = recipe.offload_optimizer = false;
  return recipe;
}

// Logits of the fixed prompts.
struct Logits {
  HostArray with, without;  // the adapter; `with` is empty without one
};

// Nothing when the forward pass does not fit the device.
std::optional<Logits> compute_logits(Devices& devices, const Recipe& recipe) {
  const ModelRepository repository = ModelRepository::open(recipe.model_name_or_path);
  const Job job = make_job(recipe, repository.config(), (repository.folder() / "config.json").string(), devices.count(),
                           Purpose::kInference);
  const int64_t shards = job.batch_shards(), rows = (kPrompts + shards - 1) / shards * shards;
  const Shape ids{DType::kI32, {rows, std::min(kPromptLength, job.model.config.max_position_embeddings)}};
  Program program(job.sharding.mesh());
  {
    BuildScope scope(program.block());
    const Weights weights = add_weight_inputs(program, job);
    const Tensor tokens = program.input("tokens", ids);
    auto output = [&](const char* name, bool adapted) {
      Forward f = make_forward(job, weights, Remat::kFull);
      if (adapted) {
        f.adapt = lora_adapt(*job.lora, job.compute, nullptr);
        f.expert_pairs = expert_pairs(*job.lora);
      }
      f.tokens = tokens;
      f.positions = broadcast_to(iota({DType::kI32, {ids.dims[1]}}, 0), ids.dims);
      f.segments = full(1, ids);
      const Tensor hidden = job.model.family->forward(f);
      program.output(name, job.model.classifies() ? class_logits(f, job.model, hidden)
                                                  : logits(f, hidden, head_of(job.model, weights)));
    };
    output("without", false);
    if (job.lora) output("with", true);
  }
  const Executable executable = devices.compile(program);
  const int64_t needed = executable.memory_stats().peak, limit = devices.memory_limit();
  if (limit > 0 && needed > limit) {
    warn("the logits are not compared: that needs {:.1f} GB on each device, which has {:.1f} GB", needed / 1e9,
         limit / 1e9);
    return std::nullopt;
  }
  TrainState state = load_state(devices, job, repository, false);
  HostArray prompts(ids);
  for (int64_t i = 0; i < ids.elements(); ++i)
    prompts.as<int32_t>()[i] = static_cast<int32_t>(mix_bits(1, static_cast<uint64_t>(i)) %
                                                    static_cast<uint64_t>(job.model.config.vocab_size));
  DeviceBuffer tokens = replicate(devices, prompts);
  Bindings inputs = state.bindings();
  inputs["tokens"] = &tokens;
  std::map<std::string, DeviceBuffer> outputs = run(executable, inputs);
  Logits out{.with = {}, .without = outputs.at("without").download()};
  if (job.lora) out.with = outputs.at("with").download();
  return out;
}

double largest_difference(const HostArray& x, const HostArray& y) {
  double largest = 0;
  for (int64_t i = 0; i < x.shape().elements(); ++i) {
    const double difference = std::abs(static_cast<double>(x.as<float>()[i]) - y.as<float>()[i]);
    if (!(difference <= largest)) largest = difference;  // NaN stays
  }
  return largest;
}

// How much of `change` (from `base`) is in `shown`: the least-squares factor, which rounding noise hardly moves.
double share_kept(const HostArray& base, const HostArray& changed, const HostArray& shown) {
  double product = 0, square = 0;
  for (int64_t i = 0; i < base.shape().elements(); ++i) {
    const double change = static_cast<double>(changed.as<float>()[i]) - base.as<float>()[i];
    product += change * (static_cast<double>(shown.as<float>()[i]) - base.as<float>()[i]);
    square += change * change;
  }
  return product / square;
}

// Largest difference from base + adapter allowed, as a share of the largest logit: rounding of the written weights.
double tolerance(DType dtype) {
  return dtype == DType::kBF16 ? 5e-2 : dtype == DType::kF16 ? 1e-2 : 1e-3;
}

void compare(ExportReport& report, Devices& devices, const Recipe& recipe, const std::filesystem::path& written,
             DType dtype, int64_t labels) {
  const std::optional<Logits> reference = compute_logits(devices, exact(recipe, labels));
  if (!reference) return;
  Recipe merged_recipe = exact(recipe, labels);
  merged_recipe.model_name_or_path = written.string();
  merged_recipe.adapter_name_or_path.clear();
  merged_recipe.quantization_bit.reset();
  const std::optional<Logits> merged = compute_logits(devices, merged_recipe);
  if (!merged) return;
  report.compared = true;
  const double effect = largest_difference(reference->with, reference->without);
  report.scale = largest_difference(reference->with, HostArray::zeros(reference->with.shape()));
  report.difference_from_adapter = largest_difference(merged->without, reference->with);
  report.difference_from_base = largest_difference(merged->without, reference->without);
  report.bound = tolerance(dtype) * report.scale;
  // A weak adapter left out altogether would pass the bound; without rounding there is no excuse.
  if (dtype == DType::kF32 || dtype == DType::kF64)
    report.bound = std::min(report.bound, std::max(effect / 10, 1e-5 * report.scale));
  if (!std::isfinite(report.scale))
    throw UserError("{}: base and adapter give logits that are not finite; the adapter is broken",
                    recipe.adapter_name_or_path[0]);
  if (effect == 0)
    throw UserError("{}: the adapter changes no logit of the base; is it trained?", recipe.adapter_name_or_path[0]);
  report.kept = share_kept(reference->without, reference->with, merged->without);
  const bool rounds = byte_size(dtype) < 4;
  if (rounds && report.kept < 0.5)
    throw UserError(
        "only {:.0f}% of what the adapter does survives rounding the merged weights to {}: its changes are "
        "smaller than the weights' precision. Set export_dtype: float32, or use the adapter beside its base",
        100 * report.kept, hf_name(dtype));
  if (!(report.difference_from_adapter <= report.bound) || report.difference_from_base == 0 || report.kept > 1.5)
    throw InternalError(
        "the merged model is not base + adapter: its logits differ by {:.3g} (bound {:.3g}) from those with "
        "the adapter and by {:.3g} from the base's, and show {:.0f}% of the adapter's change; nothing was "
        "written",
        report.difference_from_adapter, report.bound, report.difference_from_base, 100 * report.kept);
  if (report.kept < 0.9)
    warn("{:.0f}% of what the adapter does is left after rounding to {}; export_dtype: float32 keeps all of it",
         100 * report.kept, hf_name(dtype));
}

}  // namespace

ExportReport run_export(const Recipe& recipe) {
  require_keys(recipe, {"model_name_or_path", "export_dir"}, "export");
  const ModelRepository base = ModelRepository::open(recipe.model_name_or_path);
  const std::string config_file = (base.folder() / "config.json").string();
  std::vector<AdapterFolder> adapters;
  for (const std::string& adapter : recipe.adapter_name_or_path) adapters.push_back(open_adapter(adapter));
  const int64_t labels = exported_labels(family_of(base.config(), config_file), base.config(), adapters);
  const Model model = make_model(base.config(), config_file, labels);
  const bool merges = !adapters.empty(), classifier = merges && model.classifies();
  check_weights(base, model);
  std::optional<DType> dtype;
  if (!recipe.export_dtype.empty()) dtype = dtype_from_hf(recipe.export_dtype);

  BaseTensors tensors(
      base, model, quantisation_of(recipe, model.config, recipe.model_name_or_path),
      merges && (classifier || !named_as_rows(base, model)) ? TensorNames::kOfRows : TensorNames::kStored);
  if (classifier) add_head(tensors, model, adapters);
  std::optional<Devices> devices;
  std::optional<Changes> changes;
  if (merges) {
    devices.emplace(recipe);
    make_job(exact(recipe, labels), base.config(), config_file, devices->count(), Purpose::kInference);
    changes.emplace(tensors, adapters, model);
  } else {
    info("no adapter_name_or_path: {} is exported as it is", recipe.model_name_or_path);
  }

  AtomicFolder folder(recipe.export_dir, AtomicFolder::Existing::kRefuse);
  ExportReport report{.folder = recipe.export_dir, .merged = changes.has_value()};
  ModelWriter writer(folder.path(), written_shapes(tensors, dtype),
                     std::max<int64_t>(1, std::llround(recipe.export_size * 1e9)));
  const MergeCount count = write_weights(tensors, changes ? &*changes : nullptr, dtype, writer);
  writer.finish();
  write_config(base, dtype, classifier ? std::optional(merged_config(recipe, base, model)) : std::nullopt,
               folder.path());
  report.files = writer.shard_count();
  report.bytes = writer.total_bytes();
  report.merged_tensors = count.tensors;
  if (changes) {
    if (!count.nonzero)
      throw UserError(
          "{}: the adapter is zero: it changes nothing, so there is nothing to merge. Is it trained? Leave "
          "adapter_name_or_path away to export the base",
          changes->names());
    if (count.tensors == 0)
      throw UserError("{}: every change vanishes when the merged weights are rounded to {}; set export_dtype: float32",
                      changes->names(), hf_name(count.narrowest));
    compare(report, *devices, recipe, folder.path(), count.narrowest, labels);
  }
  folder.commit();
  return report;
}

std::string format_export(const ExportReport& report) {
  const bool small = report.bytes < 1'000'000'000;
  std::string text =
      fmt::format("{}: {:.2f} {} of weights in {} file{}", report.folder.string(), report.bytes / (small ? 1e6 : 1e9),
                  small ? "MB" : "GB", report.files, report.files == 1 ? "" : "s");
  if (!report.merged) return text;
  text += fmt::format(", {} of them merged with the adapter", report.merged_tensors);
  if (!report.compared) return text + "\nlogits not compared";
  return text + fmt::format(
                    "\nlargest difference of logits, {} prompts of {} tokens, f32: merged and base + adapter {:.3g} "
                    "(bound {:.3g}), merged and base {:.3g}; largest logit {:.3g}",
                    kPrompts, kPromptLength, report.difference_from_adapter, report.bound, report.difference_from_base,
                    report.scale);
}

}  // namespace fettle
