// The methods of Python's str, list, tuple, dict, int and float that templates may call.
#include <unicode/locid.h>
#include <unicode/uchar.h>
#include <unicode/unistr.h>
#include <unicode/utf8.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "jinja/builtins.h"

namespace fettle::jinja {
namespace {

UChar32 code_point(std::string_view character) {
  UChar32 code = 0;
  int32_t at = 0;
  U8_NEXT_OR_FFFD(reinterpret_cast<const uint8_t*>(character.data()), at, static_cast<int32_t>(character.size()), code);
  return code;
}

template <typename Is>
bool every(const std::string& text, Is is) {
  const auto all = characters(text);
  return !all.empty() && std::all_of(all.begin(), all.end(), [&](std::string_view c) { return is(code_point(c)); });
}

std::string title_case(std::string_view character) {
  std::string out;
  auto unicode =
      icu::UnicodeString::fromUTF8(icu::StringPiece(character.data(), static_cast<int32_t>(character.size())));
  return unicode.toTitle(nullptr, icu::Locale::getRoot()).toUTF8String(out);
}

std::string capitalized(std::string_view text) {
  if (text.empty()) return "";
  const size_t first = character_range(text, 0, 1).size();
  return title_case(text.substr(0, first)) + change_case(text.substr(first), false);
}

std::string titled(std::string_view text) {
  std::string out;
  bool inside = false;
  for (std::string_view c : characters(text)) {
    out += inside ? change_case(c, false) : title_case(c);
    inside = u_isalpha(code_point(c));
  }
  return out;
}

Values split_space(std::string_view text, int64_t most, bool from_right) {
  std::vector<std::string_view> words;
  const auto all = characters(text);
  const auto count = static_cast<int64_t>(all.size());
  auto at = [&](int64_t i) { return all[static_cast<size_t>(from_right ? count - 1 - i : i)]; };
  auto offset = [&](std::string_view c) { return static_cast<size_t>(c.data() - text.data()); };
  int64_t i = 0;
  while (true) {
    while (i < count && is_python_space(at(i))) ++i;
    if (i >= count) break;
    const int64_t begin = i;
    if (most >= 0 && static_cast<int64_t>(words.size()) >= most) {
      const std::string_view edge = at(begin);
      words.push_back(from_right ? text.substr(0, offset(edge) + edge.size()) : text.substr(offset(edge)));
      break;
    }
    while (i < count && !is_python_space(at(i))) ++i;
    const std::string_view a = at(begin), b = at(i - 1);
    const size_t first = std::min(offset(a), offset(b));
    words.push_back(text.substr(first, std::max(offset(a) + a.size(), offset(b) + b.size()) - first));
  }
  if (from_right) std::reverse(words.begin(), words.end());
  return {words.begin(), words.end()};
}

Values split_at(std::string_view text, std::string_view separator, int64_t most, bool from_right) {
  if (separator.empty()) throw JinjaError("empty separator");
  charge_search(text, separator);
  std::vector<std::string> parts;
  while (most != 0) {
    const size_t found = from_right ? text.rfind(separator) : text.find(separator);
    if (found == std::string_view::npos) break;
    const std::string_view rest = text.substr(found + separator.size());
    Budget::charge(sizeof parts[0]);
    parts.emplace_back(from_right ? rest : text.substr(0, found));
    text = from_right ? text.substr(0, found) : rest;
    --most;
  }
  parts.emplace_back(text);
  if (from_right) std::reverse(parts.begin(), parts.end());
  return {parts.begin(), parts.end()};
}

Values split_lines(std::string_view text, bool keep_ends) {
  Values out;
  size_t begin = 0;
  const auto all = characters(text);
  for (size_t i = 0; i < all.size(); ++i) {
    const UChar32 code = code_point(all[i]);
    const bool ends = (code >= 0x0a && code <= 0x0d) || (code >= 0x1c && code <= 0x1e) || code == 0x85 ||
                      code == 0x2028 || code == 0x2029;
    if (!ends) continue;
    const auto stop = static_cast<size_t>(all[i].data() - text.data());
    if (code == '\r' && i + 1 < all.size() && all[i + 1] == "\n") ++i;
    const auto next = static_cast<size_t>(all[i].data() - text.data()) + all[i].size();
    out.emplace_back(text.substr(begin, (keep_ends ? next : stop) - begin));
    begin = next;
  }
  if (begin < text.size()) out.emplace_back(text.substr(begin));
  return out;
}

// The part [start, end) of a text. Methods such as `find` and `count` search only in this part.
struct Window {
  std::string_view text;
  size_t first;  // position of the window's first character in the whole text
};
Window window(const std::string& text, const Bound& bound, size_t at) {
  const auto length = static_cast<int64_t>(character_count(text));
  auto clamped = [&](size_t index, int64_t otherwise) {
    if (!bound.has(index) || bound[index].is_none()) return otherwise;
    const int64_t value = bound[index].integer();
    return std::clamp<int64_t>(value < 0 ? value + length : value, 0, length);
  };
  const int64_t first = clamped(at, 0), last = clamped(at + 1, length);
  return {character_range(text, static_cast<size_t>(first), static_cast<size_t>(last)), static_cast<size_t>(first)};
}

bool begins_or_ends(std::string_view text, const Value& with, bool ends) {
  if (with.is_tuple())
    return std::any_of(with.items().begin(), with.items().end(),
                       [&](const Value& one) { return begins_or_ends(text, one, ends); });
  return ends ? text.ends_with(with.string()) : text.starts_with(with.string());
}

int64_t position(const std::string& text, const Bound& bound, bool last) {
  const Window look = window(text, bound, 1);
  charge_search(look.text, bound[0].string());
  const size_t found = last ? look.text.rfind(bound[0].string()) : look.text.find(bound[0].string());
  if (found == std::string_view::npos) return -1;
  return static_cast<int64_t>(look.first + character_count(look.text.substr(0, found)));
}

using MethodFunction = Value (*)(Interpreter&, const Value&, Args&);
using Table = std::map<std::string, MethodFunction>;

std::optional<std::string_view> optional_text(const Bound& bound, size_t index) {
  if (!bound.has(index) || bound[index].is_none()) return std::nullopt;
  return bound[index].string();
}

Value is_cased(const std::string& text, bool upper) {
  bool any = false;
  for (std::string_view c : characters(text)) {
    const UChar32 code = code_point(c);
    if (upper ? u_islower(code) : (u_isupper(code) || u_istitle(code))) return false;
    any |= upper ? u_isupper(code) : u_islower(code);
  }
  return any;
}

const Table& string_methods() {
  static const Table kTable = [] {
    Table t;
    t["upper"] = [](Interpreter&, const Value& s, Args&) -> Value { return change_case(s.string(), true); };
    t["lower"] = [](Interpreter&, const Value& s, Args&) -> Value { return change_case(s.string(), false); };
    t["casefold"] = [](Interpreter&, const Value& s, Args&) -> Value {
      std::string out;
      return icu::UnicodeString::fromUTF8(s.string()).foldCase().toUTF8String(out);
    };
    t["capitalize"] = [](Interpreter&, const Value& s, Args&) -> Value { return capitalized(s.string()); };
    t["title"] = [](Interpreter&, const Value& s, Args&) -> Value { return titled(s.string()); };
    t["swapcase"] = [](Interpreter&, const Value& s, Args&) -> Value {
      std::string out;
      for (std::string_view c : characters(s.string())) out += change_case(c, u_islower(code_point(c)));
      return out;
    };
    t["strip"] = [](Interpreter&, const Value& s, Args& a) -> Value {
      return strip(s.string(), optional_text(Bound("strip", a, {"chars"}), 0), true, true);
    };
    t["lstrip"] = [](Interpreter&, const Value& s, Args& a) -> Value {
      return strip(s.string(), optional_text(Bound("lstrip", a, {"chars"}), 0), true, false);
    };
    t["rstrip"] = [](Interpreter&, const Value& s, Args& a) -> Value {
      return strip(s.string(), optional_text(Bound("rstrip", a, {"chars"}), 0), false, true);
    };
    t["split"] = [](Interpreter&, const Value& s, Args& a) -> Value {
      Bound b("split", a, {"sep", "maxsplit"});
      const int64_t most = b.get(1, -1).integer();
      const auto separator = optional_text(b, 0);
      return Value::list(separator ? split_at(s.string(), *separator, most, false)
                                   : split_space(s.string(), most, false));
    };
    t["rsplit"] = [](Interpreter&, const Value& s, Args& a) -> Value {
      Bound b("rsplit", a, {"sep", "maxsplit"});
      const int64_t most = b.get(1, -1).integer();
      const auto separator = optional_text(b, 0);
      return Value::list(separator ? split_at(s.string(), *separator, most, true)
                                   : split_space(s.string(), most, true));
    };
    t["splitlines"] = [](Interpreter&, const Value& s, Args& a) -> Value {
      return Value::list(split_lines(s.string(), Bound("splitlines", a, {"keepends"}).get(0, false).truth()));
    };
    t["partition"] = [](Interpreter&, const Value& s, Args& a) -> Value {
      Bound b("partition", a, {"sep"});
      charge_search(s.string(), b[0].string());
      const size_t at = s.string().find(b[0].string());
      if (at == std::string::npos) return Value::tuple({s, "", ""});
      return Value::tuple({s.string().substr(0, at), b[0], s.string().substr(at + b[0].string().size())});
    };
    t["rpartition"] = [](Interpreter&, const Value& s, Args& a) -> Value {
      Bound b("rpartition", a, {"sep"});
      charge_search(s.string(), b[0].string());
      const size_t at = s.string().rfind(b[0].string());
      if (at == std::string::npos) return Value::tuple({"", "", s});
      return Value::tuple({s.string().substr(0, at), b[0], s.string().substr(at + b[0].string().size())});
    };
    t["startswith"] = [](Interpreter&, const Value& s, Args& a) -> Value {
      Bound b("startswith", a, {"prefix", "start", "end"});
      return begins_or_ends(window(s.string(), b, 1).text, b[0], false);
    };
    t["endswith"] = [](Interpreter&, const Value& s, Args& a) -> Value {
      Bound b("endswith", a, {"suffix", "start", "end"});
      return begins_or_ends(window(s.string(), b, 1).text, b[0], true);
    };
    t["find"] = [](Interpreter&, const Value& s, Args& a) -> Value {
      return position(s.string(), Bound("find", a, {"sub", "start", "end"}), false);
    };
    t["rfind"] = [](Interpreter&, const Value& s, Args& a) -> Value {
      return position(s.string(), Bound("rfind", a, {"sub", "start", "end"}), true);
    };
    t["index"] = [](Interpreter&, const Value& s, Args& a) -> Value {
      const int64_t at = position(s.string(), Bound("index", a, {"sub", "start", "end"}), false);
      if (at < 0) throw JinjaError("substring not found");
      return at;
    };
    t["rindex"] = [](Interpreter&, const Value& s, Args& a) -> Value {
      const int64_t at = position(s.string(), Bound("rindex", a, {"sub", "start", "end"}), true);
      if (at < 0) throw JinjaError("substring not found");
      return at;
    };
    t["count"] = [](Interpreter&, const Value& s, Args& a) -> Value {
      Bound b("count", a, {"sub", "start", "end"});
      const std::string_view text = window(s.string(), b, 1).text;
      const std::string& part = b[0].string();
      if (part.empty()) return character_count(text) + 1;
      charge_search(text, part);
      int64_t count = 0;
      for (size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + part.size())) ++count;
      return count;
    };
    t["replace"] = [](Interpreter&, const Value& s, Args& a) -> Value {
      Bound b("replace", a, {"old", "new", "count"});
      const size_t size = s.string().size();
      const size_t most = b[0].string().empty() ? size + 1 : size / b[0].string().size();
      charge_search(s.string(), b[0].string());
      Budget::fit(size + most * b[1].string().size());
      return replace_all(s.string(), b[0].string(), b[1].string(), b.get(2, -1).integer());
    };
    t["removeprefix"] = [](Interpreter&, const Value& s, Args& a) -> Value {
      Bound b("removeprefix", a, {"prefix"});
      return s.string().starts_with(b[0].string()) ? s.string().substr(b[0].string().size()) : s.string();
    };
    t["removesuffix"] = [](Interpreter&, const Value& s, Args& a) -> Value {
      Bound b("removesuffix", a, {"suffix"});
      return s.string().ends_with(b[0].string()) ? s.string().substr(0, s.string().size() - b[0].string().size())
                                                 : s.string();
    };
    t["join"] = [](Interpreter&, const Value& s, Args& a) -> Value {
      Bound b("join", a, {"iterable"});
      std::string out;
      bool first = true;
      for (const Value& part : b[0].walk()) {
        if (!std::exchange(first, false)) out += s.string();
        if (!part.is_string()) throw JinjaError("sequence item: expected str instance, {} found", part.type_name());
        out += part.string();
        Budget::step();
        Budget::fit(out.size());
      }
      return out;
    };
    t["center"] = [](Interpreter&, const Value& s, Args& a) -> Value {
      Bound b("center", a, {"width", "fillchar"});
      return padded(s.string(), b[0].integer(), b.get(1, " ").string(), 'c');
    };
    t["ljust"] = [](Interpreter&, const Value& s, Args& a) -> Value {
      Bound b("ljust", a, {"width", "fillchar"});
      return padded(s.string(), b[0].integer(), b.get(1, " ").string(), 'l');
    };
    t["rjust"] = [](Interpreter&, const Value& s, Args& a) -> Value {
      Bound b("rjust", a, {"width", "fillchar"});
      return padded(s.string(), b[0].integer(), b.get(1, " ").string(), 'r');
    };
    t["zfill"] = [](Interpreter&, const Value& s, Args& a) -> Value {
      const int64_t width = std::max<int64_t>(Bound("zfill", a, {"width"})[0].integer(), 0);
      const bool sign = s.string().starts_with("-") || s.string().starts_with("+");
      return s.string().substr(0, sign) + padded(s.string().substr(sign), width - sign, "0", 'r');
    };
    t["expandtabs"] = [](Interpreter&, const Value& s, Args& a) -> Value {
      const int64_t size = Bound("expandtabs", a, {"tabsize"}).get(0, 8).integer();
      std::string out;
      int64_t column = 0;
      for (std::string_view c : characters(s.string())) {
        if (c == "\t") {
          const int64_t spaces = size > 0 ? size - column % size : 0;
          Budget::fit(out.size() + static_cast<size_t>(spaces));
          out.append(static_cast<size_t>(spaces), ' ');
          column += spaces;
        } else {
          out += c;
          column = c == "\n" || c == "\r" ? 0 : column + 1;
        }
      }
      return out;
    };
    t["format"] = [](Interpreter& run, const Value& s, Args& a) -> Value { return brace_format(run, s.string(), a); };
    t["isspace"] = [](Interpreter&, const Value& s, Args&) -> Value {
      const auto all = characters(s.string());
      return !all.empty() && std::all_of(all.begin(), all.end(), is_python_space);
    };
    t["isalpha"] = [](Interpreter&, const Value& s, Args&) -> Value {
      return every(s.string(), [](UChar32 c) { return u_isalpha(c); });
    };
    t["isdigit"] = [](Interpreter&, const Value& s, Args&) -> Value {
      return every(s.string(), [](UChar32 c) {
        const int32_t type = u_getIntPropertyValue(c, UCHAR_NUMERIC_TYPE);
        return type == U_NT_DECIMAL || type == U_NT_DIGIT;
      });
    };
    t["isdecimal"] = [](Interpreter&, const Value& s, Args&) -> Value {
      return every(s.string(), [](UChar32 c) { return u_isdigit(c); });
    };
    t["isnumeric"] = [](Interpreter&, const Value& s, Args&) -> Value {
      return every(s.string(), [](UChar32 c) { return u_getNumericValue(c) != U_NO_NUMERIC_VALUE; });
    };
    t["isalnum"] = [](Interpreter&, const Value& s, Args&) -> Value {
      return every(s.string(), [](UChar32 c) { return u_isalpha(c) || u_getNumericValue(c) != U_NO_NUMERIC_VALUE; });
    };
    t["isascii"] = [](Interpreter&, const Value& s, Args&) -> Value {
      return std::all_of(s.string().begin(), s.string().end(),
                         [](char c) { return static_cast<unsigned char>(c) < 0x80; });
    };
    t["isprintable"] = [](Interpreter&, const Value& s, Args&) -> Value {
      return s.string().empty() || every(s.string(), [](UChar32 c) { return u_isprint(c); });
    };
    t["isupper"] = [](Interpreter&, const Value& s, Args&) -> Value { return is_cased(s.string(), true); };
    t["islower"] = [](Interpreter&, const Value& s, Args&) -> Value { return is_cased(s.string(), false); };
    t["istitle"] = [](Interpreter&, const Value& s, Args&) -> Value {
      return titled(s.string()) == s.string() && change_case(s.string(), false) != s.string();
    };
    t["isidentifier"] = [](Interpreter&, const Value& s, Args&) -> Value {
      const auto all = characters(s.string());
      if (all.empty()) return false;
      for (size_t i = 0; i < all.size(); ++i)
        if (all[i] != "_" && !(i ? u_isIDPart(code_point(all[i])) : u_isIDStart(code_point(all[i])))) return false;
      return true;
    };
    return t;
  }();
  return kTable;
}

const Table& dict_methods() {
  static const Table kTable = [] {
    Table t;
    t["get"] = [](Interpreter&, const Value& d, Args& a) -> Value {
      Bound b("get", a, {"key", "default"});
      const Value* found = d.dict().find(b[0]);
      return found ? *found : b.get(1, {});
    };
    t["keys"] = [](Interpreter&, const Value& d, Args&) -> Value { return Value::list(d.walk()); };
    t["values"] = [](Interpreter&, const Value& d, Args&) -> Value {
      Values out;
      for (const auto& item : d.dict().items()) out.push_back(item.second);
      return Value::list(std::move(out));
    };
    t["items"] = [](Interpreter&, const Value& d, Args&) -> Value {
      Values out;
      for (const auto& item : d.dict().items()) out.push_back(Value::tuple({item.first, item.second}));
      return Value::list(std::move(out));
    };
    t["copy"] = [](Interpreter&, const Value& d, Args&) -> Value { return d; };
    return t;
  }();
  return kTable;
}

const Table& sequence_methods() {
  static const Table kTable = [] {
    Table t;
    t["index"] = [](Interpreter&, const Value& s, Args& a) -> Value {
      Bound b("index", a, {"value", "start", "stop"});
      const auto size = static_cast<int64_t>(s.items().size());
      auto place = [&](size_t at, int64_t otherwise) {
        const int64_t index = b.get(at, otherwise).integer();
        return std::clamp<int64_t>(index < 0 ? index + size : index, 0, size);
      };
      for (int64_t i = place(1, 0); i < place(2, size); ++i)
        if (s.items()[static_cast<size_t>(i)].same(b[0])) return i;
      throw JinjaError("{} is not in list", b[0].repr());
    };
    t["count"] = [](Interpreter&, const Value& s, Args& a) -> Value {
      Bound b("count", a, {"value"});
      return std::count_if(s.items().begin(), s.items().end(), [&](const Value& v) { return v.same(b[0]); });
    };
    t["copy"] = [](Interpreter&, const Value& s, Args&) -> Value { return s; };
    return t;
  }();
  return kTable;
}

const Table& float_methods() {
  static const Table kTable = {{"is_integer", [](Interpreter&, const Value& v, Args&) -> Value {
                                  return std::floor(v.number()) == v.number();
                                }}};
  return kTable;
}

const Table* methods_of(const Value& of) {
  if (of.is_string()) return &string_methods();
  if (of.is_dict()) return &dict_methods();
  if (of.is_sequence()) return &sequence_methods();
  if (of.is_float() || of.is_int()) return &float_methods();
  return nullptr;
}

// Returns whether the method would change the value. The sandbox forbids such methods.
bool changes(const Value& of, const std::string& name) {
  static const std::initializer_list<std::string_view> kList = {"append", "extend",  "insert", "pop",
                                                                "remove", "reverse", "sort",   "clear"};
  static const std::initializer_list<std::string_view> kDict = {"update", "pop", "popitem", "setdefault", "clear"};
  const auto& names = of.is_dict() ? kDict : kList;
  return (of.is_dict() || of.is_list()) && std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

int64_t word_count(std::string_view text) {
  int64_t count = 0;
  bool inside = false;
  for (std::string_view c : characters(text)) {
    const UChar32 code = code_point(c);
    const bool word = u_isalpha(code) || u_getNumericValue(code) != U_NO_NUMERIC_VALUE || code == '_';
    count += word && !inside;
    inside = word;
  }
  return count;
}

bool is_python_space(std::string_view character) {
  const UChar32 code = code_point(character);
  return (code >= 0x09 && code <= 0x0d) || (code >= 0x1c && code <= 0x1f) || code == 0x85 ||
         u_charType(code) == U_SPACE_SEPARATOR || code == 0x2028 || code == 0x2029;
}

std::string strip(std::string_view text, std::optional<std::string_view> set, bool left, bool right) {
  const auto all = characters(text);
  const auto wanted = set ? characters(*set) : std::vector<std::string_view>();
  if (set) charge_search(text, *set);
  auto drop = [&](std::string_view c) {
    return set ? std::find(wanted.begin(), wanted.end(), c) != wanted.end() : is_python_space(c);
  };
  size_t first = 0, last = all.size();
  while (left && first < last && drop(all[first])) ++first;
  while (right && last > first && drop(all[last - 1])) --last;
  if (first == last) return "";
  return {all[first].data(), all[last - 1].data() + all[last - 1].size()};
}

std::string padded(const std::string& text, int64_t width, const std::string& fill, char where) {
  const auto length = static_cast<int64_t>(character_count(text));
  if (width <= length) return text;
  if (character_count(fill) != 1) throw JinjaError("The fill character must be exactly one character long");
  Budget::fit(static_cast<size_t>(width));
  const int64_t total = width - length;
  // If both the padding and the width are odd, Python's center puts the extra character on the left.
  const int64_t left = where == 'l' ? 0 : where == 'r' ? total : total / 2 + (total & width & 1);
  std::string out;
  for (int64_t i = 0; i < left; ++i) out += fill;
  out += text;
  for (int64_t i = left; i < total; ++i) out += fill;
  return out;
}

std::string change_case(std::string_view text, bool upper) {
  if (std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; })) {
    std::string out(text);
    for (char& c : out)
      c = static_cast<char>(upper ? std::toupper(static_cast<unsigned char>(c))
                                  : std::tolower(static_cast<unsigned char>(c)));
    return out;
  }
  auto unicode = icu::UnicodeString::fromUTF8(icu::StringPiece(text.data(), static_cast<int32_t>(text.size())));
  if (upper)
    unicode.toUpper(icu::Locale::getRoot());
  else
    unicode.toLower(icu::Locale::getRoot());
  std::string out;
  return unicode.toUTF8String(out);
}

std::string replace_all(std::string_view text, std::string_view from, std::string_view to, int64_t times) {
  std::string out;
  if (from.empty()) {
    for (std::string_view c : characters(text)) {
      if (times != 0) out += to, --times;
      out += c;
    }
    return times != 0 ? out + std::string(to) : out;
  }
  while (times != 0) {
    const size_t found = text.find(from);
    if (found == std::string_view::npos) break;
    out += text.substr(0, found);
    out += to;
    text.remove_prefix(found + from.size());
    --times;
  }
  return out += text;
}

bool has_method(const Value& of, const std::string& name) {
  const Table* table = methods_of(of);
  return table && (table->contains(name) || changes(of, name));
}

Value call_method(Interpreter& run, const Value& of, const std::string& name, Args args) {
  if (changes(of, name))
    throw JinjaError(
        "'{}' would change a value of type '{}', which templates may not do; make a new value, for example with +",
        name, of.type_name());
  of.charge_reading();
  return methods_of(of)->at(name)(run, of, args);
}

}  // namespace fettle::jinja
