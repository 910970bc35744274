#include "step/step_programs.h"

#include "base/log.h"
#include "step/disk/update_program.h"
#include "step/step.h"

namespace fettle {

const StepPrograms::Entry* StepPrograms::find(const BatchShape& shape) const {
  for (const Entry& entry : entries_) {
    BatchShape wanted = shape;
    wanted.sequences = entry.shape.sequences;
    if (entry.shape == wanted) return &entry;
  }
  return nullptr;
}

const StepPrograms::Entry& StepPrograms::at(const BatchShape& shape) {
  if (const Entry* found = find(shape)) return *found;
  live_line(fmt::format("compiling the step for {} lines of {} positions", shape.lines, shape.length));
  const Program program = build_train_step(run_, shape);
  return entries_.emplace_back(Entry{shape, devices_.compile(program), program.flops(), run_.sharding.stages()});
}

MemoryTable StepPrograms::memory(const BatchShape& shape) {
  const MemoryStats stats = with_updates(run_, at(shape).executable.memory_stats(),
                                         [&](const Program& update) { return devices_.memory_stats(update); });
  return memory_table(run_, shape, stats, devices_.memory(), devices_.title());
}

}  // namespace fettle
