// Defines Changes: what adapters, one after another, do to a base's weights.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "adapters/lora.h"
#include "checkpoint/adapter_files.h"
#include "export/base_tensors.h"

namespace fettle {

// What one adapter does to one weight W [rows, columns]: it adds scale * left [rows, r] right [r, columns]; with DoRA
// each output (row, or column when `by_column`) is then brought to its magnitude.
struct Change {
  HostArray left, right;
  double scale;
  std::optional<HostArray> magnitude;
  bool by_column;
};

// Changes rows [first, first + w's rows) of a weight, f32, on all cores; `w` is the whole of it where outputs are
// columns that are brought to a magnitude.
void apply_change(const Change& change, int64_t first, std::span<float> w);

// Refers to the adapters, whose tensors have been checked against the base's shapes.
class Changes {
 public:
  // Throws UserError for another model's adapter.
  Changes(const BaseTensors& base, const std::vector<AdapterFolder>& adapters, const Model& model);

  std::string names() const;  // of the adapters' files
  // Of one weight, in the order of the adapters, onto what is saved of it or the base's.
  std::vector<Change> of(const std::string& weight) const;
  // The tensor that the last adapter saved whole in the place of the base's; nothing when there is none.
  std::optional<StoredTensor> saved(const std::string& name) const;

 private:
  // An expert's weight in the checkpoint: which rows of which parameter of all experts it is.
  struct ExpertWeight {
    std::string parameter;  // of expert_parameters
    int64_t layer, expert, experts;
    int64_t first_row;  // of the parameter's
  };
  static std::map<std::string, ExpertWeight> expert_weights(const Model& model);
  std::vector<Change> of_expert(const ExpertWeight& weight, size_t first_pair) const;
  void check(const BaseTensors& base, const AdapterFolder& adapter, const AdapterTensor& tensor) const;

  const std::vector<AdapterFolder>& adapters_;
  std::vector<LoraOptions> options_;  // of adapters_
  bool fan_in_fan_out_;
  std::string layer_prefix_;
  std::map<std::string, ExpertWeight> experts_;
};

}  // namespace fettle
