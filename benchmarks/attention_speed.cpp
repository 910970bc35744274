// Measures attention and its gradient on the CPU plugin, computed by the composite's body and by the kernel. With the
// argument `prompt`, measures attention of pieces of a prompt to a cache instead. Runs of the two alternate; the result
// is the median. Prints a table in Markdown.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <iostream>
#include <random>

#include "graph/autodiff/grad.h"
#include "graph/ops.h"
#include "kernels/cpu/attention/attention_blocks.h"
#include "kernels_anywhere.h"
#include "models/blocks/attention.h"
#include "programs/devices.h"

namespace fettle {
namespace {

struct Case {
  const char* model;
  int64_t rows, length, heads, key_heads, documents;
};
constexpr Case kCases[] = {
    {"135M", 8, 64, 9, 3, 1},   {"135M", 4, 128, 9, 3, 1},  {"135M", 1, 256, 9, 3, 1},
    {"135M", 1, 512, 9, 3, 1},  {"135M", 4, 512, 9, 3, 1},  {"135M", 1, 2048, 9, 3, 1},
    {"135M", 1, 2048, 9, 3, 8}, {"1.1B", 1, 512, 32, 4, 1}, {"1.1B", 1, 2048, 32, 4, 1},
};
constexpr int64_t kWidth = 64;
constexpr int kRounds = 9;

Program build(const Case& c, DType dtype, const ChooseKernel& choose) {
  Program program({}, choose);
  BuildScope scope(program.block());
  const ModelConfig config;
  const Weights none;
  const ShardingRules rules{MeshAxes{}};
  auto input = [&](const char* name, int64_t heads) {
    return program.input(name, {dtype, {c.rows, c.length, heads, kWidth}});
  };
  const std::vector<Tensor> inputs{input("q", c.heads), input("k", c.key_heads), input("v", c.key_heads)};
  const Tensor d_o = input("d_o", c.heads);
  Forward f{.config = config, .weights = none, .sharding = rules};
  f.segments = program.input("segments", {DType::kI32, {c.rows, c.length}});
  const Tensor o = attention(f, inputs[0], inputs[1], inputs[2], {.scale = 0.125}, nullptr);
  const Tensor loss = reduce_sum(convert(o * d_o, DType::kF32), {0, 1, 2, 3});
  program.output("o", o);
  for (const Tensor& gradient : grad(loss, inputs)) program.output(std::to_string(gradient.node()), gradient);
  return program;
}

struct Compiled {
  Executable executable;
  std::map<std::string, DeviceBuffer> buffers;
  Bindings bindings;
  std::vector<double> seconds;

  Compiled(Devices& devices, const Program& program, int64_t documents, int64_t filled = 0)
      : executable(devices.compile(program)) {
    std::mt19937 generator(1);
    std::normal_distribution<float> normal;
    for (const ArgInfo& info : executable.signature().inputs) {
      HostArray value(info.shape);
      const int64_t length = info.shape.dims.back();
      for (int64_t i = 0; i < info.shape.elements(); ++i) {
        if (info.name == "filled")
          value.as<int32_t>()[i] = static_cast<int32_t>(filled);
        else if (info.shape.dtype == DType::kI32)
          value.as<int32_t>()[i] = static_cast<int32_t>(1 + i % length * documents / length);
        else
          store_float(value.data(), info.shape.dtype, i, normal(generator));
      }
      const auto [at, added] = buffers.emplace(info.name, DeviceBuffer::upload(devices.client(), value, info.layout));
      bindings[info.name] = &at->second;
    }
  }
  void time() {
    const auto start = std::chrono::steady_clock::now();
    const auto results = run_program(executable, bindings);
    for (const auto& [name, buffer] : results) buffer.wait();
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  double median() {
    std::ranges::sort(seconds);
    return seconds[seconds.size() / 2];
  }
};

std::string cpu_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "unknown CPU";
}

// Attention of `length` queries to a cache of `keys` positions, as in a layer of the 135M shape.
Program build_piece(int64_t length, int64_t keys, DType dtype, const ChooseKernel& choose) {
  Program program({}, choose);
  BuildScope scope(program.block());
  const ModelConfig config;
  const Weights none;
  const ShardingRules rules{MeshAxes{}};
  const Tensor q = program.input("q", {dtype, {1, length, 9, kWidth}});
  std::map<std::string, Tensor> arrays;
  for (const char* name : {"keys", "values"}) arrays[name] = program.input(name, {dtype, {1, keys, 3, kWidth}});
  LayerCache cache = LayerCache::of(arrays);
  Forward f{.config = config, .weights = none, .sharding = rules};
  f.cache = Cache{.filled = program.input("filled", {DType::kI32, {1}})};
  program.output("o", attention(f, q, {}, {}, {.scale = 0.125}, &cache));
  return program;
}

void print_pieces() {
  Devices devices({.plugin = "cpu", .count = 1, .compile_cache = "off"});
  const KernelSet kernels = kernels_anywhere(devices.client().plugin());
  std::cout << fmt::format("Attention to a cache, {}; instructions: f32 {}, bf16 {}\n\n", cpu_name(),
                           cpu::block_ops(DType::kF32).name, cpu::block_ops(DType::kBF16).name)
            << "| queries | cache | dtype | body ms | kernel ms, cache full | ratio | kernel ms, first piece |\n"
            << "|---|---|---|---|---|---|---|\n";
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const int64_t keys : {512, 2048, 8192})
      for (const int64_t length : {16, 32, 64, 128, 256, 512}) {
        const Program with = build_piece(length, keys, dtype, choose_among(kernels));
        Compiled body(devices, build_piece(length, keys, dtype, {}), 1, keys - length);
        Compiled kernel(devices, with, 1, keys - length), first(devices, with, 1, 0);
        for (int round = 0; round < kRounds; ++round)
          for (Compiled* each : {&body, &kernel, &first}) each->time();
        std::cout << fmt::format("| {} | {} | {} | {:.2f} | {:.2f} | {:.2f} | {:.2f} |\n", length, keys,
                                 stablehlo_name(dtype), body.median() * 1e3, kernel.median() * 1e3,
                                 body.median() / kernel.median(), first.median() * 1e3)
                  << std::flush;
      }
}

void print_table() {
  Devices devices({.plugin = "cpu", .count = 1, .compile_cache = "off"});
  const KernelSet kernels = kernels_anywhere(devices.client().plugin());
  std::cout << fmt::format("Attention, forward and backward, {}; instructions: f32 {}, bf16 {}\n\n", cpu_name(),
                           cpu::block_ops(DType::kF32).name, cpu::block_ops(DType::kBF16).name)
            << "| shape | rows x length | documents | dtype | body ms | kernel ms | ratio | kernel GFLOP/s |\n"
            << "|---|---|---|---|---|---|---|---|\n";
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const Case& c : kCases) {
      const Program with = build(c, dtype, choose_among(kernels));
      Compiled body(devices, build(c, dtype, {}), c.documents), kernel(devices, with, c.documents);
      for (int round = 0; round < kRounds; ++round) {
        body.time();
        kernel.time();
      }
      std::cout << fmt::format("| {} | {} x {} | {} | {} | {:.2f} | {:.2f} | {:.2f} | {} |\n", c.model, c.rows,
                               c.length, c.documents, stablehlo_name(dtype), body.median() * 1e3, kernel.median() * 1e3,
                               body.median() / kernel.median(),
                               c.documents > 1
                                   ? std::string("-")
                                   : fmt::format("{:.0f}", static_cast<double>(with.kernels()[0].cost.flops) /
                                                               kernel.median() / 1e9))
                << std::flush;
    }
}

}  // namespace
}  // namespace fettle

int main(int count, char** words) {
  try {
    count > 1 && std::string_view(words[1]) == "prompt" ? fettle::print_pieces() : fettle::print_table();
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
