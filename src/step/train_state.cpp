#include "step/train_state.h"

#include <chrono>
#include <cmath>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/adapter_files.h"
#include "checkpoint/load.h"
#include "data/order.h"
#include "step/placement.h"

namespace fettle {
namespace {

Layout row_layout(const Job& job, const WeightRow& row) {
  return layout_of(job.partition(row), stacked_shape(row, job.model.config, DType::kF32).dims, job.sharding.mesh());
}

// Shows what is read: a live line, nothing when it was quick.
class LoadMeter {
 public:
  explicit LoadMeter(int64_t total) : total_(total), start_(std::chrono::steady_clock::now()) {}
  void add(int64_t bytes) {
    done_ += bytes;
    const double seconds = elapsed();
    if (seconds - shown_ < 0.2) return;
    shown_ = seconds;
    live_line(fmt::format("loading weights {:.1f} of {:.1f} GB, {:.2f} GB/s", done_ / 1e9, total_ / 1e9,
                          done_ / 1e9 / seconds));
  }
  void finish() {
    if (elapsed() > 2) info("loaded {:.1f} GB of weights in {:.1f} s", done_ / 1e9, elapsed());
  }

 private:
  double elapsed() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }
  int64_t total_, done_ = 0;
  std::chrono::steady_clock::time_point start_;
  double shown_ = 0;
};

}  // namespace

bool StepOutcome::finite() const {
  return std::isfinite(loss) && std::isfinite(grad_norm);
}

Bindings TrainState::bindings() {
  Bindings out;
  for (auto& [name, buffer] : buffers) out[name] = &buffer;
  return out;
}

std::vector<std::string> trained_arrays(const Job& job) {
  std::vector<std::string> names;
  for (const WeightRow& row : job.trained) {
    names.push_back(trained_input(row.name));
    for (const StateArray& array : optimizer_state(job, row)) names.push_back(array.name);
  }
  return names;
}

TrainState load_state(const Devices& devices, const Job& job, const ModelRepository& repository, bool optimizer) {
  TrainState state;
  const Client& client = devices.client();
  const auto seed = static_cast<uint64_t>(job.recipe.seed);
  if (!job.recipe.train_from_scratch) check_weights(repository, job.model);
  LoadMeter meter(repository.total_bytes());
  auto from_base = [&](const std::string& name) { return repository.find(name); };
  auto progress = [&](int64_t bytes) { meter.add(bytes); };
  auto base_row = [&](const WeightRow& row, DType dtype) {
    return job.recipe.train_from_scratch
               ? random_row(client, row, job.model.config, dtype, row_layout(job, row), seed)
               : load_row(client, row, job.model.config, dtype, row_layout(job, row), from_base, progress);
  };
  for (const WeightRow& row : job.frozen)
    state.buffers.emplace(frozen_input(row.name), base_row(row, job.frozen_dtype));
  meter.finish();

  std::optional<AdapterFolder> adapter;
  if (job.lora && !job.recipe.adapter_name_or_path.empty()) adapter = read_adapter(job.recipe.adapter_name_or_path[0]);
  for (const WeightRow& row : job.trained) {
    DeviceBuffer weight;
    if (adapter) {
      auto from_adapter = [&](const std::string& name) -> StoredTensor {
        const TensorEntry* entry = adapter->file.find("base_model.model." + name);
        if (entry == nullptr)
          throw UserError("{}: no tensor 'base_model.model.{}'", adapter->file.path().string(), name);
        return {&adapter->file, entry};
      };
      weight = load_row(client, row, job.model.config, job.trained_dtype, row_layout(job, row), from_adapter, {});
    } else if (job.lora) {
      weight = random_row(client, row, job.model.config, job.trained_dtype, row_layout(job, row), seed);
    } else {
      weight = base_row(row, job.trained_dtype);
    }
    if (optimizer)
      for (const StateArray& array : optimizer_state(job, row)) {
        Layout layout = layout_of(array.partition, array.shape.dims, job.sharding.mesh());
        state.buffers.emplace(array.name, DeviceBuffer::zeros(client, array.shape, std::move(layout)));
      }
    state.buffers.emplace(trained_input(row.name), std::move(weight));
  }
  return state;
}

std::map<std::string, DeviceBuffer> upload_batch(const Devices& devices, const Job& job, const Batch& batch,
                                                 bool flat) {
  std::map<std::string, DeviceBuffer> out;
  auto put = [&](const char* name, const HostArray& array) {
    Dims dims = array.shape().dims;
    if (flat) dims = {dims[0] * dims[1], dims[2]};
    LogicalAxes axes(dims.size(), "");
    axes[dims.size() - 2] = "batch";
    axes[dims.size() - 1] = "length";
    const Layout layout = layout_of(job.sharding.partition(axes, dims, "the batch"), dims, job.sharding.mesh());
    HostArray shaped({array.shape().dtype, dims});
    std::memcpy(shaped.data(), array.data(), array.bytes());
    out.emplace(name, DeviceBuffer::upload(devices.client(), shaped, layout));
  };
  put("batch/tokens", batch.tokens);
  put("batch/targets", batch.targets);
  put("batch/positions", batch.positions);
  put("batch/segments", batch.segments);
  return out;
}

StepOutcome run_step(const Devices& devices, const Job& job, const Executable& step, TrainState& state,
                     const Batch& batch, double learning_rate) {
  std::map<std::string, DeviceBuffer> inputs = upload_batch(devices, job, batch, false);
  for (const auto& [name, value] : job.optimizer.scalars(state.step + 1, learning_rate))
    inputs.emplace(name, replicate(devices, static_cast<float>(value)));
  const auto seed =
      static_cast<uint32_t>(mix_bits(static_cast<uint64_t>(job.recipe.seed), static_cast<uint64_t>(state.step)));
  inputs.emplace("seed", replicate(devices, HostArray::from<uint32_t>({DType::kU32, {}}, {seed})));

  Bindings bindings = state.bindings();
  for (auto& [name, buffer] : inputs) bindings[name] = &buffer;
  std::map<std::string, DeviceBuffer> outputs = run(step, bindings);
  StepOutcome outcome{outputs.at("loss").download().as<float>()[0], outputs.at("grad_norm").download().as<float>()[0]};
  for (auto& [name, buffer] : outputs)
    if (name != "loss" && name != "grad_norm") state.buffers.at(name) = std::move(buffer);
  if (outcome.finite()) ++state.step;
  return outcome;
}

}  // namespace fettle
