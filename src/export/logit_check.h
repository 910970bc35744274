// Defines check_logits and LogitReference, which compare the logits of an exported model with the logits of its base
// and adapter.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "run/request.h"

namespace fettle {

inline constexpr int64_t kCheckedPrompts = 4, kCheckedLength = 32;

// The largest differences of logits over fixed prompts, computed in f32 from the files on disk. `scale` is the largest
// magnitude of a logit of base + adapter. The check allows a difference_from_adapter of at most `bound`. If the written
// weights are rounded, difference_from_adapter leaves out the 5 % of the positions that differ most. The adapter
// changes the base's logits; `kept` is the share of this change in the merged model (1: all; less if rounding removed a
// part).
struct LogitCheck {
  double difference_from_adapter = 0, difference_from_base = 0, scale = 0, bound = 0, kept = 0;
};

// Compares the merged model in `written` with the request's base + adapter. `dtype` is the narrowest dtype of the
// written weights. `labels` is the classifier's number of labels; 0: a language model. Returns nullopt, with a warning,
// when a forward pass does not fit the device. Throws UserError for an adapter that is broken, changes nothing or is
// lost by rounding; InternalError when the merge is wrong.
std::optional<LogitCheck> check_logits(Devices& devices, const Request& request, const std::filesystem::path& written,
                                       DType dtype, int64_t labels);

// How the logits of a coded model differ from those of the original model, over the same prompts. A coded model is a
// GGUF file, or a model that was written with export_quantization. The original model is the one from which the coded
// model was made. `difference` is the largest difference, `scale` is the largest magnitude of the original's logits.
// `agreement` is the share of positions at which both models have the same most likely token. `error` is the root of
// the mean squared difference, as a share of the standard deviation of the original's logits.
struct CodedLogits {
  double difference = 0, scale = 0, agreement = 0, error = 0;
};

// Returns a warning when `error` (CodedLogits::error) is above the usual value of the type: 0.05 for Q8_0, 0.15 for
// Q6_K, 0.3 for 5 bits, 0.6 for 4 bits and for export_quantization, 1 for 3 bits, 1.5 for 2 bits. Compares tenths of a
// percent, which the warning shows.
std::optional<std::string> coded_warning(const std::string& type, double error);

// The logits of the request's base, with the adapters when there are any. Keeps references to the devices and the
// request.
class LogitReference {
 public:
  LogitReference(Devices& devices, const Request& request);
  ~LogitReference();

  // Compares the logits of the model in `folder` with the logits of this object. `type` is the type of the model's GGUF
  // file, or the value of export_quantization. Returns nullopt, with a warning, when a forward pass does not fit a
  // device. For F32, F16 and BF16, throws InternalError when the logits differ by more than rounding explains, and
  // UserError when rounding removes most of an adapter's effect. For quantised types, prints coded_warning().
  std::optional<CodedLogits> check_coded(const std::filesystem::path& folder, const std::string& type) const;

 private:
  struct Computed;
  Devices& devices_;
  const Request& request_;
  std::unique_ptr<const Computed> computed_;  // null when the forward pass does not fit the device
};

}  // namespace fettle
