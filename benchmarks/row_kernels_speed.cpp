// Measures the CPU's kernels of rows in compiled programs, beside the plain forms of their composites. A program has a
// loop over 30 layers, forward and backward, at the shapes of the 135M model. Prints the time of one layer, all cores
// together, as a table in Markdown. The two programs run in turns.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "adapters/quantised.h"
#include "base/arrays/trial_numbers.h"
#include "graph/autodiff/grad.h"
#include "graph/ops.h"
#include "graph/scan.h"
#include "kernels/kernels.h"
#include "models/blocks/layers.h"
#include "models/blocks/loss.h"
#include "optim/update.h"
#include "programs/devices.h"

namespace fettle {
namespace {

constexpr int64_t kLayers = 30, kPositions = 512, kWidth = 576, kHidden = 1536, kVocab = 49152;
constexpr int64_t kChunk = 64;  // rows of logits
constexpr int kRounds = 25;
constexpr const char* kAdamw = "AdamW's update of a gate's weight";

// Builds a program and holds its inputs.
class Inputs {
 public:
  Inputs(Program& program, Devices& devices) : program_(program), devices_(devices) {}
  Tensor add(const Shape& shape) {
    const std::string name = fmt::format("input{}", buffers_.size());
    const bool codes = shape.dtype == DType::kI32 || shape.dtype == DType::kU8;
    const HostArray values =
        codes ? HostArray::zeros(shape) : trial_numbers(shape, static_cast<uint32_t>(buffers_.size()));
    buffers_.emplace(name, replicate(devices_, values));
    return program_.input(name, shape);
  }
  // The result takes the input's place: it gets its memory, and the next run starts from it.
  void replace(size_t input, size_t result) {
    replaced_[fmt::format("output{}", result)] = fmt::format("input{}", input);
  }
  const std::map<std::string, std::string>& replaced() const { return replaced_; }
  void replace(const std::string& input, DeviceBuffer buffer) { buffers_[input] = std::move(buffer); }
  Bindings bindings() {
    Bindings out;
    for (auto& [name, buffer] : buffers_) out[name] = &buffer;
    return out;
  }

 private:
  Program& program_;
  Devices& devices_;
  std::map<std::string, DeviceBuffer> buffers_;
  std::map<std::string, std::string> replaced_;
};

// Adds the work to the program, and returns the tensors that must be computed.
using Work = std::function<std::vector<Tensor>(Inputs& inputs, DType dtype)>;

class Measured {
 public:
  Measured(Devices& devices, const Work& work, DType dtype, const ChooseKernel& choose)
      : program_({}, choose), scope_(program_.block()), inputs_(program_, devices) {
    const std::vector<Tensor> results = work(inputs_, dtype);
    for (size_t i = 0; i < results.size(); ++i) {
      const std::string name = fmt::format("output{}", i);
      const auto input = inputs_.replaced().find(name);
      program_.output(name, results[i], {}, input == inputs_.replaced().end() ? "" : input->second);
    }
    executable_.emplace(devices.compile(program_));
    run();
  }
  void run() {
    const auto start = std::chrono::steady_clock::now();
    std::map<std::string, DeviceBuffer> results = run_program(*executable_, inputs_.bindings());
    for (const auto& [name, buffer] : results) buffer.wait();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    times_.push_back(seconds.count());
    for (const auto& [result, input] : inputs_.replaced()) inputs_.replace(input, std::move(results.at(result)));
  }
  // In milliseconds; the first run does not count.
  double median() {
    std::sort(times_.begin() + 1, times_.end());
    return 1e3 * times_[1 + (times_.size() - 1) / 2];
  }
  double best() const { return 1e3 * *std::min_element(times_.begin() + 1, times_.end()); }

 private:
  Program program_;
  BuildScope scope_;
  Inputs inputs_;
  std::optional<Executable> executable_;
  std::vector<double> times_;
};

// A loop of x = layer(x), and the gradient with respect to the first x.
Work loop(Dims dims, const std::function<std::function<Tensor(const Tensor&)>(Inputs&, DType)>& make) {
  return [=](Inputs& inputs, DType dtype) -> std::vector<Tensor> {
    const Tensor x = inputs.add({dtype, dims});
    const auto layer = make(inputs, dtype);
    const ScanStep out =
        scan(kLayers, {x}, {},
             [&](const Tensor&, const std::vector<Tensor>& carries, const std::vector<Tensor>&) -> ScanStep {
               return {{layer(carries[0])}, {}};
             },
             {.remat = Remat::kNone});
    return backprop({out.carries[0]}, {x}, {x});
  };
}

std::vector<Tensor> adamw(Inputs& inputs) {
  const Shape shape{DType::kF32, {kHidden, kWidth}};
  const Optimizer optimizer = make_optimizer({});
  const auto scalar = [](double x) { return constant(x, DType::kF32); };
  WholeUpdate update{.weight = inputs.add(shape),
                     .grad = inputs.add(shape),
                     .state = {inputs.add(shape), inputs.add(shape)},
                     .divisor = scalar(512),
                     .factor = scalar(0.5),
                     .finite = compare(scalar(0), Direction::kEQ, scalar(0)),
                     .scalars = {},
                     .partition = {},
                     .of_state = {{}, {}}};
  for (const auto& [name, value] : optimizer.scalars(3, 1e-4)) update.scalars[name] = scalar(value);
  const Updated next = updated(optimizer, {.shape = shape, .axes = {}}, update);
  for (const auto& [input, result] : {std::pair{0, 0}, {2, 1}, {3, 2}})
    inputs.replace(static_cast<size_t>(input), static_cast<size_t>(result));
  return {next.weight, next.state[0], next.state[1]};
}

// Returns a dequantised weight. All codes are 0, which does not change the time.
std::vector<Tensor> four_bits(Inputs& inputs, DType dtype) {
  const QuantisedWeight weight =
      quantised_weight({"w", {kHidden, kWidth}, {"", ""}}, {.nested = false}, ShardingRules(MeshAxes{}));
  std::vector<Tensor> parts;
  for (const Param& part : weight.parts) parts.push_back(inputs.add({*part.dtype, part.dims}));
  return {dequantise(weight, parts, dtype)};
}

}  // namespace

int measure_row_kernels() {
  Devices devices({.plugin = "cpu", .count = 1, .compile_cache = "off", .kernels = {"auto"}});
  const KernelSet kernels = select_kernels("cpu", {"auto"});
  register_handlers(kernels, devices.client().plugin());
  static const ShardingRules rules{MeshAxes{}};
  const Dims hidden{1, kPositions, kHidden}, wide{1, kPositions, kWidth};
  const std::vector<std::tuple<const char*, int64_t, Work>> works{
      {"RMSNorm", kLayers,
       loop(wide,
            [](Inputs& inputs, DType dtype) {
              const Tensor weight = inputs.add({dtype, {kWidth}});
              return [=](const Tensor& x) { return rms_norm(x, weight, 1e-5, 0, &rules); };
            })},
      {"gate", kLayers,
       loop(hidden,
            [hidden](Inputs& inputs, DType dtype) {
              const Tensor up = inputs.add({dtype, hidden});
              return [=](const Tensor& x) { return gated(rules, "silu", x, up); };
            })},
      {"cross-entropy of 64 rows", 1,
       [](Inputs& inputs, DType dtype) -> std::vector<Tensor> {
         const Tensor logits = inputs.add({DType::kF32, {1, kChunk, kVocab}});
         const CrossEntropy out = cross_entropy(rules, logits, inputs.add({DType::kI32, {1, kChunk}}), {}, dtype);
         return {out.losses_BC, out.slope_BCV};
       }},
      {"a gate's weight of 4 bits (nf4)", 1, [](Inputs& inputs, DType dtype) { return four_bits(inputs, dtype); }},
      {kAdamw, 1, [](Inputs& inputs, DType) { return adamw(inputs); }}};
  fmt::print("| work | dtype | kernel: median, ms | best | plain form: median, ms | best | plain / kernel |\n");
  fmt::print("|---|---|---|---|---|---|---|\n");
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const auto& [name, layers, work] : works) {
      if (name == kAdamw && dtype != DType::kF32) continue;  // its arrays are f32
      Measured kernel(devices, work, dtype, choose_among(kernels)), plain(devices, work, dtype, {});
      for (int round = 0; round < kRounds; ++round) kernel.run(), plain.run();
      const auto n = static_cast<double>(layers);
      fmt::print("| {} | {} | {:.3f} | {:.3f} | {:.3f} | {:.3f} | {:.2f} |\n", name, hf_name(dtype),
                 kernel.median() / n, kernel.best() / n, plain.median() / n, plain.best() / n,
                 plain.median() / kernel.median());
    }
  return 0;
}

}  // namespace fettle

int main() {
  return fettle::measure_row_kernels();
}
