// Defines choose_mesh (`mesh: auto`), which compiles the step for several meshes and chooses the fastest mesh that
// fits.
#pragma once

#include "plan/step_plan.h"

namespace fettle {

// One possible mesh. All candidates of a choice train on the same rows per step.
struct MeshCandidate {
  Variant variant;               // mesh and rows per device of this candidate
  std::string text;              // "mesh fsdp 2 x tp 4"
  int64_t held_bytes = 0;        // weights, optimizer state and batch, per device
  double guessed_seconds = 0;    // seconds of a step, guessed from sizes; used to order the candidates
  std::optional<StepPlan> plan;  // present for compiled candidates
  std::string verdict;           // "taken", "slower", "does not fit", "not compiled", "the compiler refused it"
};

struct MeshChoice {
  std::vector<MeshCandidate> candidates;  // the chosen one first, then sorted by the lower bound of the time
  const MeshCandidate& taken() const { return candidates.front(); }
};

// Returns the meshes of dp, fsdp, tp and sp that divide the model's sizes. Leaves out a mesh if weights, state and
// batch do not fit into the memory of its devices. If they fit on no mesh, returns only the mesh with the fewest bytes
// per device. Compiles nothing. The candidate with the shortest guessed time comes first. Throws UserError when no mesh
// divides the model's sizes.
std::vector<MeshCandidate> mesh_candidates(const Request& request, const Machine& machine);

// Chooses among mesh_candidates(). Compiles the first four candidates. If none of them fits, compiles more, until one
// fits or eight are compiled. Always compiles the mesh with all devices on fsdp. Chooses the mesh with the smallest
// lower bound of the step's time. If several bounds are within 2 % of the smallest one, chooses the mesh with the
// shortest schedule among them. The recipe's per_device_train_batch_size is for a mesh that splits rows over all
// devices. With tp and sp, fewer devices split the rows, so the candidate's own value is larger. When no compiled
// candidate fits, the candidate with the least memory comes first. Throws like mesh_candidates, and DeviceError when
// the compiler refuses all meshes.
MeshChoice choose_mesh(const Request& request, const Machine& machine);

// With `mesh: auto`, chooses the mesh and batch for these devices and prints the choice. If weights, state and batch
// fit on no mesh, returns the mesh with the fewest bytes per device, and compiles and prints nothing. Without
// `mesh: auto`, returns a variant without changes.
Variant choose_variant(const Request& request, Devices& devices);

// Formats a table. Its columns are the mesh, the batch, the peak of memory, the lower bound of the step's time (a guess
// if the mesh was not compiled), the time of the schedule, the bytes that a device sends over the links of its host,
// the bytes that it sends to other hosts (if there are several hosts), and the verdict. If the mesh fits, the verdict
// is followed by what limits the step's time (StepPlan::limited_by).
std::string format_choice(const MeshChoice& choice, const Machine& machine);

}  // namespace fettle
