// Defines AdapterMerge: what adapters, applied one after another, make of the tensors of a base.
//
// It works on the host, on whatever box of a tensor is at hand, while weights stream by from the files: so loading and
// exporting share it, nothing need fit a device, and each value is the same on any mesh.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "adapters/lora.h"
#include "checkpoint/peft/adapter_files.h"
#include "checkpoint/repository.h"

namespace fettle {

// Writes the box of a tensor's values, f32 and dense. Thread-safe.
using ReadValues = std::function<void(const Box& box, float* out)>;

// What adapters add to one tensor, a matrix [rows, columns] in the checkpoint: W + scale B A, and with DoRA each output
// brought to its magnitude; in f32, in the order of the adapters.
class TensorMerge {
 public:
  bool empty() const { return changes_.empty(); }
  // Changes the values of a box, f32 and dense, of the tensor seen as `dims`: the checkpoint's, or with the parts of a
  // fused dim apart.
  void apply(const Box& box, const Dims& dims, float* values) const;

 private:
  friend class AdapterMerge;
  struct Change {
    HostArray left, right;  // f32 [rows, r], [r, columns]
    float scale = 1;
    std::vector<float> factor;  // DoRA's on each output; empty: none
    bool by_column = false;     // outputs are columns
  };
  // Of the last change, from what all make of the tensor; `dims` are [rows, columns].
  void find_factor(const HostArray& magnitude, const Dims& dims, const ReadValues& read);

  std::vector<Change> changes_;
};

class AdapterMerge {
 public:
  // Takes the adapters in the order in which they are applied; `model` outlives it. Throws UserError for another
  // model's adapter.
  AdapterMerge(const Model& model, std::vector<AdapterFolder> adapters);

  bool empty() const { return adapters_.empty(); }
  std::string names() const;  // of the adapters' files

  // In what follows `name` is a tensor's, as Param::stored_name.
  // The tensor that an adapter saved whole: it takes the place of the base's, and of what earlier adapters made of it.
  std::optional<StoredTensor> saved(const std::string& name) const;
  // Whether LoRA pairs are added to it.
  bool adds_to(const std::string& name) const;
  // What is added to it. `read` gives the values that this starts from, of the tensor as in the checkpoint; DoRA's
  // norms are taken of them.
  TensorMerge merge_of(const std::string& name, const ReadValues& read) const;

 private:
  struct Place {
    const Param* param;
    int64_t index;  // of its stored tensors
  };
  struct LoraPair {
    const TensorEntry *a = nullptr, *b = nullptr, *magnitude = nullptr;  // the last is null without DoRA
  };
  void check(const AdapterFolder& adapter, const LoraOptions& options) const;
  // Of the adapters, from which one on LoRA pairs are added to it: those behind the last that saved it whole.
  size_t first_lora(const std::string& name) const;
  // Nothing when the adapter has none for it.
  std::optional<LoraPair> lora_of(const AdapterFolder& adapter, const LoraOptions& options, const Place& place) const;

  const Model& model_;
  std::vector<AdapterFolder> adapters_;
  std::vector<LoraOptions> options_;  // of adapters_
  std::map<std::string, Place> places_;
};

}  // namespace fettle
