// Defines with_shared_prompts: the choices of a question as continuations of one prompt, so that the model reads the
// question only once.
#pragma once

#include <vector>

#include "data/store/examples.h"

namespace fettle {

// Takes the examples of each question's choices, which begin with the question. Returns the rows for
// RowGrouping::kBranches: for each question, its tokens as a prompt, then each choice, which begins with the last token
// of the question, because its logits give the choice's first token. A question is repeated when its choices do not fit
// into `longest` tokens together, and when its examples begin with different tokens. Returns an empty vector when a
// choice has fewer than two tokens before it, or when less than half of all tokens would be saved, because attention to
// prompts has no kernel.
std::vector<Example> with_shared_prompts(const std::vector<std::vector<Example>>& choices, int64_t longest);

}  // namespace fettle
