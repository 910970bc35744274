// Defines repeated_key: finds a key that an object of a JSON text has twice.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace fettle {

// Returns the first key that an object of `text` has twice; "" when there is none. `value` is `text` parsed, which
// keeps only the last of equal keys.
std::string repeated_key(const std::string& text, const nlohmann::ordered_json& value);

}  // namespace fettle
