// Defines what adapters, applied one after another, do to a base's tensors, and their merge as weights are loaded.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "checkpoint/adapter_files.h"
#include "checkpoint/repository.h"
#include "programs/devices.h"
#include "step/job.h"

namespace fettle {

// What counts of adapters for one tensor: one that saves it whole takes the place of all that came before, of the base
// and of pairs.
struct TensorChanges {
  std::optional<StoredTensor> saved;  // the last that was; nothing: the base's
  size_t first_pair = 0;              // of the adapters, from which one on pairs are added to it
};
// Refers to the adapters, in the order in which they are applied.
TensorChanges changes_of(const std::vector<AdapterFolder>& adapters, const std::string& tensor);

// Those of job.merged, one after another. Refers to the job.
class MergedAdapters {
 public:
  // Throws UserError for a folder that is not there, is broken or is another model's.
  explicit MergedAdapters(const Job& job);

  // The tensor in the place of the base's, where one of them saved it whole.
  std::optional<StoredTensor> saved(const std::string& name) const { return changes_of(adapters_, name).saved; }
  // `weight`, the parameter as it is loaded, with the pairs that count for it added in f32 and rounded to its dtype.
  // Throws UserError when what comes out is not finite.
  DeviceBuffer merged(Devices& devices, const Param& param, DeviceBuffer weight) const;

 private:
  // The pair that adapter `i` adds to the parameter; empty without one.
  std::vector<Param> pair_of(size_t i, const Param& param) const;
  DeviceBuffer merge_one(Devices& devices, size_t i, const Param& param, DeviceBuffer weight) const;

  const Job& job_;
  std::vector<AdapterFolder> adapters_;
  std::vector<LoraOptions> options_;  // of adapters_
};

}  // namespace fettle
