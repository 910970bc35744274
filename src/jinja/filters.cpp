// Jinja's built-in filters, and tojson as Transformers defines it.
#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>

#include "jinja/builtins.h"

namespace fettle::jinja {
namespace {

using Filter = Value (*)(Interpreter&, const Value&, Args&);

// Returns the part of the value `of` at `path`. The path is a key, an index, or several of these with dots between
// them, such as 'a.b.0'.
Value get_path(Interpreter& run, const Value& of, const Value& path, const std::optional<Value>& otherwise = {}) {
  Value value = of;
  auto one = [&](const Value& key) {
    value = run.item(value, key);
    if (value.is_undefined() && otherwise) value = *otherwise;
  };
  if (!path.is_string()) {
    one(path);
    return value;
  }
  const std::string& text = path.string();
  for (size_t at = 0; at <= text.size();) {
    const size_t stop = std::min(text.find('.', at), text.size());
    const std::string part = text.substr(at, stop - at);
    const bool digits = !part.empty() && std::all_of(part.begin(), part.end(), [](char c) {
      return std::isdigit(static_cast<unsigned char>(c));
    });
    one(digits ? Value(static_cast<int64_t>(std::strtoll(part.c_str(), nullptr, 10))) : Value(part));
    at = stop + 1;
  }
  return value;
}

// Returns the value; if it is a string and `case_sensitive` is false, returns it in lower case. Filters such as
// `sort` ignore case by default.
Value folded(const Value& value, bool case_sensitive) {
  return value.is_string() && !case_sensitive ? Value(change_case(value.string(), false)) : value;
}

void sort_by(Values& items, const std::vector<Value>& keys, bool reverse) {
  std::vector<size_t> order(items.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return reverse ? keys[b].compare(keys[a]) < 0 : keys[a].compare(keys[b]) < 0;
  });
  Values sorted;
  for (size_t i : order) sorted.push_back(items[i]);
  items = std::move(sorted);
}

Value selected(Interpreter& run, const Value& input, Args& args, bool keep, bool by_attribute) {
  if (!input.truth()) return Value::generator({});  // undefined, None and empty values give no items
  size_t first = 0;
  std::optional<Value> path;
  if (by_attribute) {
    if (args.positional.empty()) throw JinjaError("Missing parameter for attribute name");
    path = args.positional[first++];
  }
  std::string test;
  if (args.positional.size() > first) test = args.positional[first++].string();
  Args rest{{args.positional.begin() + static_cast<std::ptrdiff_t>(first), args.positional.end()}, args.named};
  Values out;
  for (const Value& item : input.walk()) {
    Budget::step();
    const Value subject = path ? get_path(run, item, *path) : item;
    if ((test.empty() ? subject.truth() : apply_test(run, test, subject, rest)) == keep) out.push_back(item);
  }
  return Value::generator(std::move(out));
}

Value mapped(Interpreter& run, const Value& input, Args& args) {
  if (!input.truth()) return Value::generator({});  // undefined, None and empty values give no items
  Values out;
  if (args.positional.empty()) {
    std::optional<Value> path, otherwise;
    for (auto& [name, value] : args.named) {
      if (name == "attribute")
        path = value;
      else if (name == "default")
        otherwise = value;
      else
        throw JinjaError("map() has no parameter '{}'", name);
    }
    if (!path) throw JinjaError("map requires a filter argument");
    for (const Value& item : input.walk()) out.push_back(get_path(run, item, *path, otherwise));
  } else {
    const std::string filter = args.positional[0].string();
    const Args rest{{args.positional.begin() + 1, args.positional.end()}, args.named};
    for (const Value& item : input.walk()) {
      Budget::step();
      out.push_back(apply_filter(run, filter, item, rest));
    }
  }
  return Value::generator(std::move(out));
}

Value extreme(Interpreter& run, const Value& input, Args& args, bool largest) {
  Bound bound(largest ? "max" : "min", args, {"case_sensitive", "attribute"});
  const bool case_sensitive = bound.get(0, false).truth();
  std::optional<Value> best, best_key;
  for (const Value& item : input.walk()) {
    const Value key = folded(bound.has(1) ? get_path(run, item, bound[1]) : item, case_sensitive);
    if (best && (largest ? key.compare(*best_key) <= 0 : key.compare(*best_key) >= 0)) continue;
    best = item;
    best_key = key;
  }
  return best ? *best : Value::undefined("No aggregated item, sequence was empty.");
}

Value indented(Interpreter& run, const Value& input, Args& args) {
  Bound bound("indent", args, {"width", "first", "blank"});
  const Value width = bound.get(0, 4);
  const std::string margin =
      width.is_string() ? width.string()
                        : std::string(static_cast<size_t>(std::clamp<int64_t>(width.integer(), 0, 10'000)), ' ');
  const bool first = bound.get(1, false).truth(), blank = bound.get(2, false).truth();
  // splitlines() drops an empty last line; the added newline keeps it.
  Args keep;
  Values lines = call_method(run, input.str() + "\n", "splitlines", keep).walk();
  std::string out;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out += "\n";
    const std::string& line = lines[i].string();
    if (i == 0 ? first : (blank || !line.empty())) out += margin;
    out += line;
    Budget::fit(out.size());
  }
  return out;
}

Value as_json(Interpreter&, const Value& input, Args& args) {
  Bound bound("tojson", args, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ensure_ascii = bound.get(0, false).truth();
  if (bound.has(1) && !bound[1].is_none()) {
    style.indent = 0;
    if (bound[1].is_string())
      style.indent_text = bound[1].string();
    else
      style.indent_text = std::string(static_cast<size_t>(std::clamp<int64_t>(bound[1].integer(), 0, 100)), ' ');
    style.item_separator = ",";
  }
  if (bound.has(2) && !bound[2].is_none()) {
    const Values parts = bound[2].walk();
    if (parts.size() != 2) throw JinjaError("tojson: separators must be two strings");
    style.item_separator = parts[0].string();
    style.key_separator = parts[1].string();
  }
  style.sort_keys = bound.get(3, false).truth();
  std::string text = to_json(input, style);
  return text;
}

// Returns a number without the underscores that Python allows between two digits. With `letters`, letters are digits
// too.
std::string without_underscores(std::string_view text, bool letters) {
  const auto is_digit = [&](size_t at) {
    const auto c = at < text.size() ? static_cast<unsigned char>(text[at]) : '_';
    return (letters ? std::isalnum(c) : std::isdigit(c)) != 0;
  };
  std::string out;
  for (size_t i = 0; i < text.size(); ++i)
    if (text[i] != '_' || i == 0 || !is_digit(i - 1) || !is_digit(i + 1)) out += text[i];
  return out;
}

// Returns what Python's float() makes of a text without white space at its ends; nullopt if it refuses the text.
std::optional<double> real_of(std::string_view text) {
  const std::string digits = without_underscores(text, false);
  // strtod also reads hexadecimal digits and nan(...).
  if (digits.empty() || digits.find_first_of("xX(") != std::string::npos) return std::nullopt;
  char* end = nullptr;
  const double value = std::strtod(digits.c_str(), &end);
  return *end == 0 ? std::optional(value) : std::nullopt;
}

Value to_integer(Interpreter&, const Value& input, Args& args) {
  Bound bound("int", args, {"default", "base"});
  const Value otherwise = bound.get(0, 0);
  const auto base = static_cast<int>(bound.get(1, 10).integer());
  if (input.is_float()) {
    if (!std::isfinite(input.number()) || std::fabs(input.number()) > 9e18) return otherwise;
    return static_cast<int64_t>(input.number());
  }
  if (input.is_large_int()) return input;
  if (input.is_number()) return input.integer();
  if (!input.is_string()) return otherwise;
  const std::string text = strip(input.string(), std::nullopt, true, true), digits = without_underscores(text, true);
  char* end = nullptr;
  errno = 0;
  const int64_t value = std::strtoll(digits.c_str(), &end, base);
  if (!digits.empty() && *end == 0 && errno == 0) return value;
  const auto real = real_of(text);
  return real && std::fabs(*real) < 9e18 ? Value(static_cast<int64_t>(*real)) : otherwise;
}

Value to_real(Interpreter&, const Value& input, Args& args) {
  Bound bound("float", args, {"default"});
  if (input.is_number()) return input.number();
  if (!input.is_string()) return bound.get(0, 0.0);
  const auto real = real_of(strip(input.string(), std::nullopt, true, true));
  return real ? Value(*real) : bound.get(0, 0.0);
}

Value rounded(Interpreter&, const Value& input, Args& args) {
  Bound bound("round", args, {"precision", "method"});
  const std::string method = bound.get(1, "common").string();
  const int64_t places = bound.get(0, 0).integer();
  const double scale = std::pow(10.0, static_cast<double>(places)), value = input.number();
  if (method == "ceil") return std::ceil(value * scale) / scale;
  if (method == "floor") return std::floor(value * scale) / scale;
  if (method == "common" && input.is_int() && places >= 0) return input;
  if (method != "common") throw JinjaError("method must be common, ceil or floor");
  if (places >= 0 && places < 300) {
    // As in Python, rounds the exact decimal value, and a tie goes to the even digit.
    return std::strtod(fmt::format("{:.{}f}", value, places).c_str(), nullptr);
  }
  return std::nearbyint(value * scale) / scale;
}

Value truncated(Interpreter&, const Value& input, Args& args) {
  Bound bound("truncate", args, {"length", "killwords", "end", "leeway"});
  const auto length = static_cast<size_t>(std::max<int64_t>(bound.get(0, 255).integer(), 0));
  const std::string end = bound.get(2, "...").string(), text = input.str();
  const auto leeway = static_cast<size_t>(std::max<int64_t>(bound.get(3, 5).integer(), 0));
  if (character_count(text) <= length + leeway) return text;
  const size_t kept = length - std::min(length, character_count(end));
  std::string cut(character_range(text, 0, kept));
  if (!bound.get(1, false).truth()) cut = cut.substr(0, cut.rfind(' '));
  return cut + end;
}

Value grouped(Interpreter& run, const Value& input, Args& args) {
  Bound bound("groupby", args, {"attribute", "default", "case_sensitive"});
  const bool case_sensitive = bound.get(2, false).truth();
  Values items = input.walk(), keys;
  auto key_of = [&](const Value& item) {
    return get_path(run, item, bound[0], bound.has(1) ? std::optional(bound[1]) : std::nullopt);
  };
  for (const Value& item : items) keys.push_back(folded(key_of(item), case_sensitive));
  sort_by(items, keys, false);
  Values out, group;
  std::optional<Value> key, shown;
  auto flush = [&] {
    if (key) out.push_back(Value::group(*shown, std::move(group)));
    group.clear();
  };
  for (const Value& item : items) {
    const Value next = folded(key_of(item), case_sensitive);
    if (!key || !key->same(next)) {
      flush();
      key = next;
      shown = key_of(item);
    }
    group.push_back(item);
  }
  flush();
  return Value::list(std::move(out));
}

Value batched(Interpreter&, const Value& input, Args& args) {
  Bound bound("batch", args, {"linecount", "fill_with"});
  const auto size = static_cast<size_t>(std::clamp<int64_t>(bound[0].integer(), 1, 1'000'000));
  Values out, line;
  for (const Value& item : input.walk()) {
    if (line.size() == size) out.push_back(Value::list(std::exchange(line, {})));
    line.push_back(item);
  }
  if (!line.empty()) {
    if (bound.has(1) && !bound[1].is_none()) Budget::step(size / 8), line.resize(size, bound[1]);
    out.push_back(Value::list(std::move(line)));
  }
  return Value::generator(std::move(out));
}

Value sliced(Interpreter&, const Value& input, Args& args) {
  Bound bound("slice", args, {"slices", "fill_with"});
  const auto slices = static_cast<size_t>(std::clamp<int64_t>(bound[0].integer(), 1, 100'000));
  const Values items = input.walk();
  const size_t each = items.size() / slices, longer = items.size() % slices;
  Values out;
  size_t at = 0;
  for (size_t s = 0; s < slices; ++s) {
    const size_t count = each + (s < longer);
    Values part(items.begin() + static_cast<std::ptrdiff_t>(at),
                items.begin() + static_cast<std::ptrdiff_t>(at + count));
    at += count;
    if (bound.has(1) && !bound[1].is_none() && longer > 0 && s >= longer) part.push_back(bound[1]);
    out.push_back(Value::list(std::move(part)));
  }
  return Value::generator(std::move(out));
}

std::string url_quoted(std::string_view text, std::string_view kept) {
  std::string out;
  for (char c : text) {
    if (std::isalnum(static_cast<unsigned char>(c)) || kept.find(c) != std::string_view::npos)
      out += c;
    else
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return out;
}

std::string without_tags(const std::string& text) {
  std::string out;
  const size_t no = std::string::npos;
  const size_t end_at = text.rfind('>'), comment_at = text.rfind("-->");
  const size_t last_end = end_at == no ? 0 : end_at, last_comment = comment_at == no ? 0 : comment_at;
  for (size_t at = 0; at < text.size();) {
    if (at <= last_comment && text.compare(at, 4, "<!--") == 0) {
      const size_t end = text.find("-->", at);
      if (end != std::string::npos) {
        at = end + 3;
        continue;
      }
    }
    if (text[at] == '<' && at <= last_end) {
      const size_t end = text.find('>', at);
      if (end != std::string::npos) {
        at = end + 1;
        continue;
      }
    }
    out += text[at++];
  }
  std::string words;
  for (char c : out) {
    const bool space = c == ' ' || (c >= '\t' && c <= '\r');
    if (!space)
      words += c;
    else if (!words.empty() && words.back() != ' ')
      words += ' ';
  }
  if (!words.empty() && words.back() == ' ') words.pop_back();
  return words;
}

const std::map<std::string, Filter>& filters() {
  static const std::map<std::string, Filter> kFilters = [] {
    std::map<std::string, Filter> f;
    f["abs"] = [](Interpreter&, const Value& v, Args&) -> Value {
      if (v.is_float()) return std::fabs(v.number());
      if (v.is_large_int()) return v;
      if (v.integer() == INT64_MIN) throw JinjaError("an integer needs more than 64 bits");
      return std::abs(v.integer());
    };
    f["attr"] = [](Interpreter& run, const Value& v, Args& a) -> Value {
      const std::string name = Bound("attr", a, {"name"})[0].string();
      if (v.is_dict() && !has_method(v, name))
        return Value::undefined(fmt::format("'dict object' has no attribute '{}'", name));
      return run.attribute(v, name);
    };
    f["batch"] = batched;
    f["slice"] = sliced;
    f["capitalize"] = [](Interpreter& run, const Value& v, Args&) -> Value {
      return call_method(run, v.str(), "capitalize", {});
    };
    f["title"] = [](Interpreter&, const Value& v, Args&) -> Value {
      // Unlike in str.title, a word starts only after white space, a dash or an opening bracket.
      std::string out;
      bool begins = true;
      const std::string text = v.str();
      for (std::string_view c : characters(text)) {
        out += change_case(c, begins);
        begins = is_python_space(c) || std::string_view("-([{<").find(c) != std::string_view::npos;
      }
      return out;
    };
    f["center"] = [](Interpreter& run, const Value& v, Args& a) -> Value {
      return call_method(run, v.str(), "center", {{Bound("center", a, {"width"}).get(0, 80)}, {}});
    };
    f["count"] = f["length"] = [](Interpreter&, const Value& v, Args&) -> Value { return v.length(); };
    f["d"] = f["default"] = [](Interpreter&, const Value& v, Args& a) -> Value {
      Bound bound("default", a, {"default_value", "boolean"});
      return v.is_undefined() || (bound.get(1, false).truth() && !v.truth()) ? bound.get(0, "") : v;
    };
    f["dictsort"] = [](Interpreter&, const Value& v, Args& a) -> Value {
      Bound bound("dictsort", a, {"case_sensitive", "by", "reverse"});
      const bool by_value = bound.get(1, "key").string() == "value";
      Values items, keys;
      for (const auto& [key, value] : v.dict().items()) {
        items.push_back(Value::tuple({key, value}));
        keys.push_back(folded(by_value ? value : key, bound.get(0, false).truth()));
      }
      sort_by(items, keys, bound.get(2, false).truth());
      return Value::list(std::move(items));
    };
    f["e"] = f["escape"] = [](Interpreter&, const Value& v, Args&) -> Value {
      if (v.is_markup()) return v;
      const std::string text = html_escaped(v.str());
      return Value::markup(text);
    };
    f["forceescape"] = [](Interpreter&, const Value& v, Args&) -> Value {
      const std::string text = html_escaped(v.str());
      return Value::markup(text);
    };
    f["first"] = [](Interpreter&, const Value& v, Args&) -> Value {
      if (v.is_generator()) {
        Generator& from = v.generator();
        if (from.next < from.items.size()) return from.items[from.next++];
        return Value::undefined("No first item, sequence was empty.");
      }
      const Values all = v.walk();
      return all.empty() ? Value::undefined("No first item, sequence was empty.") : all.front();
    };
    f["last"] = [](Interpreter&, const Value& v, Args&) -> Value {
      if (v.is_generator()) throw JinjaError("'generator' object is not reversible");
      const Values all = v.walk();
      return all.empty() ? Value::undefined("No last item, sequence was empty.") : all.back();
    };
    f["float"] = to_real;
    f["int"] = to_integer;
    f["format"] = [](Interpreter&, const Value& v, Args& a) -> Value {
      if (a.named.empty()) return percent_format(v.str(), Value::tuple(a.positional));
      Dict named;
      for (auto& [name, value] : a.named) named.set(name, value);
      return percent_format(v.str(), Value::dict(std::move(named)));
    };
    f["groupby"] = grouped;
    f["indent"] = indented;
    f["items"] = [](Interpreter& run, const Value& v, Args&) -> Value {
      if (v.is_undefined()) return Value::generator({});
      if (!v.is_dict()) throw JinjaError("Can only get item pairs from a mapping.");
      return Value::generator(call_method(run, v, "items", {}).walk());
    };
    f["join"] = [](Interpreter& run, const Value& v, Args& a) -> Value {
      Bound bound("join", a, {"d", "attribute"});
      const std::string separator = bound.get(0, "").str();
      std::string out;
      bool first = true;
      for (const Value& item : v.walk()) {
        if (!std::exchange(first, false)) out += separator;
        const std::string part = (bound.has(1) ? get_path(run, item, bound[1]) : item).str();
        out += part;
        Budget::step();
        Budget::fit(out.size());
      }
      return out;
    };
    f["list"] = [](Interpreter&, const Value& v, Args&) -> Value {
      Values all = v.walk();
      return Value::list(std::move(all));
    };
    f["lower"] = [](Interpreter&, const Value& v, Args&) -> Value { return change_case(v.str(), false); };
    f["upper"] = [](Interpreter&, const Value& v, Args&) -> Value { return change_case(v.str(), true); };
    f["map"] = mapped;
    f["max"] = [](Interpreter& run, const Value& v, Args& a) { return extreme(run, v, a, true); };
    f["min"] = [](Interpreter& run, const Value& v, Args& a) { return extreme(run, v, a, false); };
    f["pprint"] = [](Interpreter&, const Value& v, Args&) -> Value { return v.repr(); };
    f["select"] = [](Interpreter& run, const Value& v, Args& a) { return selected(run, v, a, true, false); };
    f["reject"] = [](Interpreter& run, const Value& v, Args& a) { return selected(run, v, a, false, false); };
    f["selectattr"] = [](Interpreter& run, const Value& v, Args& a) { return selected(run, v, a, true, true); };
    f["rejectattr"] = [](Interpreter& run, const Value& v, Args& a) { return selected(run, v, a, false, true); };
    f["replace"] = [](Interpreter& run, const Value& v, Args& a) -> Value {
      Bound bound("replace", a, {"old", "new", "count"});
      Args args{{bound[0].str(), bound[1].str()}, {}};
      if (bound.has(2) && !bound[2].is_none()) args.positional.push_back(bound[2]);
      return call_method(run, v.str(), "replace", std::move(args));
    };
    f["reverse"] = [](Interpreter&, const Value& v, Args&) -> Value {
      if (v.is_string()) {
        const auto all = characters(v.string());
        std::string out;
        for (auto c = all.rbegin(); c != all.rend(); ++c) out += *c;
        return out;
      }
      Values all = v.walk();
      std::reverse(all.begin(), all.end());
      return Value::generator(std::move(all));
    };
    f["round"] = rounded;
    f["safe"] = [](Interpreter&, const Value& v, Args&) -> Value { return Value::markup(v.str()); };
    f["string"] = [](Interpreter&, const Value& v, Args&) -> Value { return v.is_markup() ? v : Value(v.str()); };
    f["sort"] = [](Interpreter& run, const Value& v, Args& a) -> Value {
      Bound bound("sort", a, {"reverse", "case_sensitive", "attribute"});
      const bool case_sensitive = bound.get(1, false).truth();
      // Commas separate several attributes.
      Values items = v.walk(), keys, paths;
      if (bound.has(2) && bound[2].is_string()) {
        Args comma{{","}, {}};
        paths = call_method(run, bound[2], "split", comma).items();
      } else if (bound.has(2) && !bound[2].is_none()) {
        paths = {bound[2]};
      }
      Budget::step(items.size());
      for (const Value& item : items) {
        Values parts;
        for (const Value& path : paths) parts.push_back(folded(get_path(run, item, path), case_sensitive));
        keys.push_back(paths.empty() ? folded(item, case_sensitive) : Value::list(std::move(parts)));
      }
      sort_by(items, keys, bound.get(0, false).truth());
      return Value::list(std::move(items));
    };
    f["striptags"] = [](Interpreter&, const Value& v, Args&) -> Value { return without_tags(v.str()); };
    f["sum"] = [](Interpreter& run, const Value& v, Args& a) -> Value {
      Bound bound("sum", a, {"attribute", "start"});
      Value total = bound.get(1, 0);
      for (const Value& item : v.walk()) {
        const Value part = bound.has(0) && !bound[0].is_none() ? get_path(run, item, bound[0]) : item;
        total = run.binary("+", total, part);
      }
      return total;
    };
    f["tojson"] = as_json;
    f["trim"] = [](Interpreter& run, const Value& v, Args& a) -> Value {
      Bound bound("trim", a, {"chars"});
      Args args;
      if (bound.has(0)) args.positional.push_back(bound[0]);
      const Value text = call_method(run, v.str(), "strip", std::move(args));
      return v.is_markup() ? Value::markup(text.string()) : text;
    };
    f["truncate"] = truncated;
    f["unique"] = [](Interpreter& run, const Value& v, Args& a) -> Value {
      Bound bound("unique", a, {"case_sensitive", "attribute"});
      Values out;
      Dict seen;
      for (const Value& item : v.walk()) {
        Budget::step();
        const Value key = folded(bound.has(1) ? get_path(run, item, bound[1]) : item, bound.get(0, false).truth());
        if (seen.find(key)) continue;
        seen.set(key, true);
        out.push_back(item);
      }
      return Value::generator(std::move(out));
    };
    f["urlencode"] = [](Interpreter&, const Value& v, Args&) -> Value {
      if (!v.is_dict()) return url_quoted(v.str(), "_.-~/");
      std::string out;
      auto quoted = [](const Value& part) {
        const std::string text = url_quoted(part.str(), "_.-~ ");
        return replace_all(text, " ", "+", -1);
      };
      for (const auto& [key, value] : v.dict().items())
        out += (out.empty() ? "" : "&") + quoted(key) + "=" + quoted(value);
      return out;
    };
    f["wordcount"] = [](Interpreter&, const Value& v, Args&) -> Value { return word_count(v.str()); };
    return f;
  }();
  return kFilters;
}

}  // namespace

bool has_filter(const std::string& name) {
  return filters().contains(name);
}

Value apply_filter(Interpreter& run, const std::string& name, const Value& input, Args args) {
  const auto found = filters().find(name);
  if (found == filters().end()) throw JinjaError("No filter named '{}'", name);
  Budget::step();
  input.charge_reading();
  return found->second(run, input, args);
}

}  // namespace fettle::jinja
