#include "data/read/repeated_key.h"

#include <set>
#include <tuple>
#include <vector>

namespace fettle {
namespace {

using nlohmann::ordered_json;

// Returns the number of colons outside of strings. This is the number of keys.
size_t written_keys(const std::string& text) {
  size_t keys = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && quoted)
      ++i;
    else if (text[i] == '"')
      quoted = !quoted;
    else
      keys += !quoted && text[i] == ':';
  }
  return keys;
}

size_t kept_keys(const ordered_json& value) {
  size_t keys = value.is_object() ? value.size() : 0;
  if (value.is_structured())
    for (const ordered_json& item : value) keys += kept_keys(item);
  return keys;
}

}  // namespace

std::string repeated_key(const std::string& text, const ordered_json& value) {
  if (written_keys(text) == kept_keys(value)) return "";
  std::vector<std::set<std::string>> open;
  std::string repeated;
  const auto look = [&](int, ordered_json::parse_event_t event, ordered_json& parsed) {
    if (event == ordered_json::parse_event_t::object_start) open.emplace_back();
    if (event == ordered_json::parse_event_t::object_end) open.pop_back();
    if (event == ordered_json::parse_event_t::key && !open.back().insert(parsed.get<std::string>()).second &&
        repeated.empty())
      repeated = parsed.get<std::string>();
    return true;
  };
  std::ignore = ordered_json::parse(text, look);
  return repeated;
}

}  // namespace fettle
