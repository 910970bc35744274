// Defines MergedTensor: the values that an export writes for one tensor of its base.
#pragma once

#include <optional>
#include <string>

#include "checkpoint/peft/adapter_merge.h"
#include "export/base_tensors.h"

namespace fettle {

// Keeps references to the base's tensors and the merge.
class MergedTensor {
 public:
  // `merge` may be null. If an adapter saved the whole tensor, the adapter's tensor replaces the base's.
  MergedTensor(const BaseTensors& base, const BaseTensor& tensor, const AdapterMerge* merge);
  MergedTensor(const MergedTensor&) = delete;
  MergedTensor& operator=(const MergedTensor&) = delete;

  bool saved() const { return saved_; }            // an adapter saved the whole tensor
  bool merges() const { return !added_.empty(); }  // LoRA weights change the tensor
  const Dims& dims() const { return from_.shape.dims; }
  const StoredTensor& stored() const { return from_.stored; }

  struct Values {
    HostArray before;  // f32; empty when merges() is false
    HostArray after;   // f32
  };
  // Returns the values of the box. Throws UserError when f32 cannot represent a value, and when the merge makes a
  // finite value infinite or NaN.
  Values read(const Box& box) const;

 private:
  BaseTensor from_;
  bool saved_ = false;
  ValueReader reader_;
  TensorMerge added_;
};

// Throws UserError when a finite value of `values` (f32) becomes infinite as `dtype`; the message ends with
// `remedy`.
void check_range(const std::string& name, const HostArray& values, DType dtype, const std::string& remedy);

}  // namespace fettle
