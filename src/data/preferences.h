// Defines read_pair and read_rated. They read rows that compare two replies, or that rate one reply as good or bad.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "data/data_spec.h"
#include "data/formats.h"

namespace fettle {

// Returns whether the row compares replies (kPreferencePairs) or rates one (kRatedReplies), by its columns; false for
// other kinds.
bool is_preference_row(const nlohmann::ordered_json& row, const DataSource& source, RowKind kind);

// Reads a preference pair: a prompt with two replies. The prompt may have any format of formats.h; `chosen` and
// `rejected` (or the source's columns for them) are texts, messages, or lists of messages. Without a prompt, both lists
// hold the whole conversation, and the prompt is the part that they share at the start. In the result `messages` is the
// prompt with the chosen reply and `rejected` the prompt with the other one; only what follows the prompt is trained.
// Throws BadRow.
Sample read_pair(const nlohmann::ordered_json& row, const DataSource& source);

// Reads a rated reply: a conversation of any format. The column `kto_tag` or `label`, or the column that the source
// names, says whether its last reply is good (true) or bad (false). Sets `messages` and `preference`; only the last
// reply is trained. Throws BadRow.
Sample read_rated(const nlohmann::ordered_json& row, const DataSource& source);

// Reads a row of any format of formats.h for a stage without ratings. Throws BadRow, also when the row rates its reply
// as bad, because training would teach the bad reply.
Sample read_unrated(const nlohmann::ordered_json& row, const DataSource& source);

}  // namespace fettle
