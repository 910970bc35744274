// Defines AdapterMerge, which applies adapters, one after another, to the tensors of a base model.
//
// It works on the host, on any box (rectangular part) of a tensor, while weights stream from the files. So loading and
// exporting share this code, no whole model needs to fit on a device, and the values are the same on any mesh.
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

// Reads a box of a tensor into `out`, as dense f32. Thread-safe.
using ReadValues = std::function<void(const Box& box, float* out)>;

// The changes that all adapters make to one tensor, a matrix W [rows, columns] in the checkpoint. Each adapter turns W
// into W + scale * B * A. With DoRA, it then scales each output to the adapter's magnitude. A tensor with all experts
// is treated as one matrix for each expert, one below the other. Computes in f32, in the order of the adapters.
class TensorMerge {
 public:
  bool empty() const { return changes_.empty(); }
  // Changes the values of a box (f32, dense) of the tensor. `dims` are the dims in the checkpoint, or these dims with a
  // fused dim split into its parts.
  void apply(const Box& box, const Dims& dims, float* values) const;

 private:
  friend class AdapterMerge;
  struct Change {
    HostArray left, right;  // f32 [rows, r], [r, columns]; for all experts: [E * rows, r], [E * r, columns]
    int64_t experts = 1;
    float scale = 1;
    std::vector<float> factor;  // DoRA's factor for each output; empty without DoRA
    bool by_column = false;     // outputs are columns
  };
  // Computes DoRA's factors for the last change: magnitude / norm, with the norms of the tensor after all changes so
  // far. `read` reads the unchanged tensor. `dims` are [rows, columns].
  void find_factor(const HostArray& magnitude, const Dims& dims, const ReadValues& read);

  std::vector<Change> changes_;
};

class AdapterMerge {
 public:
  // Takes the adapters in the order in which they apply; `model` must outlive this object. Throws UserError for an
  // adapter of another model.
  AdapterMerge(const Model& model, std::vector<AdapterFolder> adapters);

  bool empty() const { return adapters_.empty(); }
  std::string names() const;  // paths of the adapters' files, for messages

  // In these functions, `name` is the name of a tensor (Param::stored_name). If an adapter trained the tensor's module
  // in full (modules_to_save), saved() returns that adapter's tensor, which replaces the base's tensor and all changes
  // of earlier adapters. If several adapters trained the module in full, the last of them counts. If none did, saved()
  // returns nullopt.
  std::optional<StoredTensor> saved(const std::string& name) const;
  // Returns whether LoRA weights change the tensor.
  bool adds_to(const std::string& name) const;
  // Returns the changes of the tensor. With DoRA, calls `read` to get the values of the unchanged tensor, from which
  // DoRA's norms are computed. The boxes given to `read` use the tensor's dims in the checkpoint.
  TensorMerge merge_of(const std::string& name, const ReadValues& read) const;

 private:
  struct Place {
    const Param* param;
    int64_t index;  // the index of the tensor among the parameter's stored tensors
  };
  struct LoraPair {
    const TensorEntry *a = nullptr, *b = nullptr, *magnitude = nullptr;  // magnitude is null without DoRA
    int64_t rank = 0;
    double scale = 1;
  };
  static TensorMerge::Change of_all_experts(const HostArray& a, const HostArray& b, int64_t experts, bool in_first);
  bool in_first(const Param& param) const;
  void check(const AdapterFolder& adapter, const LoraOptions& options) const;
  // Returns one more than the index of the last adapter that replaced the tensor (modules_to_save); 0 when none did.
  // Only the LoRA weights of the adapters from this index on change the tensor.
  size_t first_lora(const std::string& name) const;
  // Returns nullopt when the adapter does not change the tensor.
  std::optional<LoraPair> lora_of(const AdapterFolder& adapter, const LoraOptions& options, const Place& place) const;

  const Model& model_;
  std::vector<AdapterFolder> adapters_;
  std::vector<LoraOptions> options_;  // the options of adapters_, in the same order
  std::map<std::string, Place> places_;
};

}  // namespace fettle
