// Defines GroupStorage: how a checkpoint stores weights of linear layers as integers with a scale and a zero point for
// each group of inputs (GPTQ, AWQ, compressed-tensors).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "models/module_rules.h"
#include "models/quantisation.h"

namespace fettle {

class QuantizationSettings;

// A weight is (code - zero point) * scale. The product is computed in `dtype`, the dtype of the model. Each output has
// a zero point ("zero" below) and a scale for each group of inputs. Codes and zeros are packed into words (i32), the
// first in the low bits. A module with N outputs and K inputs in G groups has these tensors:
//
//   gptq       qweight [K * bits / 32, N], packed along the inputs; qzeros [G, N * bits / 32], packed along the
//              outputs; scales [G, N]; g_idx i32 [K]: each input's group. If g_idx is missing, a group has
//              successive inputs. In the first version of the format, a stored zero is the actual zero minus one (mod
//              2^bits).
//   awq gemm   qweight [K, N / 8], qzeros [G, N / 8]: a word has outputs in the order 0 2 4 6 1 3 5 7; scales [G, N].
//   awq gemv   qweight [N, K / 8]; qzeros [N, words], packed along the groups; scales [N, at least G].
//   packed     weight_packed [N, K * bits / 32]; weight_zero_point [N * bits / 32, G] (missing: all zeros are
//              2^(bits - 1)); weight_scale [N, G]; weight_g_idx i32 [K] (may be missing; if it has a
//              -1, it is not set, and a group has successive inputs).
//
// Sources: the kernels `torch` of GPTQModel and AutoGPTQ, AutoAWQ's awq/modules/linear, compressed-tensors'
// compressors/pack_quantized.
struct GroupStorage {
  enum class Packing { kGptq, kAwqGemm, kAwqGemv, kPacked };
  Packing packing = Packing::kGptq;
  int64_t bits = 4;                  // bits of a stored code. gptq: 2, 3, 4 or 8; awq: 4; packed: 4 or 8
  int64_t group = 128;               // number of inputs in a group; 0: all inputs are one group
  bool zero_less_one = false;        // a stored zero is the actual zero minus one (gptq's first version)
  bool any_order = false;            // an input may be in any group, so that g_idx is needed
  DType dtype = DType::kF16;         // dtype of the weights' values
  std::vector<std::string> only;     // only modules whose name ends with one of these are quantised; empty: all
  std::vector<ModuleRule> excluded;  // modules that are not quantised

  // The tensor "<module>.<codes_name()>" has the codes of a module.
  std::string_view codes_name() const { return packing == Packing::kPacked ? "weight_packed" : "qweight"; }
  int64_t groups(int64_t inputs) const { return group == 0 ? 1 : (inputs + group - 1) / group; }
  Quantisation format() const;
  // Returns the layers in which the checkpoint stores the whole weight in groups.
  std::vector<int64_t> covered_layers(const Param& param) const;
};

// These read quantization_config of the named method; read_packed reads packed integers of compressed-tensors. They do
// not set `dtype`. They throw UserError for a variant that is not implemented. Others use stored_form
// (quantization_config.h).
GroupStorage read_gptq(const QuantizationSettings& settings);
GroupStorage read_awq(const QuantizationSettings& settings);
GroupStorage read_packed(const QuantizationSettings& settings);

}  // namespace fettle
