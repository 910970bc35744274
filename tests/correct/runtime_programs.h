// Defines programs and signatures that the tests of the runtime share.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/client.h"

namespace fettle {

// Returns the client with 8 devices that the tests of this process share. A test that needs another number of devices
// makes its own client.
inline const Client& eight_devices() {
  static const Client client(Plugin::load("cpu"), {.device_count = 8});
  return client;
}

// One step of least squares by gradient descent: (w, x, y) -> (w - 0.01 x^T (x w - y), sum((x w - y)^2)). The rows of
// w, x and y are split over 8 devices. w may be donated.
inline const std::string kStepText = R"(
module @step attributes {mhlo.num_partitions = 8 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @mesh = <["x"=8]>
  func.func public @main(
      %w: tensor<16x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>, tf.aliasing_output = 0 : i32},
      %x: tensor<32x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>},
      %y: tensor<32x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>})
      -> (tensor<16x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>},
          tensor<f32> {sdy.sharding = #sdy.sharding<@mesh, []>}) {
    %p = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<32x16xf32>, tensor<16x8xf32>) -> tensor<32x8xf32>
    %e = stablehlo.subtract %p, %y : tensor<32x8xf32>
    %s = stablehlo.multiply %e, %e : tensor<32x8xf32>
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %loss = stablehlo.reduce(%s init: %zero) applies stablehlo.add across dimensions = [0, 1] : (tensor<32x8xf32>, tensor<f32>) -> tensor<f32>
    %g = stablehlo.dot_general %x, %e, contracting_dims = [0] x [0] : (tensor<32x16xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
    %rate = stablehlo.constant dense<0.01> : tensor<16x8xf32>
    %d = stablehlo.multiply %g, %rate : tensor<16x8xf32>
    %n = stablehlo.subtract %w, %d : tensor<16x8xf32>
    return %n, %loss : tensor<16x8xf32>, tensor<f32>
  }
})";

inline Layout rows_over_8(const Dims& dims) {
  std::vector<std::vector<int>> axes(dims.size());
  axes[0] = {0};
  return Layout::sharded(dims, {8}, axes);
}

inline Signature step_signature(bool donate = true) {
  const Shape w{DType::kF32, {16, 8}}, x{DType::kF32, {32, 16}}, y{DType::kF32, {32, 8}}, loss{DType::kF32, {}};
  return {
      .inputs = {{"w", w, rows_over_8(w.dims), donate}, {"x", x, rows_over_8(x.dims)}, {"y", y, rows_over_8(y.dims)}},
      .outputs = {{"w", w, rows_over_8(w.dims)}, {"loss", loss, Layout::replicated({}, 8)}}};
}

// Returns reproducible random numbers in [-1, 1).
inline std::vector<float> numbers(int64_t count, uint32_t seed) {
  std::vector<float> values(count);
  uint32_t state = seed * 2654435761u + 1;
  for (float& value : values) {
    state = state * 1664525u + 1013904223u;
    value = static_cast<float>(static_cast<int32_t>(state)) / 2147483648.0f;
  }
  return values;
}

// The data of the step, and the same step computed on the host in double precision.
struct StepOnHost {
  std::vector<float> w = numbers(16 * 8, 1), x = numbers(32 * 16, 2), y = numbers(32 * 8, 3);

  double step() {
    std::vector<double> e(32 * 8), next(w.begin(), w.end());
    double loss = 0;
    for (int i = 0; i < 32; ++i) {
      for (int j = 0; j < 8; ++j) {
        double p = 0;
        for (int k = 0; k < 16; ++k) p += double(x[i * 16 + k]) * w[k * 8 + j];
        e[i * 8 + j] = p - y[i * 8 + j];
        loss += e[i * 8 + j] * e[i * 8 + j];
      }
    }
    for (int k = 0; k < 16; ++k) {
      for (int j = 0; j < 8; ++j) {
        for (int i = 0; i < 32; ++i) next[k * 8 + j] -= 0.01 * x[i * 16 + k] * e[i * 8 + j];
      }
    }
    w.assign(next.begin(), next.end());
    return loss;
  }
};

inline HostArray f32_array(const Dims& dims, const std::vector<float>& values) {
  return HostArray::from(Shape{DType::kF32, dims}, values);
}

}  // namespace fettle
