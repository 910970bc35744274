// Defines BaseTensors, the tensors that an export reads from its base. Quantised tensors are read as floats.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/repository.h"
#include "models/model.h"

namespace fettle {

struct BaseTensor {
  std::string name;   // the name under which the export writes the tensor
  std::string param;  // the name of the parameter that uses the tensor; if no parameter uses it, the same as `name`
  Shape shape;        // shape of the weight as floats, even if it is stored quantised
  StoredTensor stored;
  const Param* quantised = nullptr;  // the parameter, when the weight is quantised; else null
  const Param* used_by = nullptr;    // the parameter that uses the tensor; null: none
  bool of_later_layer = false;       // is_of_later_layer
};

// kStored: all tensors under their stored names. kOfParams: only the tensors of the model's parameters, under the
// parameters' names. The two names of a tensor may differ, for example in a classifier that was made from another
// model.
enum class TensorNames { kStored, kOfParams };

// Keeps references to the repository and the model. `format` is the quantised format of the linear layers, if the
// base's config.json or the recipe sets one.
class BaseTensors {
 public:
  BaseTensors(const ModelRepository& repository, const Model& model, const std::optional<Quantisation>& format,
              TensorNames names = TensorNames::kStored);
  // Adds a tensor that the repository lacks. The file of `stored` must outlive this object.
  void add(const std::string& name, const StoredTensor& stored);
  // From now on, values that a GGUF file stores in blocks are rounded to the tensor's dtype. Training and inference
  // round them in the same way, so adapters are trained on the rounded values.
  void round_decoded() { rounds_decoded_ = true; }
  // contains() and find() take BaseTensor::param.
  bool contains(const std::string& name) const { return index_.contains(name); }

  const std::vector<BaseTensor>& all() const { return all_; }  // all tensors in the order of the files
  // Throws UserError when the base has no such tensor.
  const BaseTensor& find(const std::string& name) const;

 private:
  friend class ValueReader;
  const ModelRepository& repository_;
  const Model& model_;
  std::optional<Quantisation> format_;
  bool rounds_decoded_ = false;
  std::vector<BaseTensor> all_;
  std::map<std::string, size_t> index_;
};

// Reads the values of one tensor. For a quantised weight, keeps the codes in memory and rounds the values to the base's
// dtype, like the forward pass.
class ValueReader {
 public:
  ValueReader(const BaseTensors& tensors, const BaseTensor& tensor);
  // Writes the values of the box to `out`, f32, dense.
  void read(const Box& box, float* out) const;

 private:
  void quantise();
  void take_stored(const BaseTensors& tensors);

  const BaseTensor& tensor_;
  Quantisation format_;
  DType held_;
  bool rounds_decoded_;
  std::vector<std::byte> codes_;
  std::vector<float> absmax_;  // per block, or per row for int8
};

}  // namespace fettle
