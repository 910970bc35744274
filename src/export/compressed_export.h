// Defines CompressedExport: exported weights in 8-bit floats (e4m3) or 4-bit integers with scale factors, as
// compressed-tensors stores them. Transformers and vLLM load such a folder. Sources: compressed-tensors'
// quantization_config; the schemes FP8_DYNAMIC, FP8_BLOCK and W4A16 of llm-compressor.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>

#include "checkpoint/model_writer.h"
#include "export/merged_tensor.h"

namespace fettle {

struct MergeCount;

// kRows: 8-bit floats with one factor for each row of a weight [out, in]. kBlocks: the same, with one factor for each
// block of 128 x 128 values. kGroups: integers from -8 to 7 with one factor for each group of values of a row.
enum class CompressedScheme { kRows, kBlocks, kGroups };
// Returns the scheme that export_quantization names: fp8_dynamic, fp8_block or w4a16. Throws InternalError for other
// names.
CompressedScheme compressed_scheme(const std::string& name);

// The weights of the model's linear layers become codes; embeddings, the head, norms and routers keep their dtype. Each
// weight <name> gets a tensor <name>_scale with its factors: [rows, 1] for kRows; [rows / 128, columns / 128], rounded
// up, for kBlocks; [rows, columns / group] for kGroups. A factor is the largest magnitude in its part of the weight,
// divided by 448 (or by 7.5 for kGroups). It is at least 2^-24, and it is rounded to the dtype of the factors. If all
// values are 0, the factor is 1. For kGroups, <name>_packed has eight codes in each i32, with the first code in the
// lowest bits; each code is increased by 8. <name>_shape has the two dims.
class CompressedExport {
 public:
  // `factors` is the dtype of the factors: export_dtype, or else the model's dtype. `carries_more` says whether the
  // checkpoint has tensors of Family::carried. Throws UserError when the format cannot store the model.
  CompressedExport(CompressedScheme scheme, DType factors, const Model& model, const BaseTensors& base,
                   bool carries_more, const std::string& model_name);

  bool applies_to(const BaseTensor& tensor) const { return weights_.contains(tensor.param); }
  // Returns the names and shapes of the tensors that are written instead of `tensor`: its codes, its factors and, for
  // kGroups, a tensor with its dims.
  NamedShapes shapes(const BaseTensor& tensor) const;
  // Writes the tensors of shapes(). Reads 128 rows at a time. Throws UserError when a value is not finite.
  void write(const MergedTensor& merged, const BaseTensor& tensor, ModelWriter& writer, MergeCount& count) const;
  // Returns quantization_config for config.json. With 8-bit floats, it says that activations are also converted to
  // 8-bit floats, with factors that are computed while the model runs.
  nlohmann::json config() const;

 private:
  int64_t block_rows() const;
  int64_t block_columns(int64_t columns) const;
  bool packs() const { return scheme_ == CompressedScheme::kGroups; }
  void choose_group(const BaseTensors& base, const std::string& model_name);
  void warn_of_blocks(const BaseTensors& base) const;

  CompressedScheme scheme_;
  DType factors_;
  int64_t group_ = 0;              // values of a group; 128, 64 or 32
  std::set<std::string> weights_;  // names of the weights that become codes
  std::set<std::string> ignored_;  // modules whose matrix keeps its dtype
};

}  // namespace fettle
