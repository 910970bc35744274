// Defines check_logits: whether a merged model computes what its base does with the adapter beside it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "run/request.h"

namespace fettle {

inline constexpr int64_t kCheckedPrompts = 4, kCheckedLength = 32;

// Largest differences of logits over fixed prompts, in f32 from the files on disk. `scale` is the largest logit of base
// + adapter, `bound` what difference_from_adapter had to stay under, `kept` how much of the adapter's change of the
// logits the merged model shows (1 = all; less when rounding swallowed it).
struct LogitCheck {
  double difference_from_adapter = 0, difference_from_base = 0, scale = 0, bound = 0, kept = 0;
};

// Compares the merged model in `written`, whose weights are at least as narrow as `dtype`, with base and adapter of the
// request. `labels` of the classifier; 0: a language model. Returns nothing, with a warning, when a forward pass does
// not fit the device. Throws UserError for an adapter that is broken, changes nothing or is lost in the dtype's
// rounding; InternalError when the merge is wrong.
std::optional<LogitCheck> check_logits(Devices& devices, const Request& request, const std::filesystem::path& written,
                                       DType dtype, int64_t labels);

}  // namespace fettle
