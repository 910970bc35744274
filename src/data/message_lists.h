// Defines parse_message_lists, which reads lists of messages that a row has as JSON text.
#pragma once

#include <nlohmann/json.hpp>

#include "data/read/dataset_info.h"

namespace fettle {

// Replaces texts in the columns of messages by the lists that they are the JSON text of, as in CSV files. In the
// columns of conversations, every JSON array counts. In the columns `prompt`, `completion`, `chosen` and `rejected`,
// which may also be plain texts, only an array of messages counts. Throws BadRow for an integer with more than 64 bits.
void parse_message_lists(nlohmann::ordered_json& row, const DataSource& source);

}  // namespace fettle
