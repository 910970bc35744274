// Defines repeated_key, which finds a key that an object in a JSON text has twice.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace fettle {

// Returns the first key that an object in `text` has twice; "" when there is none. `value` is the parsed text. Of equal
// keys, `value` has only the last one.
std::string repeated_key(const std::string& text, const nlohmann::ordered_json& value);

}  // namespace fettle
