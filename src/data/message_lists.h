// Defines parse_message_lists, which reads lists of messages that a row has as JSON text.
#pragma once

#include <nlohmann/json.hpp>

#include "data/read/dataset_info.h"

namespace fettle {

// Parses texts in the columns of messages that are JSON (as in CSV files), and replaces each by its list. In the
// columns of conversations, every JSON array counts. In the columns `prompt`, `completion`, `chosen` and `rejected`,
// which may also be plain texts, only an array of messages counts. They are always texts if the row is `labelled`, and
// `prompt` and `completion` also if the entry has a `formatting`. Throws BadRow for a list with an integer of more than
// 64 bits, and for messages as Python prints them.
void parse_message_lists(nlohmann::ordered_json& row, const DataSource& source, bool labelled);

}  // namespace fettle
