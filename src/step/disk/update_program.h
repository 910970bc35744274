// Defines the program that updates one layer of a weight whose optimizer state is on a disk, and the functions that it
// shares with the training step.
//
// With offload_dir, the training step computes the gradients but updates nothing. Then one such program runs for each
// layer of each trained weight.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "graph/program.h"
#include "run/run.h"
#include "runtime/compiled_program.h"

namespace fettle {

// Names of the training step's outputs that the update reads: the raw gradient of each parameter, and two f32 scalars.
// kDivisor divides the gradient. If gradients are clipped, kFactor then multiplies it.
std::string gradient_output(const Param& param);
inline const std::string kDivisor = "divisor", kFactor = "factor";
// Returns the dtype of a parameter's gradient. The sum over several micro-batches is in f32.
DType gradient_dtype(const Run& run, const Param& param);

// Returns a parameter's arrays in the file of offload_dir: the f32 values if the file has them (Run::on_disk), then the
// optimizer state.
std::vector<StateArray> disk_arrays(const Run& run, const Param& param);
// Returns one layer, [1, ...], of each array of disk_arrays(). If the parameter is not stacked, returns the whole
// arrays.
std::vector<StateArray> layer_arrays(const Run& run, const Param& param);

// Inputs: weight and gradient [L, ...]; layer (i32 scalar, only for stacked parameters); state/0, state/1, ... (the
// arrays of layer_arrays()); divisor, factor and the optimizer's scalars (f32). Outputs: weight and state/*, in the
// memory of the inputs. If the parameter's f32 values are on the disk, they are state/0. The program then updates
// state/0, and the output `weight` is a 16-bit copy of the new values.
Program build_update(const Run& run, const Param& param);

// Returns the memory figures of a whole step with offload_dir. These are the figures of the training step (`step`), but
// with the peak of the updates if that is higher. `stats_of` compiles a program and returns its figures.
MemoryStats with_updates(const Run& run, MemoryStats step, const std::function<MemoryStats(const Program&)>& stats_of);

}  // namespace fettle
