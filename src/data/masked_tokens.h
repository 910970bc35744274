// Defines masked_tokens: the tokens of a turn that no trained span of its message reaches.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "data/chat.h"

namespace fettle {

// `ids` are the tokens of a turn's `text`, in which the message's content begins at byte `content`. Returns true for
// each token of the content that is not trained. Throws UserError when the tokenizer changes the text, so that the
// spans cannot be found.
std::vector<bool> masked_tokens(const Tokenizer& tokenizer, const std::vector<int32_t>& ids, std::string_view text,
                                size_t content, const Message& message);

}  // namespace fettle
