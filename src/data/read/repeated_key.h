// Defines repeated_key: the key that one object of a JSON text has twice.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace fettle {

// "" when every object of `text` has each of its keys once. `value` is the text parsed, where the last one wins.
std::string repeated_key(const std::string& text, const nlohmann::ordered_json& value);

}  // namespace fettle
