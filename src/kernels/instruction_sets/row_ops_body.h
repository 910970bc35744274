// Implements the part RowOps of a BlockOps table. block_ops_body.h includes this file; the rules of that file apply
// here, too.
#pragma once

#include "kernels/cpu/row_ops.h"

namespace fettle::cpu {
namespace {

// Returns 1 / (1 + e^-x).
inline Floats sigmoid(Floats x) {
  const Floats negative = -x;
  return 1.0F / (1.0F + exponential(negative > 88.0F ? spread(88.0F) : negative));
}

struct Activated {
  Floats value, slope;
};

// Returns the activation of x and its derivative.
template <Gate kAct>
inline Activated activated(Floats x) {
  if constexpr (kAct == Gate::kSilu) {
    const Floats s = sigmoid(x);
    const Floats value = x * s;
    return {value, s + value * (1.0F - s)};
  } else {
    constexpr float kScale = 0.7978845608028654F, kCubic = 0.044715F;
    const Floats square = x * x;
    const Floats t = hyperbolic_tangent(kScale * x * (1.0F + kCubic * square));
    const Floats inner = kScale * (1.0F + 3 * kCubic * square);
    return {0.5F * x * (1.0F + t), 0.5F * (1.0F + t) + 0.5F * x * (1.0F - t * t) * inner};
  }
}

template <Gate kAct, DType kType>
void gated_of(int64_t count, const void* gate, const void* up, void* out) {
  each_vector(count, [&](const auto& part, int64_t i) {
    const Floats value = activated<kAct>(part.template read<kType>(gate, i)).value;
    part.template write<kType>(out, i, value * part.template read<kType>(up, i));
  });
}

template <Gate kAct, DType kType>
void gated_gradient_of(int64_t count, const void* gate, const void* up, const void* d_out, void* d_gate, void* d_up) {
  each_vector(count, [&](const auto& part, int64_t i) {
    const Activated a = activated<kAct>(part.template read<kType>(gate, i));
    const Floats change = part.template read<kType>(d_out, i), other = part.template read<kType>(up, i);
    part.template write<kType>(d_up, i, change * a.value);
    part.template write<kType>(d_gate, i, change * other * a.slope);
  });
}

void gated(Gate act, DType dtype, int64_t count, const void* gate, const void* up, void* out) {
  const bool narrow = dtype == DType::kBF16;
  const auto silu = narrow ? gated_of<Gate::kSilu, DType::kBF16> : gated_of<Gate::kSilu, DType::kF32>;
  const auto gelu = narrow ? gated_of<Gate::kGeluTanh, DType::kBF16> : gated_of<Gate::kGeluTanh, DType::kF32>;
  (act == Gate::kSilu ? silu : gelu)(count, gate, up, out);
}

void gated_gradient(Gate act, DType dtype, int64_t count, const void* gate, const void* up, const void* d_out,
                    void* d_gate, void* d_up) {
  const bool narrow = dtype == DType::kBF16;
  const auto silu = narrow ? gated_gradient_of<Gate::kSilu, DType::kBF16> : gated_gradient_of<Gate::kSilu, DType::kF32>;
  const auto gelu =
      narrow ? gated_gradient_of<Gate::kGeluTanh, DType::kBF16> : gated_gradient_of<Gate::kGeluTanh, DType::kF32>;
  (act == Gate::kSilu ? silu : gelu)(count, gate, up, d_out, d_gate, d_up);
}

template <DType kType>
void norm_of(const NormRows& rows, float eps, void* y, float* inverse) {
  for (int64_t r = 0; r < rows.rows; ++r) {
    const int64_t first = r * rows.width;
    Floats squares{};
    each_vector(rows.width, [&](const auto& part, int64_t i) {
      const Floats x = part.template read<kType>(rows.x, first + i);
      squares += x * x;
    });
    const float factor = 1.0F / __builtin_sqrtf(total(squares) / static_cast<float>(rows.width) + eps);
    inverse[r] = factor;
    each_vector(rows.width, [&](const auto& part, int64_t i) {
      const Floats weight = part.template read<DType::kF32>(rows.weight, i);
      part.template write<kType>(y, first + i, part.template read<kType>(rows.x, first + i) * factor * weight);
    });
  }
}

// With g = dy * weight and r = 1 / sqrt(mean(x^2) + eps): dx = r * g - x * r^3 * mean(g * x).
template <DType kType>
void norm_gradient_of(const NormRows& rows, const float* inverse, const void* dy, void* dx) {
  for (int64_t r = 0; r < rows.rows; ++r) {
    const int64_t first = r * rows.width;
    Floats dots{};
    each_vector(rows.width, [&](const auto& part, int64_t i) {
      const Floats change = part.template read<kType>(dy, first + i) * part.template read<DType::kF32>(rows.weight, i);
      dots += change * part.template read<kType>(rows.x, first + i);
    });
    const float factor = inverse[r];
    const float back = total(dots) / static_cast<float>(rows.width) * factor * factor * factor;
    each_vector(rows.width, [&](const auto& part, int64_t i) {
      const Floats change = part.template read<kType>(dy, first + i) * part.template read<DType::kF32>(rows.weight, i);
      part.template write<kType>(dx, first + i, change * factor - part.template read<kType>(rows.x, first + i) * back);
    });
  }
}

void norm(const NormRows& rows, float eps, void* y, float* inverse) {
  (rows.dtype == DType::kBF16 ? norm_of<DType::kBF16> : norm_of<DType::kF32>)(rows, eps, y, inverse);
}

void norm_gradient(const NormRows& rows, const float* inverse, const void* dy, void* dx) {
  (rows.dtype == DType::kBF16 ? norm_gradient_of<DType::kBF16> : norm_gradient_of<DType::kF32>)(rows, inverse, dy, dx);
}

// Returns the kLanes logits from i on. Lanes after the end of the row get kHidden.
inline Floats logits_at(const float* row, int64_t width, int64_t i) {
  if (i + kLanes <= width) return load(row + i);
  Floats x = spread(kHidden);
  for (int64_t j = 0; i + j < width; ++j) x[j] = row[i + j];
  return x;
}

// Stores exp(logits - top) and returns their sum. Sums parts of a row separately, so that the rounding error grows
// little with the size of the vocabulary.
inline float exponentials_of(const float* row, int64_t width, float top, float* to) {
  constexpr int64_t kPart = 64 * kLanes;
  Floats sum{};
  for (int64_t first = 0; first < width; first += kPart) {
    const int64_t end = first + kPart < width ? first + kPart : width;
    Floats part{};
    for (int64_t i = first; i < end; i += kLanes) {
      const Floats weight = exponential(logits_at(row, width, i) - top);
      part += weight;
      store(to + i, weight);
    }
    sum += part;
  }
  return total(sum);
}

template <DType kType>
void cross_entropy_of(const LogitRows& rows, float* losses, float* hits, void* gradient, float* scratch) {
  for (int64_t r = 0; r < rows.rows; ++r) {
    const float* const logits = rows.logits + r * rows.width;
    const int64_t target = rows.targets[r], first = r * rows.width;
    float scale = 0;
    losses[r] = hits[r] = 0;
    if (target >= 0) {
      Floats most = spread(kHidden);
      for (int64_t i = 0; i < rows.width; i += kLanes) {
        const Floats x = logits_at(logits, rows.width, i);
        most = x > most ? x : most;
      }
      const float top = largest(most), sum = exponentials_of(logits, rows.width, top, scratch);
      // A target outside of the vocabulary has the logit 0, as in the body.
      const float logit = target < rows.width ? logits[target] : 0.0F;
      losses[r] = __builtin_logf(sum) + top - logit;
      hits[r] = logit >= top ? 1.0F : 0.0F;
      const float weight = rows.weights == nullptr ? 1.0F : rows.weights[r];
      scale = weight / sum;
      if (target < rows.width) scratch[target] -= sum;
    }
    each_vector(rows.width, [&](const auto& part, int64_t i) {
      const Floats x = target < 0 ? Floats{} : part.template read<DType::kF32>(scratch, i) * scale;
      part.template write<kType>(gradient, first + i, x);
    });
  }
}

void cross_entropy(const LogitRows& rows, float* losses, float* hits, void* gradient, float* scratch) {
  const bool narrow = rows.gradient_dtype == DType::kBF16;
  (narrow ? cross_entropy_of<DType::kBF16> : cross_entropy_of<DType::kF32>)(rows, losses, hits, gradient, scratch);
}

void adamw(const AdamwStep& step, int64_t count, const float* gradient, const float* weight, const float* m,
           const float* v, float* new_weight, float* new_m, float* new_v) {
  // The new arrays may be the old ones, but no element is read after it is written.
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) {
    const float g = gradient[i] / step.divisor * step.factor;
    const float first = m[i] * step.beta1 + g * step.rest1;
    const float second = v[i] * step.beta2 + g * g * step.rest2;
    const float root = __builtin_sqrtf(second) / step.correction2_sqrt + step.epsilon;
    new_weight[i] = weight[i] * step.kept - step.rate * first / root;
    new_m[i] = first;
    new_v[i] = second;
  }
}

template <DType kType>
void dequantise_of(int64_t count, const uint8_t* codes, const float* absmax, const CodePairs& pairs, void* weights) {
  constexpr int64_t kBlock = 64;
  float values[kBlock];
  for (int64_t first = 0; first < count; first += kBlock) {
    const int64_t here = count - first < kBlock ? count - first : kBlock;
    for (int64_t i = 0; i < (here + 1) / 2; ++i)
      __builtin_memcpy(values + 2 * i, pairs.of[codes[first / 2 + i]], sizeof pairs.of[0]);
    const float scale = absmax[first / kBlock];
    each_vector(here, [&](const auto& part, int64_t i) {
      part.template write<kType>(weights, first + i, part.template read<DType::kF32>(values, i) * scale);
    });
  }
}

void dequantise(DType dtype, int64_t count, const uint8_t* codes, const float* absmax, const CodePairs& pairs,
                void* weights) {
  (dtype == DType::kBF16 ? dequantise_of<DType::kBF16> : dequantise_of<DType::kF32>)(count, codes, absmax, pairs,
                                                                                     weights);
}

constexpr RowOps kRowOps{.gated = gated,
                         .gated_gradient = gated_gradient,
                         .norm = norm,
                         .norm_gradient = norm_gradient,
                         .cross_entropy = cross_entropy,
                         .adamw = adamw,
                         .dequantise = dequantise};

}  // namespace
}  // namespace fettle::cpu
