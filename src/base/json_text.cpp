#include "base/json_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"

namespace fettle {
namespace {

bool nests_too_deeply(std::string_view text) {
  int depth = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\')
        ++i;
      else if (c == '"')
        quoted = false;
    } else if (c == '"') {
      quoted = true;
    } else if (c == '{' || c == '[') {
      if (++depth > kDeepestJson) return true;
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return false;
}

// Describes the position of byte number `byte` (counted from 1, at most text.size()): line, column and the text that
// begins there.
std::string place_of(std::string_view text, size_t byte) {
  constexpr size_t kShown = 20;
  const size_t at = byte == 0 ? 0 : byte - 1;
  const std::string_view before = text.substr(0, at);
  const size_t last_end = before.rfind('\n');
  const size_t line_start = last_end == std::string_view::npos ? 0 : last_end + 1;
  std::string_view near = text.substr(at, kShown);
  near = near.substr(0, near.find_first_of("\r\n"));
  // Does not cut inside a UTF-8 character.
  while (!near.empty() && at + near.size() < text.size() &&
         (static_cast<unsigned char>(text[at + near.size()]) & 0xc0) == 0x80)
    near.remove_suffix(1);
  std::string place = fmt::format("column {}", at - line_start + 1);
  if (text.find('\n') < text.size() - 1)
    place = fmt::format("line {}, {}", std::count(before.begin(), before.end(), '\n') + 1, place);
  return near.empty() ? place : fmt::format("{}, at `{}`", place, near);
}

}  // namespace

template <class Json>
Json parse_json(std::string_view text) {
  if (nests_too_deeply(text)) throw UserError("values are nested more than {} deep", kDeepestJson);
  try {
    return Json::parse(text);
  } catch (const nlohmann::json::parse_error& error) {
    if (error.byte > text.size()) throw UserError("the text ends too early");
    throw UserError("syntax error at {}", place_of(text, error.byte));
  } catch (const nlohmann::json::out_of_range&) {
    throw UserError("a number is too large; write the number in quotes, as a string");
  }
}

template <class Json>
Json parse_json_or_discard(std::string_view text) {
  if (nests_too_deeply(text)) return Json(Json::value_t::discarded);
  return Json::parse(text, nullptr, false);
}

std::vector<std::string> large_integers(std::string_view text) {
  std::vector<std::string> out;
  constexpr size_t kMostDigits = 18;  // any integer of so many digits fits
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"')
      for (++i; i < text.size() && text[i] != '"'; ++i) i += text[i] == '\\';
    if (i >= text.size() || (text[i] != '-' && (text[i] < '0' || text[i] > '9'))) continue;
    const std::string_view number = text.substr(i, text.find_first_not_of("+-.0123456789eE", i) - i);
    i += number.size() - 1;
    if (number.size() > kMostDigits && number.find_first_of(".eE") == std::string_view::npos &&
        nlohmann::json::parse(number, nullptr, false).is_number_float())
      out.emplace_back(number);
  }
  return out;
}

template <class Json>
std::string shown(const Json& value) {
  const std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  return text.size() > 60 ? text.substr(0, 60) + "..." : text;
}

std::string text_in(const nlohmann::json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

int64_t count_in(const nlohmann::json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  return found != object.end() && found->is_number_unsigned() ? found->get<int64_t>() : -1;
}

template <class T>
T json_value(const nlohmann::json& object, const char* key, T otherwise) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return otherwise;
  try {
    return found->get<T>();
  } catch (const nlohmann::json::type_error&) {
    throw UserError("'{}' is {}, which is a value of the wrong type; correct it or remove it", key, shown(*found));
  }
}

template nlohmann::json parse_json(std::string_view);
template nlohmann::ordered_json parse_json(std::string_view);
template nlohmann::json parse_json_or_discard(std::string_view);
template nlohmann::ordered_json parse_json_or_discard(std::string_view);
template std::string shown(const nlohmann::json&);
template std::string shown(const nlohmann::ordered_json&);
template bool json_value(const nlohmann::json&, const char*, bool);
template int64_t json_value(const nlohmann::json&, const char*, int64_t);
template double json_value(const nlohmann::json&, const char*, double);
template std::string json_value(const nlohmann::json&, const char*, std::string);

}  // namespace fettle
