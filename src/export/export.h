// Writes a model folder in Hugging Face's layout, or GGUF files: either only the base, or the base with adapters merged
// into it. A model that was merged, or whose weights were converted to codes or to GGUF, is then checked.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "export/gguf/gguf_export.h"
#include "export/logit_check.h"
#include "run/request.h"

namespace fettle {

struct ExportReport {
  std::filesystem::path folder;
  size_t files = 0;                  // weight files
  int64_t bytes = 0;                 // bytes of all tensors
  bool merged = false;               // adapters were merged
  int64_t merged_tensors = 0;        // weights that the merge changed
  std::optional<LogitCheck> logits;  // set for a merged model without export_quantization, if the check fits the device
  std::optional<CodedLogits> coded;  // set with export_quantization, if the check fits the device
  std::string quantization = "";     // export_quantization; empty when it was not set
  std::vector<GgufReport> gguf;      // the GGUF files; if there are any, `files`, `bytes` and `logits` are not set
};

// Merges the adapters of adapter_name_or_path, in order, into model_name_or_path and writes export_dir. The merge
// computes W + scale B A in f32; DoRA scales the result to the magnitudes; modules_to_save replace the base's modules.
// Files are shards of export_size GB in export_dtype (default: the base's dtype), with config and tokenizer files.
// Memory holds one block of rows of one tensor (for GGUF, see gguf_weights.h), all codes of a quantised tensor, and a
// whole tensor if it is copied and is not contiguous in its file. With export_quantization, linear layers become codes
// (compressed_export.h). With export_gguf, the folder has GGUF files and a Modelfile instead.
//
// After writing, reads the folder back and compares the logits of the exported model with those of base + adapter. For
// a merged model, also compares the logits with those of the base. export_dir does not appear if this check fails. The
// check is left out, with a warning, if it does not fit the device. A base that is only copied, or converted to
// export_dtype, is not checked.
//
// Throws UserError when keys are missing, export_dir is not empty, the dtype cannot represent a value, or the adapter
// belongs to another model, changes nothing or is lost by rounding; DoesNotFit when the disk is full; InternalError for
// a wrong merge.
ExportReport run_export(const Request& request);

// Formats the report for the user; no newline at the end.
std::string format_export(const ExportReport& report);

}  // namespace fettle
