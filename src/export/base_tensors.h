// Defines BaseTensors: what an export reads of its base, as floats also where the model holds them in few bits.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/repository.h"
#include "models/model.h"

namespace fettle {

struct BaseTensor {
  std::string name;
  Shape shape;  // of the floats, where there are only codes of them
  StoredTensor stored;
  const Param* quantised = nullptr;  // of a weight that goes through codes
};

// All tensors as they are stored, or those of the model's parameters, under their names (of a classifier that is
// made of another model).
enum class TensorNames { kStored, kOfParams };

// Refers to the repository and the model. `format`: of the linear layers, in the checkpoint or by the recipe.
class BaseTensors {
 public:
  BaseTensors(const ModelRepository& repository, const Model& model, const std::optional<Quantisation>& format,
              TensorNames names = TensorNames::kStored);
  // One that the repository lacks; what it is stored in outlives this.
  void add(const std::string& name, const StoredTensor& stored);
  bool contains(const std::string& name) const { return index_.contains(name); }

  const std::vector<BaseTensor>& all() const { return all_; }  // as they are stored
  // Throws UserError when there is none.
  const BaseTensor& find(const std::string& name) const;

 private:
  friend class ValueReader;
  const ModelRepository& repository_;
  const Model& model_;
  std::optional<Quantisation> format_;
  std::vector<BaseTensor> all_;
  std::map<std::string, size_t> index_;
};

// Reads one tensor's values; of a weight in few bits it holds the codes. Values made of codes are those of the
// checkpoint's dtype, as a forward pass has them.
class ValueReader {
 public:
  ValueReader(const BaseTensors& tensors, const BaseTensor& tensor);
  // f32, dense. The box of a weight in few bits has whole rows.
  void read(const Box& box, float* out) const;

 private:
  void quantise();
  void take_stored(const BaseTensors& tensors);

  const BaseTensor& tensor_;
  Quantisation format_;
  DType held_;
  std::vector<std::byte> codes_;
  std::vector<float> absmax_;  // of a block, or of a row
};

}  // namespace fettle
