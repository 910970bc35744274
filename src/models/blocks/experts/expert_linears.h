// Defines ExpertLinears, which arranges the weights of a layer's experts for the loop over blocks of tokens (moe.cpp),
// and multiply, which uses them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "models/blocks/experts/device_dims.h"
#include "models/model.h"

namespace fettle {

// A linear layer of each expert: its weights and, with LoRA, lora_A and lora_B. `out` and `in` are sizes on one device.
// Each expert's weight is one row with the elements of [out, in], or [in, out] (in_first).
struct ExpertLinear {
  int64_t out, in;
  Tensor weights, a, b;
  int64_t rank = 0;
  double scale = 1;  // scale of LoRA
  bool in_first = false;
  Tensor bias;  // one row of `out` elements per expert; null: no bias
  // Used instead of `weights` if the weight is quantised. Each pair is one part of the weight: an array with one row
  // per expert, and the dims of such a row.
  std::vector<std::pair<Tensor, Dims>> parts;
  std::function<Tensor(const std::vector<Tensor>& parts)> unpack;
};

class ExpertLinears {
 public:
  // Keeps references to the arguments.
  ExpertLinears(const Forward& f, const Layer& layer, const DeviceDims& devices)
      : f_(f), layer_(layer), devices_(devices) {}

  // Returns the linear layer `module`, which is gate or up. tp splits its outputs. Gate and up have one lora_A and one
  // lora_B in common. `half` selects the rows of lora_B: 0 for the gate, 1 for up (0 if there is no gate).
  ExpertLinear hidden(const std::string& module, int64_t half) const;
  // Returns the fused linear layer gate_up. Each device of tp has its share of the gate's outputs and of up's outputs,
  // in the order of the fused weight.
  ExpertLinear gate_up() const;
  // Returns the linear layer `down`. Tensor parallelism (tp) splits its input dim.
  ExpertLinear down(const std::string& module) const;

 private:
  Tensor part(const std::string& name) const;
  // Sets the parts of a quantised weight. Returns false if the weight is not quantised, or if tp splits it, because the
  // parts of an expert cannot be split like its weight.
  bool set_parts(ExpertLinear& linear, const std::string& name) const;
  Tensor rows(const std::string& name, int64_t split_dim) const;
  // gate_up has two output dims in `x`, [F, 2] or [2, F]; `dim` is the index of the first. Joins the two dims, in an
  // order in which each tp device's share is contiguous.
  Tensor outputs_by_device(const Tensor& x, int64_t dim) const;
  struct LoraPair {
    Tensor a_ErI, b_EOr;
  };
  // Returns the LoRA weights of the module `lora`. The stored lora_A is [E, r, I], and lora_B is [O, r, E]. With
  // swapped_lora, lora_A is [E, r, O], and lora_B is [I, r, E].
  LoraPair lora_of(const std::string& lora) const;
  void add_lora(ExpertLinear& linear, const LoraPair& lora, int64_t split_a, int64_t split_b) const;

  const Forward& f_;
  const Layer& layer_;
  const DeviceDims& devices_;
};

// Returns the outputs of one expert per device for x [4 device dims, Z, in], as [4 device dims, Z, out] of `dtype`.
// `expert` [4 device dims, 1] has the experts' numbers among the experts of the device. Quantised weights and the inner
// product of LoRA are computed in `compute`.
Tensor multiply(const DeviceDims& devices, const ExpertLinear& linear, const Tensor& x, const Tensor& expert,
                DType compute, DType dtype);

}  // namespace fettle
