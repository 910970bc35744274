// Defines BatchPrefetcher, which makes the next batch while the device works on the last one.
#pragma once

#include <cstdint>
#include <future>
#include <utility>

#include "data/batches/batches.h"

namespace fettle {

// Prefetches batches in the order of training: while the device works on one batch, a thread makes the next batch.
class BatchPrefetcher {
 public:
  // Keeps `batches` by reference.
  explicit BatchPrefetcher(const Batches& batches, OwnLines own = {}) : batches_(batches), own_(std::move(own)) {}
  // Like Batches::at; fast when the steps are requested in order.
  Batch at(int64_t step);

 private:
  const Batches& batches_;
  OwnLines own_;
  int64_t coming_step_ = -1;
  std::future<Batch> coming_;
};

}  // namespace fettle
