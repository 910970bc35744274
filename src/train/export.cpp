#include "train/export.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/adapter_files.h"
#include "checkpoint/atomic_folder.h"
#include "checkpoint/load.h"
#include "checkpoint/model_writer.h"
#include "data/order.h"
#include "graph/ops.h"
#include "models/loss.h"
#include "step/step.h"
#include "step/train_state.h"

namespace fettle {
namespace {

constexpr int64_t kPrompts = 4, kPromptLength = 32;
constexpr int64_t kBlockBytes = int64_t{4} << 20;  // of f32, merged at a time

// What is added to one weight W [rows, columns]: scale * left [rows, r] right [r, columns].
struct Change {
  HostArray left, right;
  double scale;
};

HostArray transposed(const HostArray& x) {
  const int64_t rows = x.shape().dims[0], columns = x.shape().dims[1];
  HostArray out({DType::kF32, {columns, rows}});
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) out.as<float>()[j * rows + i] = x.as<float>()[i * columns + j];
  return out;
}

// The adapter's pairs by the name of the weight they change, with their shapes checked.
class Changes {
 public:
  Changes(const ModelRepository& base, AdapterFolder adapter, bool fan_in_fan_out)
      : adapter_(std::move(adapter)), fan_in_fan_out_(fan_in_fan_out) {
    for (const AdapterTensor& a : adapter_.tensors) {
      if (a.part != AdapterPart::kLoraA) continue;
      const TensorEntry* b = adapter_.find(a.module, AdapterPart::kLoraB);
      const Dims& weight = base.find(a.module + ".weight").entry->shape.dims;
      const Dims wanted{b->shape.dims[0], a.entry->shape.dims[1]};
      if ((fan_in_fan_out_ ? Dims{wanted[1], wanted[0]} : wanted) != weight)
        throw UserError(
            "{}: the pair of {} is for [out, in] = {}, but the weight in {} is {}; it is another model's adapter",
            adapter_.file.path().string(), a.module, to_string(wanted), base.folder().string(), to_string(weight));
      modules_[a.module + ".weight"] = a.module;
    }
  }

  size_t size() const { return modules_.size(); }
  const std::filesystem::path& file() const { return adapter_.file.path(); }
  std::optional<Change> of(const std::string& weight) const {
    const auto found = modules_.find(weight);
    if (found == modules_.end()) return std::nullopt;
    auto part = [&](AdapterPart which) {
      return adapter_.file.read(*adapter_.find(found->second, which)).to(DType::kF32);
    };
    HostArray a = part(AdapterPart::kLoraA), b = part(AdapterPart::kLoraB);
    const double scale = adapter_.config.scale(found->second);
    if (fan_in_fan_out_) return Change{transposed(a), transposed(b), scale};
    return Change{std::move(b), std::move(a), scale};
  }

 private:
  AdapterFolder adapter_;
  bool fan_in_fan_out_;
  std::map<std::string, std::string> modules_;
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

// What the merge did to the weights.
struct MergeCount {
  int64_t tensors = 0;            // changed on disk
  bool nonzero = false;           // the adapter's product is not zero everywhere
  DType narrowest = DType::kF64;  // of what was merged, as written
};

// Copies one tensor, changed or converted a block of rows at a time.
void write_tensor(const StoredTensor& base, const std::optional<Change>& change, DType dtype, ModelWriter& writer,
                  MergeCount& count) {
  const TensorEntry& entry = *base.entry;
  const Dims& dims = entry.shape.dims;
  if (!change && dtype == entry.shape.dtype) {
    if (entry.dense()) {
      writer.write(entry.name, base.file->bytes(entry));
    } else {
      const HostArray values = base.file->read(entry);
      writer.write(entry.name, {values.data(), static_cast<size_t>(values.bytes())});
    }
    base.file->release(entry);
    return;
  }
  const int64_t rows = dims.empty() ? 1 : dims[0], columns = rows == 0 ? 0 : entry.shape.elements() / rows;
  const int64_t block = std::max<int64_t>(1, kBlockBytes / std::max<int64_t>(1, columns * 4));
  bool changed = false;
  for (int64_t first = 0; first < rows && columns > 0; first += block) {
    Box box{Dims(dims.size(), 0), dims};
    if (!dims.empty()) box.start[0] = first, box.size[0] = std::min(block, rows - first);
    HostArray values({DType::kF32, box.size});
    base.file->read_slice(entry, box, DType::kF32, values.data());
    const HostArray before = change ? values.clone() : HostArray();
    if (change) add(*change, first, values.as<float>());
    const HostArray out = values.to(dtype);
    if (change && !std::ranges::equal(before.as<float>(), std::as_const(values).as<float>())) {
      count.nonzero = true;
      changed |= std::memcmp(before.to(dtype).data(), out.data(), out.bytes()) != 0;
    }
    writer.write(entry.name, {out.data(), static_cast<size_t>(out.bytes())}, first * columns * byte_size(dtype));
  }
  count.tensors += changed;
  if (change && byte_size(dtype) < byte_size(count.narrowest)) count.narrowest = dtype;
  base.file->release(entry);
}

// Writes all tensors of the base in the order they are stored in.
MergeCount write_weights(const ModelRepository& base, const Changes* changes, std::optional<DType> dtype,
                         ModelWriter& writer) {
  MergeCount count;
  int64_t done = 0;
  for (const TensorFile& file : base.files())
    for (const TensorEntry& entry : file.entries()) {
      const DType to = dtype && is_float(entry.shape.dtype) ? *dtype : entry.shape.dtype;
      write_tensor({&file, &entry}, changes == nullptr ? std::nullopt : changes->of(entry.name), to, writer, count);
      done += entry.shape.bytes();
      live_line(fmt::format("writing weights, {:.1f} of {:.1f} GB", done / 1e9, base.total_bytes() / 1e9));
    }
  return count;
}

NamedShapes written_shapes(const ModelRepository& base, std::optional<DType> dtype) {
  NamedShapes shapes;
  for (const TensorFile& file : base.files())
    for (const TensorEntry& entry : file.entries())
      shapes.emplace_back(entry.name,
                          dtype && is_float(entry.shape.dtype) ? entry.shape.with_dtype(*dtype) : entry.shape);
  return shapes;
}

void write_config(const ModelRepository& base, std::optional<DType> dtype, const std::filesystem::path& folder) {
  copy_model_files(base.folder(), folder);
  if (!dtype) return;
  nlohmann::json config = base.config();
  if (config.contains("dtype")) config["dtype"] = hf_name(*dtype);
  if (config.contains("torch_dtype") || !config.contains("dtype")) config["torch_dtype"] = hf_name(*dtype);
  write_json_file(folder / "config.json", config);
}

// The recipe for comparing: the exact forward pass in f32.
Recipe exact(Recipe recipe) {
  recipe.bf16 = recipe.pure_bf16 = recipe.fp16 = recipe.tf32 = false;
  recipe.lora_dtype = "float32";
  recipe.quantization_bit.reset();
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
      if (adapted) f.adapt = lora_adapt(*job.lora, job.compute, nullptr);
      f.tokens = tokens;
      f.positions = broadcast_to(iota({DType::kI32, {ids.dims[1]}}, 0), ids.dims);
      f.segments = full(1, ids);
      program.output(name, logits(f, job.model.family->forward(f), head_of(job.model, weights)));
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
             DType dtype) {
  const std::optional<Logits> reference = compute_logits(devices, exact(recipe));
  if (!reference) return;
  Recipe merged_recipe = exact(recipe);
  merged_recipe.model_name_or_path = written.string();
  merged_recipe.adapter_name_or_path.clear();
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
  const Model model = make_model(base.config(), (base.folder() / "config.json").string());
  check_weights(base, model);
  std::optional<DType> dtype;
  if (!recipe.export_dtype.empty()) dtype = dtype_from_hf(recipe.export_dtype);

  std::optional<Devices> devices;
  std::optional<Changes> changes;
  if (!recipe.adapter_name_or_path.empty()) {
    devices.emplace(recipe);
    make_job(exact(recipe), base.config(), (base.folder() / "config.json").string(), devices->count(),
             Purpose::kInference);
    changes.emplace(base, read_adapter(recipe.adapter_name_or_path[0]), model.family->fan_in_fan_out);
  } else {
    info("no adapter_name_or_path: {} is exported as it is", recipe.model_name_or_path);
  }

  AtomicFolder folder(recipe.export_dir, AtomicFolder::Existing::kRefuse);
  ExportReport report{.folder = recipe.export_dir, .merged = changes.has_value()};
  ModelWriter writer(folder.path(), written_shapes(base, dtype),
                     std::max<int64_t>(1, std::llround(recipe.export_size * 1e9)));
  const MergeCount count = write_weights(base, changes ? &*changes : nullptr, dtype, writer);
  writer.finish();
  write_config(base, dtype, folder.path());
  report.files = writer.shard_count();
  report.bytes = writer.total_bytes();
  report.merged_tensors = count.tensors;
  if (changes) {
    if (!count.nonzero)
      throw UserError(
          "{}: the adapter is zero: it changes nothing, so there is nothing to merge. Is it trained? Leave "
          "adapter_name_or_path away to export the base",
          changes->file().string());
    if (count.tensors == 0)
      throw UserError("{}: every change vanishes when the merged weights are rounded to {}; set export_dtype: float32",
                      changes->file().string(), hf_name(count.narrowest));
    compare(report, *devices, recipe, folder.path(), count.narrowest);
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
