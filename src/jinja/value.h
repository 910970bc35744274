// Defines Value: the value of a Jinja expression. Types, truth, equality, order and repr are the same as in Python.
//
// Lists and dicts never change, because Transformers renders templates in an immutable sandbox. A template can set
// attributes only of namespaces. Text is UTF-8; lengths and indices count code points.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "jinja/budget.h"

namespace fettle::jinja {

class Interpreter;
class Value;

using Values = std::vector<Value>;

class Dict;
class Object;
struct Generator;

class Value {
 public:
  struct Undefined {
    std::string why;  // "'x' is undefined"
  };
  struct None {};
  using String = std::shared_ptr<const std::string>;
  using ListPtr = std::shared_ptr<const Values>;
  struct Tuple {
    ListPtr items;
    bool of_group = false;  // the value has the attributes `grouper` and `list`
  };
  using DictPtr = std::shared_ptr<const Dict>;
  using GeneratorPtr = std::shared_ptr<Generator>;
  using ObjectPtr = std::shared_ptr<Object>;

  Value() : data_(None{}) {}
  Value(bool v) : data_(v) {}
  Value(int64_t v) : data_(v) {}
  Value(int v) : data_(static_cast<int64_t>(v)) {}
  Value(size_t v) : data_(static_cast<int64_t>(v)) {}
  Value(double v) : data_(v) {}
  Value(std::string v) : data_(std::make_shared<const std::string>(std::move(v))) { charge_text(); }
  Value(std::string_view v) : Value(std::string(v)) {}
  Value(const char* v) : Value(std::string(v)) {}
  Value(ObjectPtr v) : data_(std::move(v)) {}
  Value(const void*) = delete;
  // list(), tuple(), group(), dict(), generator(), from_json() and keeping() throw JinjaError for values that are
  // nested too deeply, so that recursive functions cannot overflow the stack.
  static Value undefined(std::string why);
  static Value list(Values items);
  static Value tuple(Values items);
  static Value group(Value grouper, Values members);  // one group of the filter groupby: a tuple
  static Value dict(Dict items);
  static Value generator(Values items);
  static Value from_json(const nlohmann::ordered_json& json, int depth = 0);
  // Returns a value that holds `object`. `parts` are the values that the object refers to. The nesting limit counts the
  // levels of lists and dicts in `parts`.
  static Value keeping(ObjectPtr object, const Values& parts);
  // Returns text that needs no escapes, such as the result of the filters `safe` and `escape`. As in MarkupSafe, other
  // text that is added to it with + is escaped.
  static Value markup(std::string text);

  bool is_undefined() const { return std::holds_alternative<std::shared_ptr<const Undefined>>(data_); }
  bool is_none() const { return std::holds_alternative<None>(data_); }
  bool is_bool() const { return std::holds_alternative<bool>(data_); }
  bool is_int() const { return std::holds_alternative<int64_t>(data_) || is_large_int(); }
  // An integer from 2^63 to 2^64 - 1, which only JSON can contain. It can be printed and compared.
  bool is_large_int() const { return std::holds_alternative<uint64_t>(data_); }
  bool is_float() const { return std::holds_alternative<double>(data_); }
  bool is_string() const { return std::holds_alternative<String>(data_); }
  bool is_markup() const { return markup_; }
  bool is_list() const { return std::holds_alternative<ListPtr>(data_); }
  bool is_tuple() const { return std::holds_alternative<Tuple>(data_); }
  bool is_group() const { return is_tuple() && std::get<Tuple>(data_).of_group; }
  bool is_dict() const { return std::holds_alternative<DictPtr>(data_); }
  bool is_generator() const { return std::holds_alternative<GeneratorPtr>(data_); }
  bool is_object() const { return std::holds_alternative<ObjectPtr>(data_); }
  bool is_number() const { return is_bool() || is_int() || is_float(); }
  bool is_sequence() const { return is_list() || is_tuple(); }

  // string(), items(), dict(), integer() and number() throw JinjaError when the value has another type; integer() also
  // for a large integer. For object(), generator() and why_undefined(), the caller must have checked the type.
  const std::string& string() const;
  const Values& items() const;  // the items of a list or tuple
  const Dict& dict() const;
  Object& object() const;
  int64_t integer() const;  // a bool counts as 0 or 1
  double number() const;
  const std::string& why_undefined() const;
  const Value& defined() const;  // returns this value; throws JinjaError when it is undefined
  Generator& generator() const;

  bool truth() const;
  std::string type_name() const;  // the name in Python: str, int, dict, ...
  std::string str() const;        // the text that a template prints
  std::string repr() const;
  size_t length() const;  // throws JinjaError for a value without length
  // Returns the elements of an iterable value: the keys of a dict, the characters of a string, nothing for an undefined
  // value. After the call, a generator is empty.
  Values walk() const;
  bool same(const Value& other) const;  // Python's ==
  // Returns a negative number, zero or a positive number. Throws JinjaError for types without an order.
  int compare(const Value& other) const;
  bool contains(const Value& element) const;  // true when the element is in this value
  void charge_reading() const;                // charges the budget for reading a whole text

 private:
  std::variant<None, std::shared_ptr<const Undefined>, bool, int64_t, uint64_t, double, String, ListPtr, Tuple, DictPtr,
               GeneratorPtr, ObjectPtr>
      data_;
  std::pair<bool, int64_t> order() const;  // integers have the order of these pairs
  void charge_text() const;
  void hold_all(const Values& parts);
  void hold(const Value& part);  // records that `part` is inside this value

  bool markup_ = false;
  uint16_t depth_ = 0;  // levels of lists and dicts inside this value
};

// The arguments of a call, filter or test.
struct Args {
  Values positional;
  std::vector<std::pair<std::string, Value>> named;
};

// A dict that keeps the order of insertion. Any value that Python can hash may be a key.
class Dict {
 public:
  void set(Value key, Value value);
  const Value* find(const Value& key) const;
  const Value* find_name(std::string_view key) const;
  const std::vector<std::pair<Value, Value>>& items() const { return items_; }
  size_t size() const { return items_.size(); }

 private:
  std::vector<std::pair<Value, Value>> items_;
  std::unordered_map<std::string, size_t> strings_;
  std::unordered_map<std::string, size_t> others_;
};

// A value with attributes, or one that can be called: namespace, macro, loop, function.
class Object {
 public:
  virtual ~Object() = default;
  virtual std::string type_name() const = 0;
  virtual std::optional<Value> attribute(Interpreter& run, const std::string& name);
  virtual bool callable() const { return false; }
  virtual Value call(Interpreter& run, Args args);
};

// A sequence that can be iterated once, like a generator in Python. Its truth value is always true. It has no length.
struct Generator {
  Values items;
  size_t next = 0;
};

// Charges the budget for searching `part` in `text`.
void charge_search(std::string_view text, std::string_view part);

// Returns the code points of a UTF-8 text. In invalid UTF-8, a continuation byte without a first byte also counts as a
// code point.
std::vector<std::string_view> characters(std::string_view text);
size_t character_count(std::string_view text);
// Returns the characters [first, last) of `text`.
std::string_view character_range(std::string_view text, size_t first, size_t last);

std::string python_float(double value);           // repr of a float: 1.0, 1e-05, inf
std::string python_quote(std::string_view text);  // repr of a str
// Settings of json.dumps. With a negative indent, the result is one line. ensure_ascii is false by default, as in
// Transformers.
struct JsonStyle {
  int indent = -1;
  std::string item_separator = ", ", key_separator = ": ", indent_text;
  bool ensure_ascii = false, sort_keys = false;
};
std::string to_json(const Value& value, const JsonStyle& style);

}  // namespace fettle::jinja
