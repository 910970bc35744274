// Defines Float8Export: exported weights in 8-bit floats (e4m3) with scale factors, as compressed-tensors stores them.
// Transformers and vLLM load such a folder. Sources: compressed-tensors' quantization_config; the schemes FP8_DYNAMIC
// and FP8_BLOCK of llm-compressor.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>

#include "checkpoint/model_writer.h"
#include "export/merged_tensor.h"

namespace fettle {

struct MergeCount;

// kRows: one factor for each row of a weight [out, in]. kBlocks: one for each block of 128 x 128 values.
enum class Float8Scheme { kRows, kBlocks };
// Returns the scheme that export_quantization names: fp8_dynamic or fp8_block. Throws InternalError for other names.
Float8Scheme float8_scheme(const std::string& name);

// The weights of the model's linear layers become 8-bit floats; embeddings, the head, norms and routers keep their
// dtype. Each weight <name> gets a tensor <name>_scale with its factors: [rows, 1] for kRows; [rows / 128,
// columns / 128], rounded up, for kBlocks. A factor is the largest magnitude in its row or block, divided by 448 and
// rounded to the dtype of the factors.
class Float8Export {
 public:
  // `factors` is the dtype of the factors: that of the model. Throws UserError when the format cannot store the model.
  Float8Export(Float8Scheme scheme, DType factors, const Model& model, const BaseTensors& base,
               const std::string& model_name);

  bool applies_to(const BaseTensor& tensor) const { return weights_.contains(tensor.param); }
  // Returns the shapes of the codes and of the factors, which are written instead of the tensor.
  NamedShapes shapes(const BaseTensor& tensor) const;
  // Writes both. Holds 128 rows in memory as f32. Throws UserError when a value is not finite.
  void write(const MergedTensor& merged, const BaseTensor& tensor, ModelWriter& writer, MergeCount& count) const;
  // Returns quantization_config for config.json. It says that activations become 8-bit floats, too, with factors that
  // are computed as the model runs.
  nlohmann::json config() const;

 private:
  int64_t block_rows() const;
  int64_t block_columns(int64_t columns) const;

  Float8Scheme scheme_;
  DType factors_;
  std::set<std::string> weights_;  // names of the weights that become 8-bit floats
  std::set<std::string> ignored_;  // modules with a matrix that keeps its dtype
};

}  // namespace fettle
