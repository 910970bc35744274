#include "jinja/value.h"

#include <unicode/uchar.h>
#include <unicode/utf8.h>

#include <algorithm>
#include <charconv>
#include <cmath>

namespace fettle::jinja {
namespace {

constexpr int kDeepestValue = 200;  // limit of nested lists and dicts
constexpr size_t kTextOverhead = 96, kEntryOverhead = 160;

size_t character_bytes(unsigned char first) {
  if (first < 0x80) return 1;
  if (first >= 0xf0) return 4;
  if (first >= 0xe0) return 3;
  return first >= 0xc0 ? 2 : 1;
}

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

// Appends the string under which a dict stores `key`. `key` need not be a string. Keys of different types never
// collide, except that 1, 1.0 and True are the same key, as in Python.
void append_key(const Value& key, std::string& out) {
  Budget::step();
  Budget::fit(out.size());
  if (key.is_list() || key.is_dict()) throw JinjaError("unhashable type: '{}'", key.type_name());
  if (key.is_string()) {
    out += fmt::format("s{}:", key.string().size()) + key.string();
  } else if (key.is_tuple()) {
    out += fmt::format("t{}:", key.items().size());
    for (const Value& item : key.items()) append_key(item, out);
  } else if (key.is_float() && !(std::fabs(key.number()) < 9e18 && std::floor(key.number()) == key.number())) {
    out += "f" + python_float(key.number());
  } else if (key.is_number()) {
    out += "i" +
           (key.is_float()  ? std::to_string(static_cast<int64_t>(key.number()))
            : key.is_bool() ? std::to_string(key.integer())
                            : key.str()) +
           ":";
  } else if (key.is_none() || key.is_undefined()) {
    out += key.is_none() ? 'n' : 'u';
  } else {
    const void* place = key.is_generator() ? static_cast<const void*>(&key.generator()) : &key.object();
    out += fmt::format("o{}:", fmt::ptr(place));
  }
}

void append_repr(const Value& value, std::string& out, int depth) {
  Budget::step();
  Budget::fit(out.size());
  auto append_all = [&](const Values& items) {
    for (size_t i = 0; i < items.size(); ++i) {
      if (i) out += ", ";
      append_repr(items[i], out, depth + 1);
    }
  };
  if (value.is_string()) {
    out += value.is_markup() ? "Markup(" + python_quote(value.string()) + ")" : python_quote(value.string());
  } else if (value.is_list()) {
    out += '[';
    append_all(value.items());
    out += ']';
  } else if (value.is_tuple()) {
    out += '(';
    append_all(value.items());
    out += value.items().size() == 1 ? ",)" : ")";
  } else if (value.is_dict()) {
    out += '{';
    const char* separator = "";
    for (const auto& [key, item] : value.dict().items()) {
      out += separator;
      append_repr(key, out, depth + 1);
      out += ": ";
      append_repr(item, out, depth + 1);
      separator = ", ";
    }
    out += '}';
  } else if (value.is_undefined()) {
    out += "Undefined";
  } else {
    out += value.str();
  }
}

void append_json_string(std::string_view text, bool ensure_ascii, std::string& out) {
  out += '"';
  for (std::string_view c : characters(text)) {
    const auto byte = static_cast<unsigned char>(c[0]);
    if (c == "\"" || c == "\\") {
      out += '\\';
      out += c;
    } else if (c == "\n") {
      out += "\\n";
    } else if (c == "\r") {
      out += "\\r";
    } else if (c == "\t") {
      out += "\\t";
    } else if (c == "\b") {
      out += "\\b";
    } else if (c == "\f") {
      out += "\\f";
    } else if (byte < 0x20) {
      out += fmt::format("\\u{:04x}", byte);
    } else if (byte >= 0x80 && ensure_ascii) {
      UChar32 code = 0;
      int32_t at = 0;
      U8_NEXT_OR_FFFD(reinterpret_cast<const uint8_t*>(c.data()), at, static_cast<int32_t>(c.size()), code);
      if (code > 0xffff)
        out +=
            fmt::format("\\u{:04x}\\u{:04x}", 0xd800 + ((code - 0x10000) >> 10), 0xdc00 + ((code - 0x10000) & 0x3ff));
      else
        out += fmt::format("\\u{:04x}", code);
    } else {
      out += c;
    }
  }
  out += '"';
}

void append_json(const Value& value, const JsonStyle& style, int depth, std::string& out) {
  Budget::step();
  Budget::fit(out.size());
  const bool lines = style.indent >= 0;
  auto new_line = [&](int levels) {
    if (!lines) return;
    out += '\n';
    for (int i = 0; i < levels; ++i) out += style.indent_text;
  };
  auto separator = [&] { out += style.item_separator; };
  if (value.is_none()) {
    out += "null";
  } else if (value.is_bool()) {
    out += value.truth() ? "true" : "false";
  } else if (value.is_int()) {
    out += value.str();
  } else if (value.is_float()) {
    const double number = value.number();
    out += std::isnan(number)   ? "NaN"
           : std::isinf(number) ? (number > 0 ? "Infinity" : "-Infinity")
                                : python_float(number);
  } else if (value.is_string()) {
    append_json_string(value.string(), style.ensure_ascii, out);
  } else if (value.is_sequence()) {
    if (value.items().empty()) {
      out += "[]";
      return;
    }
    out += '[';
    bool first = true;
    for (const Value& item : value.items()) {
      if (!first) separator();
      first = false;
      new_line(depth + 1);
      append_json(item, style, depth + 1, out);
    }
    new_line(depth);
    out += ']';
  } else if (value.is_dict()) {
    if (value.dict().size() == 0) {
      out += "{}";
      return;
    }
    auto items = value.dict().items();
    if (style.sort_keys)
      std::stable_sort(items.begin(), items.end(), [](auto& a, auto& b) { return a.first.compare(b.first) < 0; });
    out += '{';
    bool first = true;
    for (const auto& [key, item] : items) {
      if (!first) separator();
      first = false;
      new_line(depth + 1);
      if (key.is_string()) {
        append_json_string(key.string(), style.ensure_ascii, out);
      } else {
        std::string text;
        append_json(key, style, depth + 1, text);
        out += '"' + text + '"';
      }
      out += style.key_separator;
      append_json(item, style, depth + 1, out);
    }
    new_line(depth);
    out += '}';
  } else {
    throw JinjaError("Object of type {} is not JSON serializable", value.type_name());
  }
}

}  // namespace

void Dict::set(Value key, Value value) {
  if (key.is_list() || key.is_dict()) throw JinjaError("unhashable type: '{}'", key.type_name());
  auto put = [&](auto& places, std::string place) {
    auto [found, added] = places.try_emplace(std::move(place), items_.size());
    if (!added) {
      items_[found->second].second = std::move(value);
      return;
    }
    Budget::charge(kEntryOverhead + found->first.size());
    items_.emplace_back(std::move(key), std::move(value));
  };
  if (key.is_string()) return put(strings_, key.string());
  std::string other;
  append_key(key, other);
  put(others_, std::move(other));
}

const Value* Dict::find_name(std::string_view key) const {
  auto found = strings_.find(std::string(key));
  return found == strings_.end() ? nullptr : &items_[found->second].second;
}

const Value* Dict::find(const Value& key) const {
  if (key.is_string()) return find_name(key.string());
  if (others_.empty() || key.is_list() || key.is_dict()) return nullptr;
  std::string other;
  append_key(key, other);
  const auto found = others_.find(other);
  return found == others_.end() ? nullptr : &items_[found->second].second;
}

std::optional<Value> Object::attribute(Interpreter&, const std::string&) {
  return std::nullopt;
}
Value Object::call(Interpreter&, Args) {
  throw JinjaError("'{}' object is not callable", type_name());
}

Value Value::undefined(std::string why) {
  Budget::charge(kTextOverhead + why.size());
  Value value;
  value.data_ = std::make_shared<const Undefined>(Undefined{std::move(why)});
  return value;
}
Value Value::markup(std::string text) {
  Value value(std::move(text));
  value.markup_ = true;
  return value;
}
Value Value::list(Values items) {
  Value value;
  value.hold_all(items);
  value.data_ = std::make_shared<const Values>(std::move(items));
  return value;
}
Value Value::tuple(Values items) {
  Value value;
  value.hold_all(items);
  value.data_ = Tuple{std::make_shared<const Values>(std::move(items))};
  return value;
}
Value Value::group(Value grouper, Values members) {
  Value value = tuple({std::move(grouper), list(std::move(members))});
  std::get<Tuple>(value.data_).of_group = true;
  return value;
}
Value Value::dict(Dict items) {
  Value value;
  for (const auto& [key, item] : items.items()) {
    value.hold(key);
    value.hold(item);
  }
  value.data_ = std::make_shared<const Dict>(std::move(items));
  return value;
}
Value Value::generator(Values items) {
  Value value;
  value.hold_all(items);
  value.data_ = std::make_shared<Generator>(Generator{std::move(items)});
  return value;
}
Value Value::keeping(ObjectPtr object, const Values& parts) {
  Value value(std::move(object));
  value.hold_all(parts);
  return value;
}

void Value::hold_all(const Values& parts) {
  Budget::charge(kTextOverhead + parts.size() * sizeof(Value));
  for (const Value& part : parts) hold(part);
}

void Value::hold(const Value& part) {
  depth_ = std::max<uint16_t>(depth_, part.depth_ + 1);
  if (depth_ > kDeepestValue) throw JinjaError("a value is nested more than {} deep", kDeepestValue);
}

void Value::charge_reading() const {
  if (is_string()) Budget::step(string().size() / 64);
}

void Value::charge_text() const {
  Budget::fit(string().size());
  Budget::charge(kTextOverhead + string().size());
}

Value Value::from_json(const nlohmann::ordered_json& json, int depth) {
  if (depth > kDeepestValue) throw JinjaError("a value is nested more than {} deep", kDeepestValue);
  switch (json.type()) {
    case nlohmann::json::value_t::boolean: return json.get<bool>();
    case nlohmann::json::value_t::number_integer: return json.get<int64_t>();
    case nlohmann::json::value_t::number_unsigned: {
      const auto number = json.get<uint64_t>();
      if (number <= INT64_MAX) return static_cast<int64_t>(number);
      Value large;
      large.data_ = number;
      return large;
    }
    case nlohmann::json::value_t::number_float: return json.get<double>();
    case nlohmann::json::value_t::string: return json.get_ref<const std::string&>();
    case nlohmann::json::value_t::array: {
      Values items;
      for (const auto& item : json) items.push_back(from_json(item, depth + 1));
      return list(std::move(items));
    }
    case nlohmann::json::value_t::object: {
      Dict items;
      for (const auto& [key, item] : json.items()) items.set(key, from_json(item, depth + 1));
      return dict(std::move(items));
    }
    default: return {};
  }
}

const std::string& Value::string() const {
  if (auto* text = std::get_if<String>(&data_)) return **text;
  throw JinjaError("expected a string here, got {}", is_undefined() ? why_undefined() : type_name());
}
const Values& Value::items() const {
  if (auto* list = std::get_if<ListPtr>(&data_)) return **list;
  if (auto* tuple = std::get_if<Tuple>(&data_)) return *tuple->items;
  throw JinjaError("expected a list here, got {}", is_undefined() ? why_undefined() : type_name());
}
const Dict& Value::dict() const {
  if (auto* dict = std::get_if<DictPtr>(&data_)) return **dict;
  throw JinjaError("expected a dict here, got {}", is_undefined() ? why_undefined() : type_name());
}
Object& Value::object() const {
  return *std::get<ObjectPtr>(data_);
}
Generator& Value::generator() const {
  return *std::get<GeneratorPtr>(data_);
}
int64_t Value::integer() const {
  if (auto* number = std::get_if<int64_t>(&data_)) return *number;
  if (auto* flag = std::get_if<bool>(&data_)) return *flag;
  if (is_large_int()) throw JinjaError("{} is above 9223372036854775807, so a template can only print it", str());
  throw JinjaError("expected an integer here, got {}", is_undefined() ? why_undefined() : type_name());
}
double Value::number() const {
  if (auto* number = std::get_if<double>(&data_)) return *number;
  if (auto* large = std::get_if<uint64_t>(&data_)) return static_cast<double>(*large);
  return static_cast<double>(integer());
}
std::pair<bool, int64_t> Value::order() const {
  if (auto* large = std::get_if<uint64_t>(&data_)) return {true, static_cast<int64_t>(*large)};
  return {false, integer()};
}
const std::string& Value::why_undefined() const {
  return std::get<std::shared_ptr<const Undefined>>(data_)->why;
}
const Value& Value::defined() const {
  if (is_undefined()) throw JinjaError("{}", why_undefined());
  return *this;
}

bool Value::truth() const {
  if (is_none() || is_undefined()) return false;
  if (is_float()) return number() != 0;
  if (is_bool() || is_int()) return is_large_int() || integer() != 0;
  if (is_string()) return !string().empty();
  if (is_sequence()) return !items().empty();
  if (is_dict()) return dict().size() > 0;
  return true;
}

std::string Value::type_name() const {
  if (is_none()) return "NoneType";
  if (is_undefined()) return "Undefined";
  if (is_bool()) return "bool";
  if (is_int()) return "int";
  if (is_float()) return "float";
  if (is_string()) return "str";
  if (is_list()) return "list";
  if (is_tuple()) return "tuple";
  if (is_dict()) return "dict";
  if (is_generator()) return "generator";
  return object().type_name();
}

std::string Value::str() const {
  if (is_string()) return string();
  if (is_undefined()) return "";
  if (is_none()) return "None";
  if (is_bool()) return truth() ? "True" : "False";
  if (auto* large = std::get_if<uint64_t>(&data_)) return std::to_string(*large);
  if (is_int()) return std::to_string(integer());
  if (is_float()) return python_float(number());
  if (is_generator() || is_object()) return "<" + type_name() + " object>";
  return repr();
}

std::string Value::repr() const {
  std::string out;
  append_repr(*this, out, 0);
  return out;
}

size_t Value::length() const {
  if (is_string()) return character_count(string());
  if (is_sequence()) return items().size();
  if (is_dict()) return dict().size();
  if (is_undefined()) return 0;
  throw JinjaError("object of type '{}' has no len()", type_name());
}

Values Value::walk() const {
  if (is_sequence()) {
    Budget::step(items().size() / 8);
    Budget::charge(items().size() * sizeof(Value));
    return items();
  }
  Values out;
  if (is_dict()) {
    for (const auto& item : dict().items()) out.push_back(item.first);
  } else if (is_string()) {
    for (std::string_view c : characters(string())) out.emplace_back(c);
  } else if (is_generator()) {
    Generator& from = generator();
    out.assign(from.items.begin() + static_cast<std::ptrdiff_t>(from.next), from.items.end());
    from.next = from.items.size();
  } else if (!is_undefined()) {
    throw JinjaError("'{}' object is not iterable", type_name());
  }
  return out;
}

bool Value::same(const Value& other) const {
  Budget::step();
  if (is_number() && other.is_number()) {
    if (is_float() || other.is_float()) return number() == other.number();
    return order() == other.order();
  }
  if (data_.index() != other.data_.index()) return false;
  if (is_none() || is_undefined()) return true;
  if (is_string()) {
    if (string().size() != other.string().size()) return false;
    charge_reading();
    return string() == other.string();
  }
  if (is_sequence())
    return std::equal(items().begin(), items().end(), other.items().begin(), other.items().end(),
                      [](const Value& a, const Value& b) { return a.same(b); });
  if (is_dict()) {
    if (dict().size() != other.dict().size()) return false;
    return std::all_of(dict().items().begin(), dict().items().end(), [&](const auto& item) {
      const Value* found = other.dict().find(item.first);
      return found && found->same(item.second);
    });
  }
  if (is_generator()) return &generator() == &other.generator();
  return &object() == &other.object();
}

int Value::compare(const Value& other) const {
  Budget::step();
  if (is_number() && other.is_number()) {
    if (is_float() || other.is_float()) return number() < other.number() ? -1 : number() > other.number();
    return order() < other.order() ? -1 : order() > other.order();
  }
  if (is_string() && other.is_string()) {
    charge_reading();
    return string().compare(other.string());
  }
  if (is_sequence() && data_.index() == other.data_.index()) {
    const Values &a = items(), &b = other.items();
    for (size_t i = 0; i < std::min(a.size(), b.size()); ++i)
      if (!a[i].same(b[i])) return a[i].compare(b[i]);
    return a.size() < b.size() ? -1 : a.size() > b.size();
  }
  for (const Value* value : {this, &other})
    if (value->is_undefined()) throw JinjaError("{}", value->why_undefined());
  throw JinjaError("'<' not supported between instances of '{}' and '{}'", type_name(), other.type_name());
}

bool Value::contains(const Value& element) const {
  if (is_string()) {
    if (!element.is_string())
      throw JinjaError("'in <string>' requires string as left operand, not {}", element.type_name());
    charge_search(string(), element.string());
    return string().find(element.string()) != std::string::npos;
  }
  if (is_dict()) return dict().find(element) != nullptr;
  if (is_object() || is_none() || is_number()) throw JinjaError("argument of type '{}' is not iterable", type_name());
  const Values all = is_sequence() ? Values() : walk();
  const Values& among = is_sequence() ? items() : all;
  return std::any_of(among.begin(), among.end(), [&](const Value& item) { return item.same(element); });
}

void charge_search(std::string_view text, std::string_view part) {
  // If a long `part` nearly matches at every position, the search time is proportional to the product of both lengths.
  Budget::step(text.size() / 256 + (part.size() > 64 ? (text.size() / 64) * (part.size() / 64) : 0));
}

std::vector<std::string_view> characters(std::string_view text) {
  Budget::step(text.size() / 64);
  std::vector<std::string_view> out;
  for (size_t i = 0; i < text.size();) {
    const size_t bytes = std::min(character_bytes(static_cast<unsigned char>(text[i])), text.size() - i);
    out.push_back(text.substr(i, bytes));
    i += bytes;
  }
  return out;
}

size_t character_count(std::string_view text) {
  if (is_ascii(text)) return text.size();
  size_t count = 0;
  for (size_t i = 0; i < text.size(); ++count) i += character_bytes(static_cast<unsigned char>(text[i]));
  return count;
}

std::string_view character_range(std::string_view text, size_t first, size_t last) {
  if (is_ascii(text)) {
    first = std::min(first, text.size());
    return text.substr(first, last > first ? last - first : 0);
  }
  size_t at = 0, index = 0, from = text.size();
  for (; at < text.size() && index < last; ++index) {
    if (index == first) from = at;
    at += std::min(character_bytes(static_cast<unsigned char>(text[at])), text.size() - at);
  }
  return from >= at ? std::string_view() : text.substr(from, at - from);
}

std::string python_float(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[64];
  auto end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific).ptr;
  std::string_view text(buffer, static_cast<size_t>(end - buffer));
  const size_t mark = text.find('e');
  const int exponent = std::atoi(std::string(text.substr(mark + 1)).c_str());
  if (exponent < -4 || exponent >= 16) return std::string(text);
  end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::fixed).ptr;
  std::string fixed(buffer, end);
  return fixed.find('.') == std::string::npos ? fixed + ".0" : fixed;
}

std::string python_quote(std::string_view text) {
  const bool single = text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos;
  const char quote = single ? '"' : '\'';
  std::string out(1, quote);
  for (std::string_view c : characters(text)) {
    UChar32 code = 0;
    int32_t at = 0;
    U8_NEXT_OR_FFFD(reinterpret_cast<const uint8_t*>(c.data()), at, static_cast<int32_t>(c.size()), code);
    if (c[0] == quote || c == "\\") {
      out += '\\';
      out += c;
    } else if (c == "\n") {
      out += "\\n";
    } else if (c == "\r") {
      out += "\\r";
    } else if (c == "\t") {
      out += "\\t";
    } else if (code < 0x20 || code == 0x7f || (code < 0x100 && !u_isprint(code))) {
      out += fmt::format("\\x{:02x}", code);
    } else if (code != ' ' && (!u_isprint(code) || (U_GET_GC_MASK(code) & U_GC_Z_MASK))) {
      out += code > 0xffff ? fmt::format("\\U{:08x}", code)
             : code > 0xff ? fmt::format("\\u{:04x}", code)
                           : fmt::format("\\x{:02x}", code);
    } else {
      out += c;
    }
  }
  return out + quote;
}

std::string to_json(const Value& value, const JsonStyle& style) {
  std::string out;
  append_json(value, style, 0, out);
  return out;
}

}  // namespace fettle::jinja
