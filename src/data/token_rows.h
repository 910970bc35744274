// Defines read_tokens, which reads a row that has token ids instead of text.
#pragma once

#include <nlohmann/json.hpp>

#include "data/formats.h"

namespace fettle {

// Reads a row with input_ids. It may have labels, the masks assistant_masks, completion_mask and loss_mask (1: the
// token is trained), attention_mask (0: padding), and seq_lengths or position_ids, which show where its documents
// begin. Throws BadRow.
Sample read_tokens(const nlohmann::ordered_json& row);

}  // namespace fettle
