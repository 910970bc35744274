#include "step/step_programs.h"

#include "base/log.h"
#include "step/step.h"

namespace fettle {

const StepPrograms::Entry& StepPrograms::at(int64_t length) {
  if (const auto found = entries_.find(length); found != entries_.end()) return found->second;
  live_line(fmt::format("compiling the step for rows of {} tokens", length));
  const Program program = build_train_step(run_, length);
  return entries_.emplace(length, Entry{devices_.compile(program), program.flops()}).first->second;
}

MemoryTable StepPrograms::memory(int64_t length) {
  return memory_table(run_, length, at(length).executable.memory_stats(), devices_.memory(), devices_.title());
}

}  // namespace fettle
