// Defines GgufPlan: what a GGUF file of a model will have. All that can be refused is refused while it is made.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/gguf/write/config_metadata.h"
#include "checkpoint/gguf/write/file_types.h"
#include "checkpoint/tensor_file.h"
#include "export/base_tensors.h"

namespace fettle {

// A tensor of the file and the base's tensors from which it is made: one, or one for each expert.
struct PlannedTensor {
  std::string name;
  Dims dims;  // row-major
  std::vector<const BaseTensor*> parts;
  std::vector<std::string> read_as;  // the parts' names when the file is read
  TensorEntry place;                 // how the file has the first part: its rows' order, its shift, its strides
};

struct GgufPlan {
  GgufMetadata metadata;          // without what depends on the file's type
  std::vector<GgufTable> tables;  // vectors that no base's tensor has
  std::vector<PlannedTensor> tensors;
  GgufSizes sizes;

  // The keys and the tensors of a file of this type; the tables come first.
  GgufMetadata metadata_of(const GgufFileType& type) const;
  std::vector<GgufTensor> tensors_of(const GgufFileType& type) const;
};

// What the plan needs to know besides the weights.
struct GgufNames {
  std::string model;  // for messages
  std::string title;  // general.name
  std::string base;   // general.base_model.0.name; "": none
};

// Makes the plan. `tensors` has the parameters' tensors (TensorNames::kOfParams) and must outlive the plan. `scratch`
// is a folder for files of the check of the tokenizer. Throws UserError when Fettle does not write the family, when the
// tokenizer or a setting of the model cannot be expressed in GGUF, and for a classifier.
GgufPlan plan_gguf(const ModelRepository& base, const Model& model, const BaseTensors& tensors, const GgufNames& names,
                   const std::filesystem::path& scratch);

}  // namespace fettle
