// Defines write_gguf_files and check_gguf_logits: the steps of run_export() for GGUF files.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "export/gguf/gguf_plan.h"
#include "export/gguf/gguf_weights.h"
#include "export/logit_check.h"

namespace fettle {

// The files of one type, and the results of their checks.
struct GgufReport {
  std::string file, type;  // `file` is the first file of the model
  size_t files = 1;
  int64_t bytes = 0;  // of all files
  GgufError weights;
  std::optional<CodedLogits> logits;  // set if the check fits the device
};

// Writes TITLE-TYPE.gguf for each type, and a Modelfile for the first type, to `folder`. `texts` is as in plan_gguf. A
// model of more than `most` bytes is split into several files (0: no limit; see GgufParts). Then checks the weights of
// each file with check_gguf_weights(). `count` receives the changes that the merge made. Throws the same errors as
// check_gguf_weights() and GgufWriter.
std::vector<GgufReport> write_gguf_files(const GgufPlan& plan, const std::vector<const GgufFileType*>& types,
                                         const std::string& title, const BaseTensors& base, const AdapterMerge* merge,
                                         const std::filesystem::path& texts, const std::filesystem::path& folder,
                                         int64_t most, MergeCount& count);

// Compares the logits of each file with the logits of base and adapters (LogitReference::check_coded), and sets
// GgufReport::logits. Writes files to the folder `scratch`.
void check_gguf_logits(Devices& devices, const Request& request, const std::filesystem::path& folder,
                       const std::filesystem::path& scratch, std::vector<GgufReport>& files);

// Formats one line for each file; no newline at the end.
std::string format_gguf(const std::vector<GgufReport>& files);

}  // namespace fettle
