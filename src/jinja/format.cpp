// The two ways of formatting in Python: format % values and format.format(...).
#include <algorithm>
#include <cmath>

#include "jinja/builtins.h"

namespace fettle::jinja {
namespace {

// Formats a number or text by Python's format specification: [[fill]align][sign][#][0][width][,][.precision][type].
// With `percent_style`, follows the specification of Python's % operator: [flags][width][.precision]type.
std::string formatted(const Value& value, std::string_view spec, bool percent_style) {
  size_t i = 0;
  std::string fill = " ";
  char align = 0, sign = '-', type = 0;
  bool zero = false, comma = false, alternate = false;
  auto is_align = [](char c) { return c == '<' || c == '>' || c == '^' || c == '='; };
  if (percent_style) {
    for (; i < spec.size() && std::string_view("-+ #0").find(spec[i]) != std::string_view::npos; ++i) {
      if (spec[i] == '-') align = '<';
      if (spec[i] == '+' || spec[i] == ' ') sign = spec[i];
      if (spec[i] == '0') zero = true;
      if (spec[i] == '#') alternate = true;
    }
  } else {
    const size_t first = character_range(spec, 0, 1).size();
    if (spec.size() > first && is_align(spec[first])) {
      fill = std::string(spec.substr(0, first));
      align = spec[first];
      i = first + 1;
    } else if (!spec.empty() && is_align(spec[0])) {
      align = spec[i++];
    }
    if (i < spec.size() && (spec[i] == '+' || spec[i] == '-' || spec[i] == ' ')) sign = spec[i++];
    if (i < spec.size() && spec[i] == '#') alternate = true, ++i;
    if (i < spec.size() && spec[i] == '0') zero = true, ++i;
  }
  auto number = [&](int64_t otherwise) {
    int64_t out = otherwise;
    for (; i < spec.size() && std::isdigit(static_cast<unsigned char>(spec[i])); ++i)
      out = std::min<int64_t>((out < 0 ? 0 : out) * 10 + (spec[i] - '0'), 1'000'000'000);
    return out;
  };
  const int64_t width = number(0);
  if (i < spec.size() && spec[i] == ',') comma = true, ++i;
  int64_t precision = -1;
  if (i < spec.size() && spec[i] == '.') {
    ++i;
    precision = number(0);
  }
  if (precision > 10'000) throw JinjaError("precision too big");
  if (i < spec.size()) type = spec[i++];
  if (i != spec.size()) throw JinjaError("Invalid format specifier '{}'", spec);

  std::string digits, prefix;
  const bool text = type == 's' || (type == 0 && !value.is_number()) || type == 'r' || (type == 0 && value.is_bool());
  if (text) {
    digits = type == 'r' ? value.repr() : value.str();
    if (precision >= 0) digits = std::string(character_range(digits, 0, static_cast<size_t>(precision)));
    if (align == 0) align = percent_style ? '>' : '<';
  } else if (type == 'c') {
    digits = value.str();
  } else {
    if (!value.is_number())
      throw JinjaError("Unknown format code '{}' for object of type '{}'", type ? type : 'd', value.type_name());
    const bool whole = std::string_view("dixXobu").find(type) != std::string_view::npos && type;
    const double real = value.number();
    const bool negative = std::signbit(real) && real != 0;
    if (whole || (type == 0 && !value.is_float())) {
      if (value.is_float() && !(std::fabs(real) < 9e18)) throw JinjaError("an integer needs more than 64 bits");
      int64_t integer = value.is_float() && percent_style ? static_cast<int64_t>(real) : value.integer();
      const uint64_t size = integer < 0 ? 0 - static_cast<uint64_t>(integer) : static_cast<uint64_t>(integer);
      digits = type == 'x'   ? fmt::format("{:x}", size)
               : type == 'X' ? fmt::format("{:X}", size)
               : type == 'o' ? fmt::format("{:o}", size)
               : type == 'b' ? fmt::format("{:b}", size)
                             : std::to_string(size);
      if (alternate && type)
        prefix = type == 'x' ? "0x" : type == 'X' ? "0X" : type == 'o' ? "0o" : type == 'b' ? "0b" : "";
    } else {
      const double size = std::fabs(real);
      const int places = precision < 0 ? 6 : static_cast<int>(precision);
      if (type == 'f' || type == 'F')
        digits = fmt::format("{:.{}f}", size, places);
      else if (type == 'e' || type == 'E')
        digits = fmt::format("{:.{}e}", size, places);
      else if (type == '%')
        digits = fmt::format("{:.{}f}%", size * 100, places);
      else if (type == 0 && precision < 0)
        digits = python_float(size);
      else if (type == 'g' || type == 'G' || type == 0)
        digits = fmt::format("{:.{}g}", size, std::max(places, 1));
      else
        throw JinjaError("Unknown format code '{}'", type);
    }
    if (comma) {
      const size_t whole_part = std::min(digits.find_first_not_of("0123456789"), digits.size());
      for (size_t at = whole_part; at > 3; at -= 3) digits.insert(at - 3, ",");
    }
    prefix = (negative ? "-" : sign == '+' ? "+" : sign == ' ' ? " " : "") + prefix;
    if (align == 0) align = zero ? '=' : '>';
    if (zero && align == '=') fill = "0";
  }
  const int64_t missing = width - static_cast<int64_t>(character_count(prefix) + character_count(digits));
  if (missing <= 0) return prefix + digits;
  if (align == '=') return prefix + padded(digits, width - static_cast<int64_t>(prefix.size()), fill, 'r');
  if (align == '^') {
    std::string left;
    for (int64_t n = 0; n < missing / 2; ++n) left += fill;
    return padded(left + prefix + digits, width, fill, 'l');
  }
  return padded(prefix + digits, width, fill, align == '<' ? 'l' : 'r');
}

}  // namespace

std::string html_escaped(std::string_view text) {
  std::string out;
  for (char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&#34;"; break;
      case '\'': out += "&#39;"; break;
      default: out += c;
    }
  }
  return out;
}

std::string percent_format(const std::string& format, const Value& values) {
  const bool many = values.is_tuple();
  size_t next = 0;
  std::string out;
  auto take = [&]() -> Value {
    if (!many && next++ == 0) return values;
    if (!many || next >= values.items().size()) throw JinjaError("not enough arguments for format string");
    return values.items()[next++];
  };
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%') {
      out += format[i];
      continue;
    }
    if (++i >= format.size()) throw JinjaError("incomplete format");
    if (format[i] == '%') {
      out += '%';
      continue;
    }
    std::optional<Value> named;
    if (format[i] == '(') {
      const size_t end = format.find(')', i);
      if (end == std::string::npos) throw JinjaError("incomplete format key");
      const Value* found = values.dict().find_name(std::string_view(format).substr(i + 1, end - i - 1));
      if (!found) throw JinjaError("the format's key '{}' is missing", format.substr(i + 1, end - i - 1));
      named = *found;
      i = end + 1;
    }
    const size_t end = format.find_first_not_of("-+ #0123456789.", i);
    if (end == std::string::npos) throw JinjaError("incomplete format");
    out += formatted(named ? *named : take(), std::string_view(format).substr(i, end - i + 1), true);
    Budget::fit(out.size());
    i = end;
  }
  if (many ? next < values.items().size() : (next == 0 && !values.is_dict() && !values.is_list()))
    throw JinjaError("not all arguments converted during string formatting");
  return out;
}

std::string brace_format(Interpreter& run, const std::string& format, const Args& args) {
  std::string out;
  size_t automatic = 0;
  for (size_t i = 0; i < format.size(); ++i) {
    const char c = format[i];
    if (c != '{' && c != '}') {
      out += c;
      continue;
    }
    if (i + 1 < format.size() && format[i + 1] == c) {
      out += c;
      ++i;
      continue;
    }
    const size_t end = c == '{' ? format.find('}', i) : std::string::npos;
    if (end == std::string::npos) throw JinjaError("Single '{}' encountered in format string", c);
    std::string field = format.substr(i + 1, end - i - 1), spec;
    i = end;
    if (field.find('{') != std::string::npos) throw JinjaError("nested fields in a format string are not supported");
    if (const size_t colon = field.find(':'); colon != std::string::npos) {
      spec = field.substr(colon + 1);
      field.resize(colon);
    }
    bool quoted = false;
    if (field.ends_with("!r") || field.ends_with("!s")) {
      quoted = field.back() == 'r';
      field.resize(field.size() - 2);
    }
    const size_t name_end = std::min(field.find_first_of(".["), field.size());
    const std::string name = field.substr(0, name_end);
    Value value;
    if (name.empty() || std::isdigit(static_cast<unsigned char>(name[0]))) {
      const size_t index = name.empty() ? automatic++ : static_cast<size_t>(std::strtoul(name.c_str(), nullptr, 10));
      if (index >= args.positional.size())
        throw JinjaError("Replacement index {} out of range for positional args tuple", index);
      value = args.positional[index];
    } else {
      const auto found =
          std::find_if(args.named.begin(), args.named.end(), [&](const auto& n) { return n.first == name; });
      if (found == args.named.end()) throw JinjaError("the format's field '{}' is missing", name);
      value = found->second;
    }
    for (size_t at = name_end; at < field.size();) {
      if (field[at] == '.') {
        const size_t stop = std::min(field.find_first_of(".[", at + 1), field.size());
        value = run.attribute(value, field.substr(at + 1, stop - at - 1));
        at = stop;
      } else {
        const size_t stop = field.find(']', at);
        if (stop == std::string::npos) throw JinjaError("Missing ']' in format string");
        const std::string key = field.substr(at + 1, stop - at - 1);
        const bool index = !key.empty() && std::all_of(key.begin(), key.end(), [](char d) {
          return std::isdigit(static_cast<unsigned char>(d));
        });
        value =
            run.item(value, index ? Value(static_cast<int64_t>(std::strtoll(key.c_str(), nullptr, 10))) : Value(key));
        at = stop + 1;
      }
    }
    if (quoted) value = value.repr();
    out += formatted(value, spec, false);
    Budget::fit(out.size());
  }
  return out;
}

}  // namespace fettle::jinja
