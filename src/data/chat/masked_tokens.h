// Defines masked_tokens, which finds the tokens of a turn that lie outside of the trained spans of its message.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "data/chat/conversation.h"

namespace fettle {

// Returns one flag for each of `ids`: true for a token of the content that no trained span overlaps. `ids` are the
// tokens of a turn's `text`; the message's content begins at byte `content` of this text. Throws UserError when the
// spans cannot be found, because the tokenizer changes the text.
std::vector<bool> masked_tokens(const Tokenizer& tokenizer, const std::vector<int32_t>& ids, std::string_view text,
                                size_t content, const Message& message);

}  // namespace fettle
