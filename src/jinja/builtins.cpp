#include "jinja/builtins.h"

#include <algorithm>
#include <array>
#include <map>

namespace fettle::jinja {
namespace {

constexpr size_t kLongestTimeFormat = 1000;
constexpr int64_t kLongestRange = 100'000;  // the limit of Jinja's sandbox

using Function = Value (*)(Interpreter&, Args);

class Builtin : public Object {
 public:
  explicit Builtin(Function function) : function_(function) {}
  std::string type_name() const override { return "function"; }
  bool callable() const override { return true; }
  Value call(Interpreter& run, Args args) override { return function_(run, std::move(args)); }

 private:
  Function function_;
};

Dict dict_of(Args& args) {
  Dict out;
  for (const Value& from : args.positional) {
    if (from.is_dict()) {
      for (const auto& [key, value] : from.dict().items()) out.set(key, value);
    } else {
      for (const Value& pair : from.walk()) {
        const Values parts = pair.walk();
        if (parts.size() != 2) throw JinjaError("dict() needs pairs, got {}", pair.repr());
        out.set(parts[0], parts[1]);
      }
    }
  }
  for (auto& [name, value] : args.named) out.set(name, std::move(value));
  return out;
}

// The function dict, which also has the method fromkeys.
class DictFunction : public Builtin {
 public:
  DictFunction() : Builtin([](Interpreter&, Args args) { return Value::dict(dict_of(args)); }) {}
  std::optional<Value> attribute(Interpreter&, const std::string& name) override {
    if (name != "fromkeys") return std::nullopt;
    return Value(std::shared_ptr<Object>(std::make_shared<Builtin>(from_keys)));
  }

 private:
  static Value from_keys(Interpreter&, Args args) {
    Bound bound("fromkeys", args, {"iterable", "value"});
    Dict out;
    for (const Value& key : bound[0].walk()) out.set(key, bound.get(1, {}));
    return Value::dict(std::move(out));
  }
};

class Namespace : public Object {
 public:
  std::string type_name() const override { return "Namespace"; }
  std::optional<Value> attribute(Interpreter&, const std::string& name) override {
    const auto found = values.find(name);
    return found == values.end() ? std::nullopt : std::optional(found->second);
  }
  void set(const std::string& name, Value value) {
    if (name.starts_with("_")) throw JinjaError("a namespace attribute cannot begin with an underscore: '{}'", name);
    values[name] = std::move(value);
  }
  std::map<std::string, Value> values;
};

class Cycler : public Object {
 public:
  explicit Cycler(Values items) : items_(std::move(items)) {}
  std::string type_name() const override { return "Cycler"; }
  std::optional<Value> attribute(Interpreter&, const std::string& name) override;
  Value next() { return items_[at_++ % items_.size()]; }
  void reset() { at_ = 0; }

 private:
  Values items_;
  size_t at_ = 0;
};

// The methods cycler.next and cycler.reset.
class CyclerMethod : public Object {
 public:
  CyclerMethod(Cycler& cycler, bool next) : cycler_(cycler), next_(next) {}
  std::string type_name() const override { return "method"; }
  bool callable() const override { return true; }
  Value call(Interpreter&, Args) override {
    if (next_) return cycler_.next();
    cycler_.reset();
    return {};
  }

 private:
  Cycler& cycler_;
  bool next_;
};

std::optional<Value> Cycler::attribute(Interpreter& run, const std::string& name) {
  if (name == "current") return items_[at_ % items_.size()];
  if (name != "next" && name != "reset") return std::nullopt;
  auto method = std::make_shared<CyclerMethod>(*this, name == "next");
  run.own(method);
  return Value(std::shared_ptr<Object>(method));
}

class Joiner : public Object {
 public:
  explicit Joiner(std::string separator) : separator_(std::move(separator)) {}
  std::string type_name() const override { return "Joiner"; }
  bool callable() const override { return true; }
  Value call(Interpreter&, Args) override {
    if (std::exchange(used_, true)) return separator_;
    return "";
  }

 private:
  std::string separator_;
  bool used_ = false;
};

Value make_range(Interpreter&, Args args) {
  Bound bound("range", args, {"start", "stop", "step"});
  const bool one = !bound.has(1);
  const int64_t first = one ? 0 : bound[0].integer(), last = one ? bound[0].integer() : bound[1].integer();
  const int64_t stride = bound.get(2, 1).integer();
  if (stride == 0) throw JinjaError("range() arg 3 must not be zero");
  const double count = (static_cast<double>(last) - static_cast<double>(first)) / static_cast<double>(stride);
  if (count > kLongestRange) throw JinjaError("a range of more than {} numbers is too long", kLongestRange);
  Values out;
  for (int64_t i = first; stride > 0 ? i < last : i > last;) {
    out.emplace_back(i);
    if (__builtin_add_overflow(i, stride, &i)) break;
  }
  return Value::list(std::move(out));
}

Value make_namespace(Interpreter& run, Args args) {
  auto out = std::make_shared<Namespace>();
  const Dict values = dict_of(args);
  for (const auto& [key, value] : values.items()) out->set(key.string(), value);
  run.own(out);
  return Value(std::shared_ptr<Object>(out));
}

Value raise(Interpreter&, Args args) {
  Bound bound("raise_exception", args, {"message"});
  throw JinjaError("the template rejects the conversation: {}", bound[0].str());
}

Value format_time(Interpreter& run, Args args) {
  Bound bound("strftime_now", args, {"format"});
  const std::tm local = run.now().parts();
  if (bound[0].string().size() > kLongestTimeFormat) throw JinjaError("strftime_now: the format is too long");
  std::string out(256 + 64 * bound[0].string().size(), '\0');
  out.resize(std::strftime(out.data(), std::min<size_t>(out.size(), 1 << 16), bound[0].string().c_str(), &local));
  return out;
}

using Test = bool (*)(Interpreter&, const Value&, Args&);

const Value& only(Args& args, const char* test) {
  if (args.positional.size() != 1 || !args.named.empty())
    throw JinjaError("the test '{}' needs exactly one positional argument; arguments found: {}", test,
                     args.positional.size() + args.named.size());
  return args.positional[0];
}

bool all_cased(const std::string& text, bool upper) {
  return change_case(text, upper) == text && change_case(text, !upper) != text;
}

const std::map<std::string, Test>& tests() {
  static const std::map<std::string, Test> kTests = [] {
    std::map<std::string, Test> t;
    t["defined"] = [](Interpreter&, const Value& v, Args&) { return !v.is_undefined(); };
    t["undefined"] = [](Interpreter&, const Value& v, Args&) { return v.is_undefined(); };
    t["none"] = [](Interpreter&, const Value& v, Args&) { return v.is_none(); };
    t["boolean"] = [](Interpreter&, const Value& v, Args&) { return v.is_bool(); };
    t["true"] = [](Interpreter&, const Value& v, Args&) { return v.is_bool() && v.truth(); };
    t["false"] = [](Interpreter&, const Value& v, Args&) { return v.is_bool() && !v.truth(); };
    t["integer"] = [](Interpreter&, const Value& v, Args&) { return v.is_int(); };
    t["float"] = [](Interpreter&, const Value& v, Args&) { return v.is_float(); };
    t["number"] = [](Interpreter&, const Value& v, Args&) { return v.is_number(); };
    t["string"] = [](Interpreter&, const Value& v, Args&) { return v.is_string(); };
    t["mapping"] = [](Interpreter&, const Value& v, Args&) { return v.is_dict(); };
    t["sequence"] = [](Interpreter&, const Value& v, Args&) {
      return v.is_sequence() || v.is_string() || v.is_dict() || v.is_undefined();
    };
    t["iterable"] = [](Interpreter&, const Value& v, Args&) {
      return v.is_sequence() || v.is_string() || v.is_dict() || v.is_generator() || v.is_undefined();
    };
    t["callable"] = [](Interpreter&, const Value& v, Args&) {
      return v.is_undefined() || (v.is_object() && v.object().callable());
    };
    t["escaped"] = [](Interpreter&, const Value& v, Args&) { return v.is_markup(); };
    t["even"] = [](Interpreter&, const Value& v, Args&) { return v.integer() % 2 == 0; };
    t["odd"] = [](Interpreter&, const Value& v, Args&) { return v.integer() % 2 != 0; };
    t["divisibleby"] = [](Interpreter&, const Value& v, Args& a) {
      const int64_t by = only(a, "divisibleby").integer();
      if (by == 0) throw JinjaError("integer modulo by zero");
      return by == -1 || v.integer() % by == 0;
    };
    t["lower"] = [](Interpreter&, const Value& v, Args&) { return all_cased(v.str(), false); };
    t["upper"] = [](Interpreter&, const Value& v, Args&) { return all_cased(v.str(), true); };
    t["in"] = [](Interpreter&, const Value& v, Args& a) { return only(a, "in").contains(v); };
    t["filter"] = [](Interpreter&, const Value& v, Args&) { return has_filter(v.string()); };
    t["test"] = [](Interpreter&, const Value& v, Args&) { return has_test(v.string()); };
    t["sameas"] = [](Interpreter&, const Value& v, Args& a) {
      return v.type_name() == only(a, "sameas").type_name() && v.same(only(a, "sameas"));
    };
    t["eq"] = t["equalto"] = t["=="] = [](Interpreter&, const Value& v, Args& a) { return v.same(only(a, "eq")); };
    t["ne"] = t["!="] = [](Interpreter&, const Value& v, Args& a) { return !v.same(only(a, "ne")); };
    t["lt"] = t["lessthan"] =
        t["<"] = [](Interpreter&, const Value& v, Args& a) { return v.compare(only(a, "lt")) < 0; };
    t["le"] = t["<="] = [](Interpreter&, const Value& v, Args& a) { return v.compare(only(a, "le")) <= 0; };
    t["gt"] = t["greaterthan"] =
        t[">"] = [](Interpreter&, const Value& v, Args& a) { return v.compare(only(a, "gt")) > 0; };
    t["ge"] = t[">="] = [](Interpreter&, const Value& v, Args& a) { return v.compare(only(a, "ge")) >= 0; };
    return t;
  }();
  return kTests;
}

}  // namespace

Bound::Bound(std::string_view what, Args& args, std::initializer_list<std::string_view> parameters)
    : what_(what), parameters_(parameters), values_(parameters.size()) {
  if (args.positional.size() > values_.size())
    throw JinjaError("{}() takes at most {} argument(s), got {}", what, values_.size(), args.positional.size());
  for (size_t i = 0; i < args.positional.size(); ++i) values_[i] = args.positional[i];
  for (auto& [name, value] : args.named) {
    const auto found = std::find(parameters_.begin(), parameters_.end(), name);
    if (found == parameters_.end()) throw JinjaError("{}() has no parameter '{}'", what, name);
    values_[static_cast<size_t>(found - parameters_.begin())] = value;
  }
}

const Value& Bound::operator[](size_t index) const {
  if (!values_[index]) throw JinjaError("{}() needs the argument '{}'", what_, parameters_[index]);
  return *values_[index];
}

std::optional<Value> find_global(const std::string& name) {
  static const std::map<std::string, Function> kGlobals = {
      {"range", make_range},
      {"namespace", make_namespace},
      {"raise_exception", raise},
      {"strftime_now", format_time},
      {"cycler",
       [](Interpreter& run, Args args) {
         if (args.positional.empty()) throw JinjaError("cycler() needs at least one item");
         auto cycler = std::make_shared<Cycler>(args.positional);
         run.own(cycler);
         return Value::keeping(cycler, args.positional);
       }},
      {"joiner",
       [](Interpreter&, Args args) {
         Bound bound("joiner", args, {"sep"});
         return Value(std::shared_ptr<Object>(std::make_shared<Joiner>(bound.get(0, ", ").str())));
       }},
  };
  if (name == "dict") return Value(std::shared_ptr<Object>(std::make_shared<DictFunction>()));
  const auto found = kGlobals.find(name);
  if (found == kGlobals.end()) return std::nullopt;
  return Value(std::shared_ptr<Object>(std::make_shared<Builtin>(found->second)));
}

bool has_test(const std::string& name) {
  return tests().contains(name);
}

bool apply_test(Interpreter& run, const std::string& name, const Value& input, Args args) {
  const auto found = tests().find(name);
  if (found == tests().end()) throw JinjaError("No test named '{}'", name);
  input.charge_reading();
  return found->second(run, input, args);
}

bool set_attribute(const Value& of, const std::string& name, Value value) {
  if (!of.is_object()) return false;
  auto* target = dynamic_cast<Namespace*>(&of.object());
  if (target) target->set(name, std::move(value));
  return target != nullptr;
}

void clear_attributes(Object& object) {
  if (auto* space = dynamic_cast<Namespace*>(&object)) space->values.clear();
}

}  // namespace fettle::jinja
