// Defines the built-in functions, filters, tests and methods of Jinja and Transformers.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "jinja/interpreter.h"

namespace fettle::jinja {

// The arguments of one call, by parameter name. The constructor throws JinjaError for too many or unknown arguments.
class Bound {
 public:
  Bound(std::string_view what, Args& args, std::initializer_list<std::string_view> parameters);
  bool has(size_t index) const { return values_[index].has_value(); }
  const Value& operator[](size_t index) const;  // throws JinjaError when the argument is missing
  Value get(size_t index, Value otherwise) const { return values_[index].value_or(std::move(otherwise)); }

 private:
  std::string_view what_;
  std::vector<std::string_view> parameters_;
  std::vector<std::optional<Value>> values_;
};

// Returns the global function `name`: range, dict, namespace, cycler, joiner, raise_exception or strftime_now. Returns
// nullopt for any other name.
std::optional<Value> find_global(const std::string& name);

// apply_filter and apply_test throw JinjaError for an unknown name.
Value apply_filter(Interpreter& run, const std::string& name, const Value& input, Args args);
bool apply_test(Interpreter& run, const std::string& name, const Value& input, Args args);
bool has_filter(const std::string& name);
bool has_test(const std::string& name);

// The methods of str, list, tuple, dict, int and float. has_method is also true for methods that change the value, but
// call_method throws JinjaError for them.
bool has_method(const Value& of, const std::string& name);
Value call_method(Interpreter& run, const Value& of, const std::string& name, Args args);

// Sets an attribute of a namespace. Returns false for any other value, because templates can change only namespaces.
bool set_attribute(const Value& of, const std::string& name, Value value);
void clear_attributes(Object& object);  // does nothing if `object` is not a namespace

// The next two functions return the results of Python's `format % values` and `format.format(...)`.
std::string percent_format(const std::string& format, const Value& values);
std::string brace_format(Interpreter& run, const std::string& format, const Args& args);

// Removes the characters in `set` from the ends of `text` that `left` and `right` select. If `set` is nullopt, removes
// white space.
std::string strip(std::string_view text, std::optional<std::string_view> set, bool left, bool right);
// Pads `text` to `width` characters and aligns it: 'l' left, 'r' right, 'c' centred.
std::string padded(const std::string& text, int64_t width, const std::string& fill, char where);
std::string html_escaped(std::string_view text);
std::string change_case(std::string_view text, bool upper);
std::string replace_all(std::string_view text, std::string_view from, std::string_view to, int64_t times);
int64_t word_count(std::string_view text);  // the number of matches of \w+
bool is_python_space(std::string_view character);

}  // namespace fettle::jinja
