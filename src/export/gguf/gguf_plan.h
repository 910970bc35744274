// Defines GgufPlan: the metadata and the tensors of a model's GGUF files. Also defines plan_gguf, which makes the plan
// and refuses models that cannot be written.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/gguf/places.h"
#include "checkpoint/gguf/write/config_metadata.h"
#include "checkpoint/gguf/write/file_types.h"
#include "checkpoint/gguf/write/folded_factors.h"
#include "checkpoint/peft/adapter_merge.h"
#include "checkpoint/tensor_file.h"
#include "export/base_tensors.h"

namespace fettle {

// A tensor of the file, and the base's tensors from which it is made: one tensor, or one for each expert. If the file's
// tensor has only pieces of a base tensor (some of its rows or outputs), `parts` has the base tensor once for each
// piece.
struct PlannedTensor {
  std::string name;
  Dims dims;  // row-major
  std::vector<const BaseTensor*> parts;
  std::vector<std::string> read_as;    // the names that a reader of the file gives to the parts
  TensorEntry place;                   // how the file stores the first part: order of rows, shift, strides
  std::vector<RowFactors> factors;     // the file's values are the base's values times these factors
  std::vector<GgufPiece> pieces = {};  // pieces[i]: which rows or outputs of parts[i] are stored; empty: all
  bool unit_rows = false;              // the file's rows are the base's, scaled to length 1 (Baichuan 2)
  bool keeps_codes = false;            // the file gets the base's MXFP4 codes

  // Returns the dims that a reader of the file gives to the part.
  Dims part_dims(size_t part) const {
    const Dims& dims = parts[part]->shape.dims;
    if (pieces.empty()) return dims;
    if (pieces[part].step == 0) return {pieces[part].count, dims.back()};
    return {pieces[part].count, dims.size() == 3 ? dims[1] : 1};
  }
};

struct GgufPlan {
  GgufMetadata metadata;          // without the keys that depend on the file's type
  std::vector<GgufTable> tables;  // vectors that are in the file, but in no tensor of the base
  std::vector<PlannedTensor> tensors;
  GgufSizes sizes;

  // Sets PlannedTensor::keeps_codes. As in llama.cpp's conversion, experts that the base stores in MXFP4 keep their
  // codes in files of every type, if `merge` does not change these experts. `merge` may be null.
  void keep_codes(const AdapterMerge* merge);

  // metadata_of() returns the keys of a file of this type. tensors_of() returns its tensors: `tables`, then `tensors`.
  GgufMetadata metadata_of(const GgufFileType& type) const;
  std::vector<GgufTensor> tensors_of(const GgufFileType& type) const;
  const BlockType& type_of(const PlannedTensor& tensor, const GgufFileType& type) const;
};

// The names that the plan needs besides the weights.
struct GgufNames {
  std::string model;  // for messages
  std::string title;  // general.name
  std::string base;   // general.base_model.0.name; "": none
};

// Makes the plan. `tensors` has the parameters' tensors (TensorNames::kOfParams) and must outlive the plan. `texts` is
// the folder with the tokenizer, the chat template, generation_config.json and the licence. The check of the tokenizer
// writes files to the folder `scratch`. Throws UserError when Fettle does not write the family, when
// GGUF cannot express the tokenizer or a setting of the model, and for a classifier.
GgufPlan plan_gguf(const ModelRepository& base, const Model& model, const BaseTensors& tensors, const GgufNames& names,
                   const std::filesystem::path& texts, const std::filesystem::path& scratch);

}  // namespace fettle
