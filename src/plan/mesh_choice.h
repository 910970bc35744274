// Defines the choice of a mesh (`mesh: auto`): several are compiled, the fastest that fits is taken.
#pragma once

#include "plan/step_plan.h"

namespace fettle {

// One way to lay the devices out. All candidates of a choice train on the same rows a step.
struct MeshCandidate {
  Variant variant;               // mesh and rows a device of this candidate
  std::string text;              // "mesh fsdp 2 x tp 4"
  int64_t held_bytes = 0;        // of one device: weights, optimizer state, batch
  double guessed_seconds = 0;    // of a step, from sizes alone (guess_seconds); to order the candidates
  std::optional<StepPlan> plan;  // of those that were compiled
  std::string verdict;           // "taken", "does not fit", why it was not compiled
};

struct MeshChoice {
  std::vector<MeshCandidate> candidates;  // the taken one first, then by time
  const MeshCandidate& taken() const { return candidates.front(); }
};

// Every split of the machine's devices over dp, fsdp, tp and sp that the model's sizes divide by, those that hold too
// much left out, ordered by the guess; the first four (more while none fits) and all on fsdp are compiled and the one
// with the least bound is taken, the schedule's estimate deciding between bounds within 2 %. The recipe's
// per_device_train_batch_size counts every device: tp and sp leave fewer, larger shares, so the candidate's own is
// larger. When none that was compiled fits, the smallest of them comes first. Throws DoesNotFit when the weights alone
// fit on none, UserError when none divides.
MeshChoice choose_mesh(const Request& request, const Machine& machine);

// The candidates without compiling, best guess first; those that hold too much are left out.
std::vector<MeshCandidate> mesh_candidates(const Request& request, const Machine& machine);

// With `mesh: auto` the mesh and batch that are chosen for these devices, saying so; else nothing is changed.
Variant choose_variant(const Request& request, Devices& devices);

// A table for people: mesh, batch, memory, seconds, verdict.
std::string format_choice(const MeshChoice& choice);

}  // namespace fettle
