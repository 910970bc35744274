// Defines Program: a whole step, from named inputs to named outputs, and its StableHLO text.
//
// The runtime gets only the text and the signature; graph and runtime do not include each other.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "graph/block.h"
#include "graph/composite.h"

namespace fettle {

struct ProgramInput {
  std::string name;  // "frozen/model.layers.{}.self_attn.q_proj.weight"
  Shape shape;
  Partition partition;      // empty dims = replicated
  int64_t donated_to = -1;  // number of the output that reuses the input's memory, or -1
  Memory memory = Memory::kDevice;
};

struct ProgramOutput {
  std::string name;
  Shape shape;
  Partition partition;
  Memory memory = Memory::kDevice;
};

// The calls of one kernel in one execution of the program.
struct KernelUse {
  std::string kernel;  // the kernel's CustomCall::kernel
  int64_t calls = 0;   // number of executions; a call in a loop counts once per trip
  CallCost cost;       // flops and bytes: sums over the calls; workspace: the largest
  bool operator==(const KernelUse&) const = default;
};

// Owns the graph while it is built. Use it in this order: add inputs with input(), build ops under a BuildScope of
// block(), set outputs with output(), and get the result with text().
class Program {
 public:
  // `choose` offers kernels for composites; without it every body is inlined.
  explicit Program(MeshAxes mesh = {}, ChooseKernel choose = {});

  Tensor input(const std::string& name, const Shape& shape, const Partition& partition = {},
               Memory memory = Memory::kDevice);
  // `donate_input` names an input of the same shape, partition and memory; the output reuses that input's buffer. If
  // the output is in host memory, place() must have put `value` there.
  void output(const std::string& name, const Tensor& value, const Partition& partition = {},
              const std::string& donate_input = "", Memory memory = Memory::kDevice);
  Block& block() { return *block_; }
  const MeshAxes& mesh() const { return mesh_; }

  const std::vector<ProgramInput>& inputs() const { return inputs_; }
  const std::vector<ProgramOutput>& outputs() const { return outputs_; }
  bool uses_host_memory() const;  // true when any input is in host memory

  // Returns the module as StableHLO with Shardy shardings and locations; its function is "main". Without `tf32`, f32
  // matmuls have full f32 precision.
  std::string text(bool tf32 = false) const;
  // Returns the floating-point operations of one execution, over all devices.
  double flops() const;
  // Returns the kernels that the program calls, sorted by name.
  std::vector<KernelUse> kernels() const;

 private:
  MeshAxes mesh_;
  std::shared_ptr<Block> block_;
  std::vector<ProgramInput> inputs_;
  std::vector<ProgramOutput> outputs_;
};

}  // namespace fettle
