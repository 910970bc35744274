// Defines LoRA: low-rank pairs beside frozen linear layers. Source: Hu et al. 2021, and PEFT's naming.
//
// A module's pair is lora_A [r, in] and lora_B [out, r] (fused: [parts, out, r]); its result gains scale * B A
// dropout(x).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/model.h"

namespace fettle {

struct LoraOptions {
  int64_t rank = 8;
  double alpha = 16;
  double dropout = 0;
  bool rslora = false;               // scale alpha / sqrt(r) instead of alpha / r (Kalajdzievski 2023)
  std::vector<std::string> modules;  // within a layer: "self_attn.q_proj"

  double scale() const;
};

// The modules that `targets` mean: "all" and "all-linear" every linear layer of the blocks, else names matched as PEFT
// matches them (the whole name, or its end after a dot). Throws UserError listing the names when one matches none.
std::vector<std::string> lora_modules(const Model& model, const std::vector<std::string>& targets);

// Rows of the pairs, named "<module>.lora_A.weight" in the layer; sharded as their base: A as its input, B as its
// output.
std::vector<WeightRow> lora_rows(const Model& model, const LoraOptions& options);

// Where a dropout mask comes from: the same for any mesh.
struct DropoutKey {
  Tensor seed;  // u32 scalar: mixes the run's seed, the step and the micro-batch
};

// What Forward::adapt calls. Without a key (or with dropout 0) nothing is dropped.
std::function<Tensor(const Layer&, const std::string&, const Tensor&, const Tensor&)> lora_adapt(
    const LoraOptions& options, DType compute, const DropoutKey* key);

// A uniform u32 for each element, a function of key and the element's global index alone.
Tensor random_bits(const Dims& dims, const Tensor& key_u32);

}  // namespace fettle
