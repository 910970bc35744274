#include "base/progress.h"

#include <atomic>

namespace fettle {
namespace {

std::atomic<int64_t> progress_made = 0;

}  // namespace

void count_progress() {
  ++progress_made;
}

int64_t progress_count() {
  return progress_made;
}

}  // namespace fettle
