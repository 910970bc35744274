// Defines count_progress and progress_count. They let the other processes of a run tell long work from a hang.
#pragma once

#include <cstdint>

namespace fettle {

// Call this when a part of long work is done: bytes were downloaded or read, or a row was tokenised. Do not call it
// from threads that work beside the training step, because it would hide a step that hangs. Thread-safe.
void count_progress();
// Returns how often this process has called count_progress().
int64_t progress_count();

}  // namespace fettle
