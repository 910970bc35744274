#include "config/value.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <type_traits>

#include "base/error.h"
#include "base/text.h"

namespace fettle {
namespace {

constexpr double kLargestWhole = 9007199254740992.0;  // doubles represent all whole numbers up to 2^53

// Returns the position of the first separator outside of brackets; npos when there is none. A regular expression may
// have commas in brackets, such as `layers\.\d{1,2}`.
size_t find_outside(std::string_view text, char separator) {
  int depth = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '(' || text[i] == '[' || text[i] == '{') ++depth;
    if (text[i] == ')' || text[i] == ']' || text[i] == '}') --depth;
    if (text[i] == separator && depth <= 0) return i;
  }
  return std::string_view::npos;
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (true) {
    const size_t end = find_outside(text, separator);
    std::string part(trimmed(text.substr(0, end)));
    if (!part.empty()) parts.push_back(std::move(part));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::string join(const std::vector<std::string_view>& words) {
  return fmt::format("{}", fmt::join(words, ", "));
}

bool contains(const std::vector<std::string_view>& words, std::string_view word) {
  return std::ranges::find(words, word) != words.end();
}

[[noreturn]] void refuse(const Key& key, const GivenValue& given, const std::string& found) {
  throw UserError("{}: {}: found {}, wanted {}", given.where, key.name, found, describe_type(key));
}

// If `text` is another spelling of a value (Key::spellings), returns this value. Otherwise returns `text`.
std::string meant(const Key& key, const std::string& text) {
  if (contains(key.values, text) || contains(key.later, text)) return text;
  auto lookup = [&](std::string_view spelled) -> const std::string_view* {
    for (const auto& [from, to] : key.spellings) {
      if (from == spelled) return &to;
    }
    return nullptr;
  };
  if (const auto* to = lookup(text)) return std::string(*to);
  if (auto truth = bool_from_text(text)) {
    if (const auto* to = lookup(*truth ? "true" : "false")) return std::string(*to);
  }
  return text;
}

void check_available(const Key& key, const GivenValue& given, const std::string& text) {
  if (!contains(key.later, text)) return;
  std::string has =
      key.values.empty() ? "" : fmt::format("; use {}{}", key.values.size() > 1 ? "one of " : "", join(key.values));
  throw UserError("{}: {}: {} is not available in this version{}", given.where, key.name, text, has);
}

std::string read_text(const Key& key, const GivenValue& given, const std::string& raw) {
  std::string text = meant(key, raw);
  check_available(key, given, text);
  if (!key.values.empty() && !contains(key.values, text)) refuse(key, given, fmt::format("'{}'", raw));
  return text;
}

double read_number(const Key& key, const GivenValue& given, const std::string& raw) {
  std::string text = meant(key, raw);
  std::erase(text, '_');
  const char* begin = text.data() + (text.starts_with('+') ? 1 : 0);
  const char* end = text.data() + text.size();
  double number = 0;
  auto [rest, error] = std::from_chars(begin, end, number);
  if (error != std::errc() || rest != end || !std::isfinite(number)) refuse(key, given, fmt::format("'{}'", raw));
  bool too_small = number < key.min || (key.above_min && number == key.min);
  bool too_large = number > key.max || (key.below_max && number == key.max);
  bool broken_count = key.share_or_count && number > 1 && number != std::floor(number);
  if (too_small || too_large || broken_count) refuse(key, given, raw);
  return number;
}

int64_t read_whole(const Key& key, const GivenValue& given, const std::string& raw) {
  double number = read_number(key, given, raw);
  if (number != std::floor(number) || std::fabs(number) > kLargestWhole) refuse(key, given, raw);
  check_available(key, given, fmt::format("{}", static_cast<int64_t>(number)));
  return static_cast<int64_t>(number);
}

bool read_bool(const Key& key, const GivenValue& given, const std::string& raw) {
  auto truth = bool_from_text(meant(key, raw));
  if (!truth) refuse(key, given, fmt::format("'{}'", raw));
  check_available(key, given, *truth ? "true" : "false");
  return *truth;
}

std::string scalar(const Key& key, const GivenValue& given, const YAML::Node& node) {
  if (!node.IsScalar()) refuse(key, given, describe_node(node));
  return node.Scalar();
}

std::string entry_name(const Key& key, const GivenValue& given, const std::string& raw) {
  std::string name = meant(key, raw);
  if (!key.values.empty() && !contains(key.values, name)) {
    throw UserError("{}: {}: found '{}', wanted names among {}", given.where, key.name, raw, join(key.values));
  }
  return name;
}

// Returns the entries of a map, or of a text such as "fsdp=4,tp=2".
std::vector<std::pair<std::string, YAML::Node>> entries(const Key& key, const GivenValue& given) {
  std::vector<std::pair<std::string, YAML::Node>> found;
  if (given.node.IsMap()) {
    for (const auto& pair : given.node) found.emplace_back(scalar(key, given, pair.first), pair.second);
    return found;
  }
  for (const std::string& part : split(scalar(key, given, given.node), ',')) {
    auto sign = part.find_first_of("=:");
    if (sign == std::string::npos) refuse(key, given, fmt::format("'{}'", part));
    found.emplace_back(trimmed(part.substr(0, sign)), YAML::Node(std::string(trimmed(part.substr(sign + 1)))));
  }
  return found;
}

template <typename T>
struct IsOptional : std::false_type {};
template <typename T>
struct IsOptional<std::optional<T>> : std::true_type {};

template <typename T>
T read(const Key& key, const GivenValue& given, const YAML::Node& node) {
  if constexpr (std::is_same_v<T, bool>) return read_bool(key, given, scalar(key, given, node));
  if constexpr (std::is_same_v<T, int64_t>) return read_whole(key, given, scalar(key, given, node));
  if constexpr (std::is_same_v<T, double>) return read_number(key, given, scalar(key, given, node));
  if constexpr (std::is_same_v<T, std::string>) return read_text(key, given, scalar(key, given, node));
}

template <typename T>
void assign(std::optional<T>& to, const Key& key, const GivenValue& given) {
  to = read<T>(key, given, given.node);
}

// A map with the keys 0 to n - 1, such as id2label of a config.json, is a list too.
void assign(std::vector<std::string>& to, const Key& key, const GivenValue& given) {
  std::vector<std::string> items;
  if (given.node.IsMap()) {
    items.resize(given.node.size());
    std::vector<bool> found(items.size());
    for (const auto& pair : given.node) {
      const auto number = digits_value(scalar(key, given, pair.first));
      if (!number) refuse(key, given, describe_node(given.node));
      if (*number >= std::ssize(items) || found[static_cast<size_t>(*number)])
        throw UserError("{}: {}: found a map with the key '{}', wanted a list, or a map with the keys 0 to {}",
                        given.where, key.name, pair.first.Scalar(), items.size() - 1);
      found[static_cast<size_t>(*number)] = true;
      items[static_cast<size_t>(*number)] = read_text(key, given, scalar(key, given, pair.second));
    }
  } else if (given.node.IsSequence()) {
    for (const auto& item : given.node) items.push_back(read_text(key, given, scalar(key, given, item)));
  } else if (const std::string text = scalar(key, given, given.node); key.one_or_two) {
    if (!text.empty()) items.push_back(read_text(key, given, text));
  } else {
    for (const std::string& item : split(text, ',')) items.push_back(read_text(key, given, item));
  }
  if (key.one_or_two && items.size() > 2) refuse(key, given, fmt::format("a list of {}", items.size()));
  to = std::move(items);
}

template <typename T>
void assign(std::map<std::string, T>& to, const Key& key, const GivenValue& given) {
  if constexpr (std::is_same_v<T, int64_t>) {
    if (key.may_be_auto && given.node.IsScalar() && given.node.Scalar() == "auto") {
      to = {{"auto", 1}};
      return;
    }
  }
  std::map<std::string, T> read_entries;
  for (const auto& [raw, node] : entries(key, given)) {
    std::string name = entry_name(key, given, raw);
    if (!read_entries.emplace(name, read<T>(key, given, node)).second) {
      throw UserError("{}: {}: '{}' is given twice", given.where, key.name, name);
    }
  }
  to = std::move(read_entries);
}

template <typename T>
void assign(T& to, const Key& key, const GivenValue& given) {
  to = read<T>(key, given, given.node);
}

std::string quoted(const std::string& text) {
  bool plain = !text.empty() && text != "null" && text != "~" && std::ranges::all_of(text, [](unsigned char c) {
    return std::isalnum(c) || c == '_' || c == '/' || c == '.' || c == '-';
  }) && text[0] != '-';
  if (plain) return text;
  const bool single = std::ranges::all_of(text, [](unsigned char c) { return c >= ' ' && c != '\'' && c != 0x7f; });
  if (single && text.find('"') != std::string::npos) return fmt::format("'{}'", text);  // needs no backslashes
  YAML::Emitter emitter;
  emitter << YAML::DoubleQuoted << text;
  return emitter.c_str();
}

std::string print(bool value) {
  return value ? "true" : "false";
}
std::string print(int64_t value) {
  return fmt::format("{}", value);
}
std::string print(double value) {
  return fmt::format("{}", value);
}
std::string print(const std::string& value) {
  return value.empty() ? "" : quoted(value);
}
template <typename T>
std::string print(const std::optional<T>& value) {
  return value ? print(*value) : "";
}
std::string print(const std::vector<std::string>& value) {
  std::vector<std::string> items;
  for (const auto& item : value) items.push_back(quoted(item));
  return items.empty() ? "" : fmt::format("[{}]", fmt::join(items, ", "));
}
template <typename T>
std::string print(const std::map<std::string, T>& value) {
  if (value.size() == 1 && value.contains("auto")) return "auto";
  std::vector<std::string> items;
  for (const auto& [name, entry] : value) items.push_back(fmt::format("{}: {}", quoted(name), print(entry)));
  return items.empty() ? "" : fmt::format("{{{}}}", fmt::join(items, ", "));
}

std::string describe_range(const Key& key) {
  std::vector<std::string> limits;
  if (std::isfinite(key.min)) limits.push_back(fmt::format("{} {}", key.above_min ? ">" : ">=", key.min));
  if (std::isfinite(key.max)) limits.push_back(fmt::format("{} {}", key.below_max ? "<" : "<=", key.max));
  std::string range = limits.empty() ? "" : fmt::format(" {}", fmt::join(limits, " and "));
  return key.share_or_count ? range + "; from 1 on, a whole number" : range;
}

std::string one_of(const Key& key) {
  std::vector<std::string_view> shown;
  for (auto value : key.values) shown.push_back(value.empty() ? "empty" : value);
  return "one of " + join(shown);
}

}  // namespace

bool is_map(const Key& key) {
  return std::holds_alternative<std::map<std::string, int64_t> Recipe::*>(key.member) ||
         std::holds_alternative<std::map<std::string, std::string> Recipe::*>(key.member);
}

void set_value(Recipe& recipe, const Key& key, const GivenValue& given) {
  static const Recipe defaults;
  std::visit(
      [&](auto member) {
        if (!given.node.IsDefined() || given.node.IsNull()) {
          recipe.*member = defaults.*member;
        } else {
          assign(recipe.*member, key, given);
        }
      },
      key.member);
}

void set_entry(Recipe& recipe, const Key& key, const std::string& entry, const GivenValue& given) {
  std::string name = entry_name(key, given, entry);
  if (const auto* sizes = std::get_if<std::map<std::string, int64_t> Recipe::*>(&key.member)) {
    (recipe.**sizes).erase("auto");
    (recipe.**sizes)[name] = read<int64_t>(key, given, given.node);
  } else if (const auto* texts = std::get_if<std::map<std::string, std::string> Recipe::*>(&key.member)) {
    (recipe.**texts)[name] = read<std::string>(key, given, given.node);
  } else {
    throw UserError("{}: {} has no entries, found '{}.{}'", given.where, key.name, key.name, entry);
  }
}

std::optional<bool> bool_from_text(const std::string& text) {
  const std::string lower = lower_case(text);
  for (const char* spelled : {"true", "yes", "on", "y", "1"}) {
    if (lower == spelled) return true;
  }
  for (const char* spelled : {"false", "no", "off", "n", "0"}) {
    if (lower == spelled) return false;
  }
  return std::nullopt;
}

bool is_on(const YAML::Node& node) {
  return node.IsDefined() && node.IsScalar() && bool_from_text(node.Scalar()).value_or(false);
}

std::string key_text(const YAML::Node& key) {
  return key.IsScalar() ? key.Scalar() : "?";
}

std::string describe_node(const YAML::Node& node) {
  if (!node.IsDefined() || node.IsNull()) return "nothing";
  if (node.IsSequence()) return "a list";
  if (node.IsMap()) return "a map";
  return fmt::format("'{}'", node.Scalar());
}

std::string describe_type(const Key& key) {
  struct Describe {
    const Key& key;
    std::string operator()(bool Recipe::*) const { return "true or false"; }
    std::string operator()(int64_t Recipe::*) const { return "a whole number" + describe_range(key); }
    std::string operator()(std::optional<int64_t> Recipe::*) const { return "a whole number" + describe_range(key); }
    std::string operator()(double Recipe::*) const { return "a number" + describe_range(key); }
    std::string operator()(std::optional<double> Recipe::*) const { return "a number" + describe_range(key); }
    std::string operator()(std::string Recipe::*) const { return key.values.empty() ? "text" : one_of(key); }
    std::string operator()(std::vector<std::string> Recipe::*) const {
      if (key.one_or_two) return "a text, or a list of at most two";
      return key.values.empty() ? "a list, or words separated by commas" : "a list, each " + one_of(key);
    }
    std::string operator()(std::map<std::string, int64_t> Recipe::*) const {
      return (key.may_be_auto ? "auto, or a map of " : "a map of ") + join(key.values) + " to whole numbers" +
             describe_range(key);
    }
    std::string operator()(std::map<std::string, std::string> Recipe::*) const { return "a map of names"; }
  };
  return std::visit(Describe{key}, key.member);
}

std::string value_text(const Recipe& recipe, const Key& key) {
  return std::visit([&](auto member) { return print(recipe.*member); }, key.member);
}

bool must_be_said(const Key& key, bool changed, const KeyPlaces& places) {
  return changed || (key.unset_differs && places.has(key.name));
}

}  // namespace fettle
