// Defines RowOps: functions on rows of activations. There is one table per instruction set, as part of BlockOps.
//
// Arrays are dense, of `dtype` f32 or bf16. All arithmetic is in f32, and each result is rounded once. No function
// allocates or throws. The same table always gives the same results.
#pragma once

#include <cstdint>

#include "base/arrays/shape.h"

namespace fettle::cpu {

enum class Gate : uint8_t { kSilu, kGeluTanh };

// RMSNorm of rows: y = x / sqrt(mean(x^2) + eps) * weight.
struct NormRows {
  DType dtype;
  int64_t rows, width;
  const void* x;
  const float* weight;  // [width]; it is 1 + w for norms that compute x * (1 + w)
};

// Rows of logits with one target each.
struct LogitRows {
  int64_t rows, width;
  const float* logits;
  const int32_t* targets;  // negative: the row is not trained
  const float* weights;    // the weights of the rows' losses, for the gradient; null: all are 1
  DType gradient_dtype;
};

// A step of AdamW. The gradient is gradient / divisor * factor.
struct AdamwStep {
  float divisor, factor;
  float beta1, rest1, beta2, rest2, epsilon;  // rest1 = 1 - beta1, rest2 = 1 - beta2
  float correction2_sqrt;                     // the root of 1 - beta2^t
  float kept;                                 // the weight is multiplied by this number: 1 - rate * decay
  float rate;                                 // the learning rate / (1 - beta1^t)
};

// For each byte of two 4-bit codes, the values of its codes: first that of the high bits.
struct CodePairs {
  float of[256][2];
};

struct RowOps {
  // Computes out = act(gate) * up for `count` elements.
  void (*gated)(Gate act, DType dtype, int64_t count, const void* gate, const void* up, void* out);
  // Computes the gradients of gate and up from the gradient of out.
  void (*gated_gradient)(Gate act, DType dtype, int64_t count, const void* gate, const void* up, const void* d_out,
                         void* d_gate, void* d_up);

  // Computes y, and stores 1 / sqrt(mean(x^2) + eps) of each row in `inverse`.
  void (*norm)(const NormRows& rows, float eps, void* y, float* inverse);
  void (*norm_gradient)(const NormRows& rows, const float* inverse, const void* dy, void* dx);

  // For each row, computes losses[row] = log(sum of exp(logits)) - logits[target], and hits[row]: 1 if the target has
  // the largest logit, else 0. Both are 0 if the row is not trained. The gradient is weight * (softmax -
  // one_hot(target)). `scratch` has room for `width` elements and one more vector.
  void (*cross_entropy)(const LogitRows& rows, float* losses, float* hits, void* gradient, float* scratch);

  // Updates `count` elements. The new arrays may be the old ones: new_weight = weight, new_m = m, new_v = v.
  void (*adamw)(const AdamwStep& step, int64_t count, const float* gradient, const float* weight, const float* m,
                const float* v, float* new_weight, float* new_m, float* new_v);

  // Computes `count` weights from their 4-bit codes: the value of the code * the absmax of its block of 64.
  void (*dequantise)(DType dtype, int64_t count, const uint8_t* codes, const float* absmax, const CodePairs& pairs,
                     void* weights);
};

}  // namespace fettle::cpu
