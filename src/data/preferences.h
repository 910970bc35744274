// Defines read_pair and read_judged: rows that say which reply is the better one, or whether a reply is good.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "data/formats.h"

namespace fettle {

// What the rows of a stage are: conversations and texts; pairs of replies (dpo, rm); replies with a judgement (kto).
enum class RowsOf { kReplies, kPairs, kJudged };
RowsOf rows_of(const std::string& stage);
// Examples that a row makes and that stay together: 2 of a pair (chosen, then rejected), else 1.
int64_t examples_per_row(const std::string& stage);

// A prompt with two replies. The prompt is in the form of any format of formats.h; `chosen` and `rejected` (or the
// source's columns for them) are texts, messages, or lists of messages. Without a prompt of its own, both lists hold
// the whole conversation, and what they begin with alike is the prompt. Gives `messages`, the prompt with the chosen
// reply, and `rejected`, the prompt with the other; only what follows the prompt is trained. Throws BadRow.
Sample read_pair(const nlohmann::ordered_json& row, const DataSource& source);

// A conversation of any format whose last reply is good or bad, by the column `kto_tag` or `label` (true, false) or the
// source's. Gives `messages` and `preference`; only the last reply is trained. Throws BadRow.
Sample read_judged(const nlohmann::ordered_json& row, const DataSource& source);

// A row that is trained whole, by any format of formats.h. Throws BadRow, also when the row says that its reply is bad:
// sft would teach it.
Sample read_unjudged(const nlohmann::ordered_json& row, const DataSource& source);

}  // namespace fettle
