// Defines the checks that a step, an evaluation and the arrays in host memory fit. They are done before a run loads
// weights.
#pragma once

#include "run/variant.h"
#include "step/memory/memory_table.h"

namespace fettle {

// Throws DoesNotFit when the step does not fit into the device's memory. The message has the shortfall, the largest
// entry of the table, and changes of the recipe that reduce the step's memory. Here and below, `variant` has the
// changes with which the run was resolved.
void require_fit(const Run& run, const MemoryTable& table, const Variant& variant = {});

// Returns the largest use of one device's memory by an evaluation during training. `evaluation` has the compiler's
// numbers for the evaluation's program. The optimizer state of the training step (`table`) stays on the device.
int64_t evaluation_peak(const Run& run, const MemoryTable& table, const MemoryStats& evaluation);
// Returns "an evaluation needs 1.23 GB on each device (per_device_eval_batch_size: 8)". If `mesh: auto` chose the
// mesh, names the mesh, too.
std::string format_evaluation_peak(const Run& run, int64_t peak, const Variant& variant = {});
// Returns the changes of the recipe with which an evaluation needs less memory, or is not made. A run that
// compares evaluations must make them.
std::vector<std::string> evaluation_changes(const Run& run, const Variant& variant = {});
// Throws DoesNotFit when an evaluation with this peak does not fit into the device's memory. `table` is that of the
// training step.
void require_evaluation_fit(const Run& run, const MemoryTable& table, int64_t peak, const Variant& variant = {});

// Throws DoesNotFit when `processes` processes, each with `devices` devices with this table, need more than `free`
// bytes of host memory. The need of each process includes disk_staging. `free` is the host's free memory. If `free` is
// 0, the free memory is not known, and the check passes.
void require_host_fit(const MemoryTable& table, int64_t devices, int64_t free, int64_t processes = 1);

}  // namespace fettle
