// Defines check_logits, which checks that a merged model computes the same as its base with the adapter.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "run/request.h"

namespace fettle {

inline constexpr int64_t kCheckedPrompts = 4, kCheckedLength = 32;

// The largest differences of logits over fixed prompts, one position in twenty left out, computed in f32 from the files
// on disk. `scale` is the largest logit of base + adapter. `bound` is the upper limit of difference_from_adapter.
// `kept` is the share of the adapter's change of the logits that the merged model has (1 = all; less when rounding
// removed some).
struct LogitCheck {
  double difference_from_adapter = 0, difference_from_base = 0, scale = 0, bound = 0, kept = 0;
};

// Compares the merged model in `written` with the request's base + adapter. `dtype` is the narrowest dtype of the
// written weights. `labels` is the classifier's number of labels; 0: a language model. Returns nullopt, with a warning,
// when a forward pass does not fit the device. Throws UserError for an adapter that is broken, changes nothing or is
// lost by rounding; InternalError when the merge is wrong.
std::optional<LogitCheck> check_logits(Devices& devices, const Request& request, const std::filesystem::path& written,
                                       DType dtype, int64_t labels);

}  // namespace fettle
