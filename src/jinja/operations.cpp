// Python's operators: arithmetic, comparison, slices.
#include <algorithm>
#include <cmath>

#include "jinja/builtins.h"
#include "jinja/interpreter.h"

namespace fettle::jinja {
namespace {

[[noreturn]] void bad_operands(const std::string& op, const Value& left, const Value& right) {
  left.defined();
  right.defined();
  throw JinjaError("unsupported operand type(s) for {}: '{}' and '{}'", op, left.type_name(), right.type_name());
}

int64_t checked(bool overflow, const int64_t& value) {
  if (overflow) throw JinjaError("an integer needs more than 64 bits");
  return value;
}

int64_t integer_operation(const std::string& op, int64_t a, int64_t b) {
  int64_t result = 0;
  if (op == "+") return checked(__builtin_add_overflow(a, b, &result), result);
  if (op == "-") return checked(__builtin_sub_overflow(a, b, &result), result);
  if (op == "*") return checked(__builtin_mul_overflow(a, b, &result), result);
  if (op == "**") {
    bool overflow = false;
    result = 1;
    for (int64_t i = 0; i < b && !overflow; ++i) {
      overflow = __builtin_mul_overflow(result, a, &result);
      if (result == 0 || (a == 1) || (a == -1 && i > 64)) {
        if (a == -1) result = b % 2 ? -1 : 1;
        break;
      }
    }
    return checked(overflow, result);
  }
  if (b == 0) throw JinjaError("{}", op == "%" ? "integer modulo by zero" : "integer division by zero");
  if (a == INT64_MIN && b == -1) return op == "%" ? 0 : checked(true, 0);
  const int64_t quotient = a / b, rest = a % b;
  const bool other_sign = rest != 0 && (rest < 0) != (b < 0);
  return op == "%" ? rest + (other_sign ? b : 0) : quotient - (other_sign ? 1 : 0);
}

Value float_operation(const std::string& op, double a, double b) {
  if (op == "+") return a + b;
  if (op == "-") return a - b;
  if (op == "*") return a * b;
  if (op == "**") return std::pow(a, b);
  if (b == 0) throw JinjaError("{}", op == "%" ? "float modulo by zero" : "division by zero");
  if (op == "/") return a / b;
  if (op == "//") return std::floor(a / b);
  const double rest = std::fmod(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

}  // namespace

Value Interpreter::slice(const Value& of, const Node& range) {
  auto bound = [&](size_t index, int64_t otherwise) {
    if (!range.children[index]) return otherwise;
    const Value value = evaluate(*range.children[index]);
    return value.is_none() ? otherwise : value.integer();
  };
  // Limits the step to 2^40. This changes no result: a step longer than the sequence takes only the first element.
  const int64_t stride = std::clamp<int64_t>(bound(2, 1), -(int64_t{1} << 40), int64_t{1} << 40);
  if (stride == 0) throw JinjaError("slice step cannot be zero");
  if (!of.is_sequence() && !of.is_string())
    return Value::undefined(fmt::format("'{}' object is not subscriptable", of.type_name()));
  const auto size = static_cast<int64_t>(of.length());
  auto clamped = [&](int64_t index) {
    if (index < 0) index += size;
    return stride > 0 ? std::clamp<int64_t>(index, 0, size) : std::clamp<int64_t>(index, -1, size - 1);
  };
  const bool has_first = bound(0, INT64_MIN) != INT64_MIN, has_last = bound(1, INT64_MIN) != INT64_MIN;
  const int64_t first = has_first ? clamped(bound(0, 0)) : stride > 0 ? 0 : size - 1;
  const int64_t last = has_last ? clamped(bound(1, 0)) : stride > 0 ? size : -1;
  Budget::step(static_cast<size_t>(size) / 64);
  if (of.is_string()) {
    if (stride == 1) return character_range(of.string(), static_cast<size_t>(first), static_cast<size_t>(last));
    const auto all = characters(of.string());
    std::string text;
    for (int64_t i = first; stride > 0 ? i < last : i > last; i += stride) text += all[static_cast<size_t>(i)];
    return text;
  }
  Values out;
  for (int64_t i = first; stride > 0 ? i < last : i > last; i += stride)
    out.push_back(of.items()[static_cast<size_t>(i)]);
  return of.is_tuple() ? Value::tuple(std::move(out)) : Value::list(std::move(out));
}

bool Interpreter::compare(const std::string& op, const Value& left, const Value& right) {
  if (op == "==") return left.same(right);
  if (op == "!=") return !left.same(right);
  if (op == "in") return right.contains(left);
  if (op == "not in") return !right.contains(left);
  const bool nan = (left.is_float() && std::isnan(left.number())) || (right.is_float() && std::isnan(right.number()));
  const int order = left.compare(right);
  if (nan) return false;
  if (op == "<") return order < 0;
  if (op == "<=") return order <= 0;
  if (op == ">") return order > 0;
  return order >= 0;
}

Value Interpreter::binary(const std::string& op, const Value& left, const Value& right) {
  if (left.is_number() && right.is_number()) {
    const bool to_float = left.is_float() || right.is_float() || op == "/" || (op == "**" && right.number() < 0);
    if (to_float) return float_operation(op, left.number(), right.number());
    return integer_operation(op, left.integer(), right.integer());
  }
  if (op == "+") {
    if (left.is_string() && right.is_string()) {
      Budget::fit(left.string().size() + right.string().size());
      if (!left.is_markup() && !right.is_markup()) return left.string() + right.string();
      auto escaped = [](const Value& text) { return text.is_markup() ? text.string() : html_escaped(text.string()); };
      return Value::markup(escaped(left) + escaped(right));
    }
    if ((left.is_list() && right.is_list()) || (left.is_tuple() && right.is_tuple())) {
      Values items = left.items();
      Budget::step((items.size() + right.items().size()) / 8);
      items.insert(items.end(), right.items().begin(), right.items().end());
      return left.is_tuple() ? Value::tuple(std::move(items)) : Value::list(std::move(items));
    }
  }
  if (op == "*") {
    const Value& many = left.is_number() ? right : left;
    const Value& times = left.is_number() ? left : right;
    if ((many.is_string() || many.is_sequence()) && (times.is_int() || times.is_bool())) {
      const auto count = static_cast<size_t>(std::max<int64_t>(times.integer(), 0));
      const size_t size = many.is_string() ? many.string().size() : many.items().size() * sizeof(Value);
      if (size > 0) Budget::fit(count > kLongestText / size ? kLongestText + 1 : size * count);
      if (many.is_string()) {
        std::string text = count > 0 ? many.string() : "";
        while (text.size() < size * count) text.append(text, 0, size * count - text.size());
        return text;
      }
      Values items;
      for (size_t i = 0; size > 0 && i < count; ++i)
        items.insert(items.end(), many.items().begin(), many.items().end());
      return many.is_tuple() ? Value::tuple(std::move(items)) : Value::list(std::move(items));
    }
  }
  if (op == "%" && left.is_string()) return percent_format(left.string(), right.defined());
  bad_operands(op, left, right);
}

}  // namespace fettle::jinja
