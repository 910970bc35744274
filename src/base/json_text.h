// Defines functions for JSON from untrusted sources. parse_json parses a text, large_integers finds integers that do
// not fit, text_in, count_in and json_value read members of objects, and shown shortens a value for messages.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace fettle {

// The deepest nesting allowed. Copying a value that is nested much more deeply could overflow the stack.
inline constexpr int kDeepestJson = 100;

// Parses the text. Json is nlohmann::json or nlohmann::ordered_json.
//
// Throws UserError with the reason; the caller adds the name of the file. Reasons: "syntax error at line 2, column 7,
// at `nope}]`" (no line number for a text of one line), "the text ends too early", "values are nested more than 100
// deep", "a number is too large; ...". NaN and Infinity are errors.
template <class Json>
Json parse_json(std::string_view text);

// Parses the text like parse_json, but returns nlohmann's "discarded" value where parse_json throws.
template <class Json>
Json parse_json_or_discard(std::string_view text);

// Returns the integers of a valid JSON text that have more than 64 bits, as they are written. The functions above read
// such an integer as a float.
std::vector<std::string> large_integers(std::string_view text);

// Returns the text in the member `key`; "" if `object` is not an object, or has no text there.
std::string text_in(const nlohmann::json& object, const char* key);
// Returns the integer in the member `key`; -1 if `object` is not an object, or has no integer of 0 or more there.
int64_t count_in(const nlohmann::json& object, const char* key);
// Returns the member `key`; `otherwise` if the object has no such member, or if the member is null. T is bool, int64_t,
// double or std::string. Throws UserError if the member is of another type.
template <class T>
T json_value(const nlohmann::json& object, const char* key, T otherwise);

// Returns the value as JSON text in ASCII. After 60 characters, the rest is "...".
template <class Json>
std::string shown(const Json& value);

}  // namespace fettle
