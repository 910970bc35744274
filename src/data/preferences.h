// Defines functions that read rows. read_pair reads rows that compare two replies, and read_pair_prompt reads their
// prompts. read_rated reads rows that rate one reply as good or bad. read_unrated reads other rows.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "data/formats.h"

namespace fettle {

// Returns whether the row has the columns of a preference pair.
bool has_pair_columns(const nlohmann::ordered_json& row, const DataSource& source);
// Returns whether the row has the columns of a rated reply, or of a preference pair without a rating.
bool has_rating_columns(const nlohmann::ordered_json& row, const DataSource& source);

// Reads a preference pair: a prompt with two replies. The prompt may have any format of formats.h; `chosen` and
// `rejected` (or the columns that the source names) are texts, messages, or lists of messages. Without a prompt, both
// lists have the whole conversation, and the prompt is their common beginning. Texts of the form
// "\n\nHuman: ...\n\nAssistant: ..." are such conversations, too. For two other texts, the prompt is the text with
// which both begin. In the result, `messages` is the prompt with the chosen reply and `rejected` is the prompt with the
// rejected reply; only the replies are trained. Throws BadRow.
Sample read_pair(const nlohmann::ordered_json& row, const DataSource& source);
// Reads only the prompt of a preference pair. In a row of ms-swift, the chosen reply may be missing. Throws BadRow.
Sample read_pair_prompt(const nlohmann::ordered_json& row, const DataSource& source);

// Reads a rated reply: a conversation of any format. The column `kto_tag` or `label`, or the column that the source
// names, says whether the last reply is good (true) or bad (false). Sets Sample::messages and Sample::preference; only
// the last reply is trained, or the replies in `completion` if the row has `prompt` and `completion`. A preference pair
// without a rating is read by read_pair: it counts as two rated replies. Throws BadRow.
Sample read_rated(const nlohmann::ordered_json& row, const DataSource& source);

// Reads a row of any format of formats.h for a stage without ratings. Throws BadRow. A row that rates its reply as bad
// is a BadRow too, because the model would learn the bad reply.
Sample read_unrated(const nlohmann::ordered_json& row, const DataSource& source);

}  // namespace fettle
