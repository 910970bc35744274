// Defines Value and GraphRun. GraphRun builds a small program, compiles it and runs it on cpu_devices(); its inputs and
// outputs are Values.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/arrays/host_array.h"
#include "base/error.h"
#include "graph/program.h"
#include "programs/devices.h"
#include "test_plugin.h"

namespace fettle {

// An array as doubles, for any dtype.
struct Value {
  Shape shape;
  std::vector<double> elements;
};

inline Value f32(Dims dims, std::vector<double> elements) {
  return {{DType::kF32, std::move(dims)}, std::move(elements)};
}
inline Value f64(Dims dims, std::vector<double> elements) {
  return {{DType::kF64, std::move(dims)}, std::move(elements)};
}
inline Value i32(Dims dims, std::vector<double> elements) {
  return {{DType::kI32, std::move(dims)}, std::move(elements)};
}
inline Value u32(Dims dims, std::vector<double> elements) {
  return {{DType::kU32, std::move(dims)}, std::move(elements)};
}
inline Value pred(Dims dims, std::vector<double> elements) {
  return {{DType::kPred, std::move(dims)}, std::move(elements)};
}
inline Value bf16(Dims dims, std::vector<double> elements) {
  return {{DType::kBF16, std::move(dims)}, std::move(elements)};
}

// Returns reproducible random numbers in [low, high).
inline Value random_value(const Shape& shape, uint32_t seed, double low = -1, double high = 1) {
  Value out{shape, {}};
  uint32_t state = seed * 2654435761u + 1;
  for (int64_t i = 0; i < shape.elements(); ++i) {
    state = state * 1664525u + 1013904223u;
    out.elements.push_back(low + (high - low) * (state >> 8) / 16777216.0);
  }
  return out;
}

// Returns the same as random_value, but integers from -high to high, without 0.
inline Value random_integers(const Shape& shape, uint32_t seed, int64_t high) {
  Value out = random_value(shape, seed, 0, 2 * static_cast<double>(high));
  for (double& x : out.elements) {
    x = std::floor(x) - static_cast<double>(high);
    if (x >= 0) ++x;
  }
  return out;
}

inline HostArray to_array(const Value& value) {
  HostArray out(value.shape);
  internal_check(static_cast<int64_t>(value.elements.size()) == value.shape.elements(), "{} elements for {}",
                 value.elements.size(), value.shape.to_string());
  for (int64_t i = 0; i < value.shape.elements(); ++i) {
    const double x = value.elements[i];
    switch (value.shape.dtype) {
      case DType::kF64: out.as<double>()[i] = x; break;
      case DType::kI32: out.as<int32_t>()[i] = static_cast<int32_t>(x); break;
      case DType::kU32: out.as<uint32_t>()[i] = static_cast<uint32_t>(x); break;
      case DType::kPred: out.as<uint8_t>()[i] = x != 0; break;
      default: store_float(out.data(), value.shape.dtype, i, static_cast<float>(x));
    }
  }
  return out;
}

inline Value to_value(const HostArray& array) {
  Value out{array.shape(), {}};
  for (int64_t i = 0; i < array.shape().elements(); ++i) switch (array.shape().dtype) {
      case DType::kF64: out.elements.push_back(array.as<double>()[i]); break;
      case DType::kI32: out.elements.push_back(array.as<int32_t>()[i]); break;
      case DType::kU32: out.elements.push_back(array.as<uint32_t>()[i]); break;
      case DType::kPred: out.elements.push_back(array.as<uint8_t>()[i]); break;
      default: out.elements.push_back(load_float(array.data(), array.shape().dtype, i));
    }
  return out;
}

// Returns devices of test_plugin(), by default CPU devices. They are made once for each count. They keep compiled
// programs in the folder that FETTLE_TEST_PROGRAMS names. `make test` sets this variable, so each program is compiled
// once. Without the variable, programs are not kept.
inline Devices& cpu_devices(int64_t count = 1) {
  static std::map<int64_t, Devices> made;
  if (const auto at = made.find(count); at != made.end()) return at->second;
  const char* programs = std::getenv("FETTLE_TEST_PROGRAMS");
  return made
      .emplace(count, DeviceRequest{.plugin = test_plugin(),
                                    .count = count,
                                    .compile_cache = programs != nullptr ? programs : "off",
                                    .memory_utilization = kTestMemoryShare})
      .first->second;
}

// A program under construction. Ops append to it while it exists.
class GraphRun {
 public:
  explicit GraphRun(MeshAxes mesh = {}, ChooseKernel choose = {})
      : program_(std::move(mesh), std::move(choose)), scope_(program_.block()) {}

  Tensor input(const Value& value, const Partition& partition = {}) {
    const std::string name = "input" + std::to_string(values_.size());
    values_.push_back(value);
    return program_.input(name, value.shape, partition);
  }
  void output(const std::string& name, const Tensor& value) { program_.output(name, value); }
  Program& program() { return program_; }

  // Compiles and runs the program.
  std::map<std::string, Value> run() {
    Devices& devices = cpu_devices(program_.mesh().size());
    const Executable executable = devices.compile(program_);
    std::map<std::string, DeviceBuffer> buffers;
    Bindings bindings;
    for (size_t i = 0; i < values_.size(); ++i) {
      const ArgInfo& info = executable.signature().inputs[i];
      buffers.emplace(info.name, DeviceBuffer::upload(devices.client(), to_array(values_[i]), info.layout));
      bindings[info.name] = &buffers.at(info.name);
    }
    std::map<std::string, Value> out;
    for (const auto& [name, buffer] : run_program(executable, bindings)) out[name] = to_value(buffer.download());
    return out;
  }

 private:
  Program program_;
  BuildScope scope_;
  std::vector<Value> values_;
};

}  // namespace fettle
