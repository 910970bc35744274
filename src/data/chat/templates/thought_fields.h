// Defines alias_thought, which gives a message its thought under the names that templates read.
#pragma once

#include <nlohmann/json.hpp>

namespace fettle {

// Messages have the thought in a field with one of three names: reasoning_content, thinking or reasoning. Templates
// read `thinking` or `reasoning_content`, so both are set, as in Transformers. Does nothing if there is no such field.
void alias_thought(nlohmann::ordered_json& message);

}  // namespace fettle
