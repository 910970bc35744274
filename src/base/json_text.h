// Defines parse_json: the value of a JSON text that somebody else wrote.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string_view>

namespace fettle {

// Deeper values overflow the stack when they are copied.
inline constexpr int kDeepestJson = 100;

// Json is nlohmann::json or nlohmann::ordered_json.
//
// Throws UserError with the reason, to which the caller adds whose text it is: "it breaks at line 2, column 7, at
// `nope}]`" (without the line where there is only one), "it breaks at its end", "values are nested more than 100 deep"
// or "a number in it is too large; ...". NaN and Infinity are not JSON.
template <class Json>
Json parse_json(std::string_view text);

// A discarded value where parse_json throws.
template <class Json>
Json parse_json_or_discard(std::string_view text);

}  // namespace fettle
