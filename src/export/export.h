// Writes a model folder as Hugging Face lays it out: the base alone, or with an adapter merged in, checked afterwards.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "export/logit_check.h"
#include "run/request.h"

namespace fettle {

struct ExportReport {
  std::filesystem::path folder;
  size_t files = 0;                  // of weights
  int64_t bytes = 0;                 // of tensors
  bool merged = false;               // an adapter went in
  int64_t merged_tensors = 0;        // weights it changed
  std::optional<LogitCheck> logits;  // of a merged model, when the check fits the device
};

// Merges the adapters of recipe.adapter_name_or_path, in order, into recipe.model_name_or_path (W + scale B A, with
// DoRA brought to the magnitudes, in f32; modules_to_save in the base's place) and writes recipe.export_dir in shards
// of export_size GB and export_dtype (default: the base's), with config and tokenizer files. Holds a block of rows of
// one tensor at a time in memory; of a weight in few bits its codes too. Then reads the folder back and compares the
// merged model's logits with those of base + adapter and of the base; the folder appears only when they stand the test.
// Throws UserError: keys missing, the folder there with something in it, another model's adapter, an adapter that
// changes nothing or is lost in the dtype's rounding, a value that the dtype cannot hold, a full disk; InternalError
// when the merge is wrong.
ExportReport run_export(const Request& request);

// What a user reads after it; no newline at the end.
std::string format_export(const ExportReport& report);

}  // namespace fettle
