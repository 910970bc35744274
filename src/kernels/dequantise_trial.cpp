// Trials of the composite "dequantise": weights whose rows are whole blocks, and weights whose last block is shorter.
#include <algorithm>

#include "adapters/block_codes.h"
#include "adapters/quantised.h"
#include "base/arrays/trial_numbers.h"
#include "kernels/trial.h"
#include "sharding/rules.h"

namespace fettle {
namespace {

Trial dequantise_trial(Quantisation::Type type, const Dims& dims, DType dtype) {
  Trial out{.title = "a weight of 4 bits in " + std::string(stablehlo_name(dtype)),
            .bound = dtype == DType::kF32 ? 1e-6 : 4e-3};
  const Param base{.hf_name = "weight", .dims = dims, .axes = LogicalAxes(dims.size())};
  const QuantisedWeight weight = quantised_weight(base, {.type = type, .nested = false}, ShardingRules(MeshAxes{}));
  HostArray codes({DType::kU8, weight.parts[0].dims}), absmax({DType::kF32, weight.parts[1].dims});
  const HostArray values = trial_numbers({DType::kF32, dims}, 1, 2);
  std::vector<std::byte> blocks(static_cast<size_t>(absmax.shape().elements() * Quantisation::kBlock / 2));
  quantise_blocks(type, values.as<float>(), blocks.data(), absmax.as<float>().data());
  std::copy_n(blocks.begin(), codes.bytes(), codes.data());
  const int64_t elements = product(dims);
  out.wanted.emplace_back();
  for (int64_t i = 0; i < elements; ++i) {
    const auto byte = static_cast<uint8_t>(codes.data()[i / 2]);
    const int code = i % 2 == 0 ? byte >> 4 : byte & 15;
    out.wanted[0].push_back(double{values_of(type)[static_cast<size_t>(code)]} *
                            absmax.as<float>()[i / Quantisation::kBlock]);
  }
  out.inputs.push_back({std::move(codes), {}});
  out.inputs.push_back({std::move(absmax), {}});
  out.build = [weight, dtype](const std::vector<Tensor>& in) -> std::vector<Tensor> {
    return {convert(dequantise(weight, in, dtype), DType::kF32)};
  };
  return out;
}

}  // namespace

std::vector<Trial> dequantise_trials(const MeshAxes& /*mesh*/, bool /*every_width*/) {
  std::vector<Trial> out;
  out.push_back(dequantise_trial(Quantisation::Type::kFp4, {7, 83}, DType::kF32));
  out.push_back(dequantise_trial(Quantisation::Type::kNf4, {83, 128}, DType::kBF16));
  return out;
}

}  // namespace fettle
