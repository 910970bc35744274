// Defines run_triton, which runs a kernel in Triton's IR on the host, so that the kernels that Fettle writes for GPUs
// are tested without a GPU.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace fettle {

// The memory to which one of the kernel's arguments points.
struct TritonMemory {
  std::byte* data = nullptr;
  int64_t bytes = 0;
  bool result = false;  // true: the kernel must write each element exactly once; false: it must not write
};

// Runs all instances of the function `name` of the module `ir`. Arithmetic is in f32, and each result is rounded to its
// element type. Supports the ops and spellings that src/kernels/gpu/triton.cpp writes. Throws std::runtime_error, with
// the line, for other text, for operands whose types differ from the stated ones, for values that are used outside
// their block, for i32 overflow, and for reads and writes outside the memory.
void run_triton(const std::string& ir, const std::string& name, const std::array<int64_t, 3>& grid,
                const std::vector<TritonMemory>& arguments);

}  // namespace fettle
