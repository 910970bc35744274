// Defines how to read weights that a checkpoint stores as integers with a scale and a zero for each group of inputs
// (models/group_storage.h describes the formats).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/table/tensor_table.h"
#include "checkpoint/tensor_file.h"

namespace fettle {

// Finds the codes, scales, zeros and g_idx of the linear layer `module` (its path), which must have codes. `find`
// returns a tensor by full name, or nullopt. Throws UserError for a missing tensor, and for a wrong dtype or shape.
GroupParts find_groups(const GroupStorage& storage, const std::string& module,
                       const std::function<std::optional<StoredTensor>(const std::string& name)>& find);

// Returns the group of each input. Throws UserError when a stored group number is out of range.
std::vector<int32_t> groups_of_inputs(const GroupParts& parts);

// Writes to `out` the codes of successive elements of the weight, from element number `element` on. An element has the
// number output * inputs + input. Like TensorFile and GroupRows, throws UserError if a file became shorter.
void read_group_codes(const GroupParts& parts, int64_t element, std::span<uint8_t> out);

// The zeros and scales of some outputs of a weight. Several threads may call const members.
class GroupRows {
 public:
  // Reads the zeros and scales of the outputs [first, last). `parts` must outlive this object.
  GroupRows(const GroupParts& parts, int64_t first, int64_t last);

  // Writes to `out` the values (code - zero) * scale of successive elements of the weight, from element number
  // `element` on. Rounds them to the dtype of the weight. The elements must belong to the outputs [first, last).
  void values(int64_t element, std::span<float> out) const;
  // Both arrays are [last - first, groups]. The scales are rounded to the dtype of the weight.
  const std::vector<uint8_t>& zeros() const { return zeros_; }
  const std::vector<float>& scales() const { return scales_; }

 private:
  const GroupParts& parts_;
  int64_t first_, groups_;
  std::vector<uint8_t> zeros_;
  std::vector<float> scales_;
  std::vector<int32_t> group_of_;
};

}  // namespace fettle
