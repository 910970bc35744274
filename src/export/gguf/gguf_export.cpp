#include "export/gguf/gguf_export.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/files/free_space.h"
#include "base/files/json_file.h"
#include "base/files/output_file.h"
#include "base/log.h"
#include "base/size_text.h"
#include "checkpoint/gguf/gguf_folder.h"
#include "export/gguf/modelfile.h"

namespace fettle {
namespace fs = std::filesystem;

std::vector<GgufReport> write_gguf_files(const GgufPlan& plan, const std::vector<const GgufFileType*>& types,
                                         const std::string& title, const BaseTensors& base, const AdapterMerge* merge,
                                         const fs::path& texts, const fs::path& folder, int64_t most,
                                         MergeCount& count) {
  int64_t needed = 0;
  for (const GgufFileType* type : types)
    for (const GgufTensor& tensor : plan.tensors_of(*type)) needed += bytes_of(tensor.dims, *tensor.type);
  require_free_bytes(folder, needed, "the model");
  std::vector<GgufOutput> outputs;
  std::vector<GgufReport> reports;
  for (const GgufFileType* type : types) {
    const std::string stem = fmt::format("{}-{}", title, type->name);
    outputs.push_back({type, GgufParts(folder, stem, plan.metadata_of(*type), plan.tensors_of(*type), most)});
    const GgufParts& writer = outputs.back().writer;
    reports.push_back({.file = writer.first_name(),
                       .type = std::string(type->name),
                       .files = writer.files(),
                       .bytes = writer.bytes()});
  }
  count = write_gguf_weights(plan, base, merge, outputs);
  for (GgufOutput& output : outputs) output.writer.finish();
  write_file(folder / "Modelfile", modelfile(reports.front().file, texts, plan.metadata));
  for (size_t i = 0; i < types.size(); ++i)
    reports[i].weights = check_gguf_weights(plan, base, merge, *types[i], folder / reports[i].file);
  return reports;
}

void check_gguf_logits(Devices& devices, const Request& request, const fs::path& folder, const fs::path& scratch,
                       std::vector<GgufReport>& files) {
  const LogitReference reference(devices, request);
  for (GgufReport& report : files) {
    const fs::path opened = scratch / report.type;
    write_gguf_folder(folder / report.file, opened);
    // With float32, the file's values are used without rounding. Otherwise, they would be rounded to the dtype in which
    // quantised files are read.
    nlohmann::json config = read_json_file(opened / "config.json");
    config["torch_dtype"] = "float32";
    write_json_file(opened / "config.json", config);
    report.logits = reference.check_coded(opened, report.type);
  }
}

std::string format_gguf(const std::vector<GgufReport>& files) {
  std::string text;
  for (const GgufReport& file : files) {
    if (!text.empty()) text += "\n";
    text += fmt::format("{}: {}", file.file, size_text(file.bytes));
    if (file.files > 1) text += fmt::format(" in {} files", file.files);
    if (file.weights.error > 0)
      text += fmt::format("; weights differ by at most {:.2g} % (most in {})", 100 * file.weights.error,
                          file.weights.tensor);
    if (!file.logits)
      text += "; logits not compared";
    else
      text += fmt::format(
          "; logits of {} prompts of {} tokens, f32: largest difference {:.3g}, largest logit {:.3g}, the "
          "same most likely token at {:.1f} % of the positions",
          kCheckedPrompts, kCheckedLength, file.logits->difference, file.logits->scale, 100 * file.logits->agreement);
  }
  return text;
}

}  // namespace fettle
