#include "jinja/interpreter.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "jinja/builtins.h"

namespace fettle::jinja {
namespace {

class Macro : public Object {
 public:
  Macro(const Node& node, std::shared_ptr<Scope> scope) : node_(node), scope_(std::move(scope)) {}
  std::string type_name() const override { return "Macro"; }
  bool callable() const override { return true; }
  Value call(Interpreter& run, Args args) override { return run.call_macro(node_, scope_, std::move(args)); }
  std::optional<Value> attribute(Interpreter&, const std::string& name) override {
    return name == "name" ? std::optional<Value>(node_.name) : std::nullopt;
  }

 private:
  const Node& node_;
  std::shared_ptr<Scope> scope_;
};

class BoundMethod : public Object {
 public:
  BoundMethod(Value of, std::string name) : of_(std::move(of)), name_(std::move(name)) {}
  std::string type_name() const override { return "builtin_function_or_method"; }
  bool callable() const override { return true; }
  Value call(Interpreter& run, Args args) override { return call_method(run, of_, name_, std::move(args)); }

 private:
  Value of_;
  std::string name_;
};

// The variable `loop`. Takes the elements one by one, so that a loop condition sees changes that the body has made.
class Loop : public Object {
 public:
  using Accept = std::function<bool(const Value&)>;
  Loop(const Node& node, std::shared_ptr<Scope> scope, Values items, Accept accept, int depth)
      : node_(node), scope_(std::move(scope)), items_(std::move(items)), accept_(std::move(accept)), depth_(depth) {}
  std::string type_name() const override { return "LoopContext"; }
  bool callable() const override { return node_.flag; }

  bool advance() {
    if (current_) previous_ = std::move(current_);
    current_ = ahead_ ? std::exchange(ahead_, std::nullopt) : draw();
    if (current_) ++index_;
    return current_.has_value();
  }
  const Value& current() const { return *current_; }

  Value call(Interpreter& run, Args args) override {
    if (!node_.flag) throw JinjaError("the loop must be marked 'recursive' to be called");
    Bound bound("loop", args, {"iterable"});
    return run.render_loop(node_, scope_, bound[0], depth_ + 1);
  }

  std::optional<Value> attribute(Interpreter&, const std::string& name) override {
    if (name == "index") return index_;
    if (name == "index0") return index_ - 1;
    if (name == "first") return index_ == 1;
    if (name == "last") return !peek();
    if (name == "length") return length();
    if (name == "revindex") return length() - index_ + 1;
    if (name == "revindex0") return length() - index_;
    if (name == "depth") return depth_ + 1;
    if (name == "depth0") return depth_;
    if (name == "previtem") return previous_ ? *previous_ : Value::undefined("there is no previous item");
    if (name == "nextitem") return peek() ? *ahead_ : Value::undefined("there is no next item");
    return std::nullopt;
  }

  Value cycle(const Values& values) const {
    if (values.empty()) throw JinjaError("no items for cycling given");
    return values[static_cast<size_t>(index_ - 1) % values.size()];
  }
  bool changed(const Values& values) {
    const Value now = Value::list(values);
    if (last_ && last_->same(now)) return false;
    last_ = now;
    return true;
  }

 private:
  std::optional<Value> draw() {
    while (next_ < items_.size()) {
      const Value& item = items_[next_++];
      if (!accept_ || accept_(item)) return item;
    }
    return std::nullopt;
  }
  bool peek() {
    if (!ahead_) ahead_ = draw();
    return ahead_.has_value();
  }
  int64_t length() {
    if (!accept_) return static_cast<int64_t>(items_.size());
    Values rest;
    while (std::optional<Value> item = draw()) rest.push_back(std::move(*item));
    const int64_t total = index_ + (ahead_ ? 1 : 0) + static_cast<int64_t>(rest.size());
    items_ = std::move(rest);
    next_ = 0;
    accept_ = nullptr;
    // Puts an empty value in the place of each element that was already taken, so that items_.size() is the length of
    // the whole loop.
    items_.insert(items_.begin(), static_cast<size_t>(total) - items_.size(), Value());
    next_ = static_cast<size_t>(index_) + (ahead_ ? 1 : 0);
    return total;
  }

  const Node& node_;
  std::shared_ptr<Scope> scope_;
  Values items_;
  Accept accept_;
  int depth_;
  size_t next_ = 0;
  int64_t index_ = 0;
  std::optional<Value> previous_, current_, ahead_, last_;
};

std::string described(const Value& value) {
  return value.is_none() ? "None" : value.type_name() + " object";
}

}  // namespace

struct Interpreter::Deeper {
  explicit Deeper(Interpreter& run) : run(run) {
    if (++run.depth_ > kDeepest) {
      --run.depth_;
      throw JinjaError("too many nested calls");
    }
  }
  ~Deeper() { --run.depth_; }
  Interpreter& run;
};

Value* Scope::find(const std::string& name) {
  for (auto& [key, value] : variables)
    if (key == name) return &value;
  return nullptr;
}

void Scope::set(const std::string& name, Value value) {
  if (Value* found = find(name))
    *found = std::move(value);
  else
    variables.emplace_back(name, std::move(value));
}

Interpreter::Interpreter(const Tree& tree, const Dict& context, LocalTime now, Limits limits)
    : tree_(tree), context_(context), now_(std::move(now)), scope_(std::make_shared<Scope>()), budget_(limits) {}

Interpreter::~Interpreter() {
  for (auto& scope : captured_) scope->variables.clear();
  for (auto& object : owned_) clear_attributes(*object);
}

void Interpreter::run() {
  execute(tree_.body);
}

void Interpreter::own(std::shared_ptr<Object> object) {
  Budget::charge(256);
  owned_.push_back(std::move(object));
}

void Interpreter::capture_scope() {
  Budget::charge(256 + scope_->variables.size() * sizeof(scope_->variables[0]));
  captured_.push_back(scope_);
}

void Interpreter::write(const std::string& text) {
  Budget::charge(text.size());
  Budget::fit(out_->size() + text.size());
  *out_ += text;
}

template <typename Body>
std::string Interpreter::capture(Body body) {
  std::string text;
  std::string* outer = std::exchange(out_, &text);
  try {
    body();
  } catch (...) {
    out_ = outer;
    throw;
  }
  out_ = outer;
  return text;
}

Interpreter::Flow Interpreter::scoped(const Nodes& body) {
  auto outer = scope_;
  scope_ = std::make_shared<Scope>(Scope{outer, {}});
  const Flow flow = execute(body);
  scope_ = outer;
  return flow;
}

Interpreter::Flow Interpreter::execute(const Nodes& nodes) {
  for (const NodePtr& node : nodes)
    if (const Flow flow = execute(*node); flow != Flow::kNext) return flow;
  return Flow::kNext;
}

Interpreter::Flow Interpreter::execute(const Node& node) {
  Deeper deeper(*this);
  Budget::step();
  line_ = node.line;
  switch (node.kind) {
    case NodeKind::kText: write(node.name); break;
    case NodeKind::kOutput: write(evaluate(*node.children[0]).str()); break;
    case NodeKind::kIf: return execute(evaluate(*node.children[0]).truth() ? node.body : node.otherwise);
    case NodeKind::kFor: return loop(node, evaluate(*node.children[1]), 0);
    case NodeKind::kSet: assign(*node.children[0], evaluate(*node.children[1])); break;
    case NodeKind::kSetBlock: {
      Flow flow = Flow::kNext;
      Value text = capture([&] { flow = scoped(node.body); });
      if (flow != Flow::kNext) return flow;  // Jinja drops the text of a block that ends early
      assign(*node.children[0], node.children[1] ? filtered(*node.children[1], &text) : text);
      break;
    }
    case NodeKind::kMacro:
      capture_scope();
      scope_->set(node.name, std::shared_ptr<Object>(std::make_shared<Macro>(node, scope_)));
      break;
    case NodeKind::kCallBlock:
      capture_scope();
      write(call_node(*node.children[0], std::make_shared<Macro>(node, scope_)).str());
      break;
    case NodeKind::kFilterBlock: {
      Flow flow = Flow::kNext;
      const Value text = capture([&] { flow = scoped(node.body); });
      if (flow != Flow::kNext) return flow;
      write(filtered(*node.children[0], &text).str());
      break;
    }
    case NodeKind::kWith: {
      auto inner = std::make_shared<Scope>(Scope{scope_, {}});
      auto outer = scope_;
      Values values;
      for (size_t i = 1; i < node.children.size(); i += 2) values.push_back(evaluate(*node.children[i]));
      scope_ = inner;
      for (size_t i = 0; i < node.children.size(); i += 2) assign(*node.children[i], values[i / 2]);
      const Flow flow = execute(node.body);
      scope_ = outer;
      return flow;
    }
    case NodeKind::kGeneration: {
      const size_t begin = out_->size();
      const Flow flow = scoped(node.body);
      if (out_ == &text_)
        generated_.emplace_back(begin, out_->size()), Budget::charge(sizeof generated_[0]);
      else
        generated_elsewhere_ = true;
      return flow;
    }
    case NodeKind::kBreak: return Flow::kBreak;
    case NodeKind::kContinue: return Flow::kContinue;
    default: throw JinjaError("found an expression, expected a statement");
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::loop(const Node& node, const Value& over, int depth) {
  auto outer = scope_;
  Loop::Accept accept;
  if (node.children[2])
    accept = [this, &node, outer](const Value& item) {
      auto saved = scope_;
      scope_ = std::make_shared<Scope>(Scope{outer, {}});
      assign(*node.children[0], item);
      const bool keep = evaluate(*node.children[2]).truth();
      scope_ = saved;
      return keep;
    };
  auto state = std::make_shared<Loop>(node, outer, over.walk(), accept, depth);
  const Value shown = Value::keeping(state, {over});
  Flow flow = Flow::kNext;
  bool finished = false;  // as in Jinja, an iteration that break or continue ends does not count
  while (flow != Flow::kBreak && state->advance()) {
    Budget::step();
    scope_ = std::make_shared<Scope>(Scope{outer, {}});
    scope_->set("loop", shown);
    assign(*node.children[0], state->current());
    flow = execute(node.body);
    finished |= flow == Flow::kNext;
  }
  scope_ = outer;
  return finished ? Flow::kNext : scoped(node.otherwise);
}

Value Interpreter::render_loop(const Node& node, const std::shared_ptr<Scope>& scope, const Value& over, int depth) {
  Deeper deeper(*this);
  auto saved = std::exchange(scope_, scope);
  std::string text = capture([&] { loop(node, over, depth); });
  scope_ = saved;
  return text;
}

Value Interpreter::call_macro(const Node& macro, const std::shared_ptr<Scope>& scope, Args args) {
  Deeper deeper(*this);
  const std::string what = macro.name.empty() ? "caller" : macro.name;
  auto inner = std::make_shared<Scope>(Scope{scope, {}});
  auto saved = std::exchange(scope_, inner);
  const size_t parameters = macro.parameters.size();
  if (args.positional.size() > parameters && !macro.uses_varargs)
    throw JinjaError("macro '{}' takes at most {} argument(s)", what, parameters);
  for (size_t i = 0; i < parameters; ++i) {
    const Parameter& parameter = macro.parameters[i];
    auto named = std::find_if(args.named.begin(), args.named.end(), [&](auto& n) { return n.first == parameter.name; });
    if (i < args.positional.size()) {
      inner->set(parameter.name, args.positional[i]);
    } else if (named != args.named.end()) {
      inner->set(parameter.name, named->second);
      args.named.erase(named);
    } else if (parameter.otherwise) {
      inner->set(parameter.name, evaluate(*parameter.otherwise));
    } else {
      inner->set(parameter.name, Value::undefined(fmt::format("parameter '{}' was not provided", parameter.name)));
    }
  }
  Dict rest;
  for (auto& [name, value] : args.named) {
    if (name == "caller" && macro.uses_caller)
      inner->set("caller", value);
    else if (macro.uses_kwargs)
      rest.set(name, value);
    else
      throw JinjaError("macro '{}' takes no keyword argument '{}'", what, name);
  }
  if (macro.uses_caller && !inner->find("caller")) inner->set("caller", Value::undefined("No caller defined"));
  if (macro.uses_kwargs) inner->set("kwargs", Value::dict(std::move(rest)));
  if (macro.uses_varargs) {
    const auto extra = static_cast<std::ptrdiff_t>(std::min(parameters, args.positional.size()));
    inner->set("varargs", Value::tuple({args.positional.begin() + extra, args.positional.end()}));
  }
  std::string text = capture([&] { execute(macro.body); });
  scope_ = saved;
  return text;
}

void Interpreter::assign(const Node& target, Value value) {
  if (target.kind == NodeKind::kName) {
    scope_->set(target.name, std::move(value));
  } else if (target.kind == NodeKind::kAttribute) {
    if (!set_attribute(lookup(target.children[0]->name), target.name, std::move(value)))
      throw JinjaError("cannot assign attribute '{}': only namespaces can be changed", target.name);
  } else {
    const Values parts = value.defined().walk();
    if (parts.size() != target.children.size())
      throw JinjaError("cannot unpack {} values into {} names", parts.size(), target.children.size());
    for (size_t i = 0; i < parts.size(); ++i) assign(*target.children[i], parts[i]);
  }
}

Value Interpreter::lookup(const std::string& name) {
  for (Scope* scope = scope_.get(); scope; scope = scope->parent.get())
    if (Value* found = scope->find(name)) return *found;
  if (const Value* found = context_.find_name(name)) return *found;
  if (std::optional<Value> found = find_global(name)) return *found;
  return Value::undefined(fmt::format("'{}' is undefined", name));
}

Value Interpreter::evaluate(const Node& node) {
  Deeper deeper(*this);
  Budget::step();
  line_ = node.line;
  auto child = [&](size_t index) { return evaluate(*node.children[index]); };
  auto all = [&] {
    Values values;
    for (const NodePtr& c : node.children) values.push_back(evaluate(*c));
    return values;
  };
  switch (node.kind) {
    case NodeKind::kConst: return node.value;
    case NodeKind::kName: return lookup(node.name);
    case NodeKind::kTuple: return Value::tuple(all());
    case NodeKind::kList: return Value::list(all());
    case NodeKind::kDict: {
      Dict dict;
      for (size_t i = 0; i < node.children.size(); i += 2) {
        Value key = child(i);
        dict.set(std::move(key), child(i + 1));
      }
      return Value::dict(std::move(dict));
    }
    case NodeKind::kAttribute: return attribute(child(0), node.name);
    case NodeKind::kItem: {
      const Value of = child(0);
      if (node.children[1]->kind == NodeKind::kSlice) return slice(of.defined(), *node.children[1]);
      return item(of, child(1));
    }
    case NodeKind::kCall: return call_node(node);
    case NodeKind::kFilter: return filtered(node, nullptr);
    case NodeKind::kTest: {
      // An undefined subject does not cause an error here, because tests such as `is defined` need it.
      const Value subject = child(0);
      return apply_test(*this, node.name, subject, arguments(node));
    }
    case NodeKind::kNot: return !child(0).truth();
    case NodeKind::kNegative:
    case NodeKind::kPositive: {
      const Value value = child(0);
      value.defined();
      const bool negative = node.kind == NodeKind::kNegative;
      if (value.is_float()) return negative ? -value.number() : value.number();
      if (!value.is_number()) throw JinjaError("bad operand type for a sign: '{}'", value.type_name());
      if (!negative && value.is_large_int()) return value;
      return negative ? binary("-", 0, value) : value.integer();
    }
    case NodeKind::kAnd: {
      Value left = child(0);
      return left.truth() ? child(1) : left;
    }
    case NodeKind::kOr: {
      Value left = child(0);
      return left.truth() ? left : child(1);
    }
    case NodeKind::kBinary: {
      const Value left = child(0);
      return binary(node.name, left, child(1));
    }
    case NodeKind::kConcat: {
      std::string text;
      for (const NodePtr& c : node.children) {
        text += evaluate(*c).str();
        Budget::fit(text.size());
      }
      return text;
    }
    case NodeKind::kCompare: {
      Value left = child(0);
      for (size_t i = 0; i < node.names.size(); ++i) {
        Value right = child(i + 1);
        if (!compare(node.names[i], left, right)) return false;
        left = std::move(right);
      }
      return true;
    }
    case NodeKind::kChoice:
      if (child(0).truth()) return child(1);
      return node.children[2] ? child(2) : Value::undefined("the inline if-expression has no else");
    default: throw JinjaError("found a statement, expected an expression");
  }
}

Args Interpreter::arguments(const Node& node) {
  Args args;
  for (const Argument& argument : node.arguments) {
    Value value = evaluate(*argument.value);
    switch (argument.kind) {
      case Argument::Kind::kPositional: args.positional.push_back(std::move(value)); break;
      case Argument::Kind::kNamed: args.named.emplace_back(argument.name, std::move(value)); break;
      case Argument::Kind::kList:
        for (Value& item : value.walk()) args.positional.push_back(std::move(item));
        break;
      case Argument::Kind::kDict:
        for (const auto& [key, item] : value.dict().items()) args.named.emplace_back(key.string(), item);
        break;
    }
  }
  return args;
}

Value Interpreter::call_node(const Node& node, std::shared_ptr<Object> caller) {
  const Node& callee = *node.children[0];
  auto all_arguments = [&] {
    Args args = arguments(node);
    if (caller) args.named.emplace_back("caller", Value(caller));
    return args;
  };
  if (callee.kind == NodeKind::kAttribute) {
    const Value of = evaluate(*callee.children[0]);
    if (has_method(of, callee.name)) {
      Args args = all_arguments();
      line_ = node.line;
      return call_method(*this, of, callee.name, std::move(args));
    }
    if (of.is_object()) {
      if (auto* state = dynamic_cast<Loop*>(&of.object())) {
        if (callee.name == "cycle") return state->cycle(all_arguments().positional);
        if (callee.name == "changed") return state->changed(all_arguments().positional);
      }
    }
    const Value function = attribute(of, callee.name);
    Args args = all_arguments();
    line_ = node.line;
    return call(function, std::move(args));
  }
  const Value function = evaluate(callee);
  Args args = all_arguments();
  line_ = node.line;
  return call(function, std::move(args));
}

Value Interpreter::call(const Value& callee, Args args) {
  callee.defined();
  if (!callee.is_object()) throw JinjaError("'{}' object is not callable", callee.type_name());
  Deeper deeper(*this);
  return callee.object().call(*this, std::move(args));
}

Value Interpreter::filtered(const Node& node, const Value* input) {
  const Node* inner = node.children[0].get();
  const Value value = !inner                                      ? *input
                      : input && inner->kind == NodeKind::kFilter ? filtered(*inner, input)
                                                                  : evaluate(*inner);
  Args args = arguments(node);
  line_ = node.line;
  return apply_filter(*this, node.name, value, std::move(args));
}

Value Interpreter::attribute(const Value& of, const std::string& name) {
  of.defined();
  if (of.is_object()) {
    if (std::optional<Value> found = of.object().attribute(*this, name)) return *found;
  } else if (has_method(of, name)) {
    return Value::keeping(std::make_shared<BoundMethod>(of, name), {of});
  } else if (of.is_dict()) {
    if (const Value* found = of.dict().find_name(name)) return *found;
  } else if (of.is_group() && (name == "grouper" || name == "list")) {
    return of.items()[name == "list"];
  }
  return Value::undefined(fmt::format("'{}' has no attribute '{}'", described(of), name));
}

Value Interpreter::item(const Value& of, const Value& key) {
  of.defined();
  key.charge_reading();
  if (of.is_dict()) {
    if (const Value* found = of.dict().find(key)) return *found;
  } else if (key.is_int() || key.is_bool()) {
    int64_t index = key.integer();
    if (of.is_sequence() || of.is_string()) {
      if (of.is_string()) Budget::step(of.string().size() / 256);
      const auto size = static_cast<int64_t>(of.length());
      if (index < 0) index += size;
      if (index >= 0 && index < size) {
        if (of.is_sequence()) return of.items()[static_cast<size_t>(index)];
        return character_range(of.string(), static_cast<size_t>(index), static_cast<size_t>(index) + 1);
      }
    }
  }
  if (key.is_string()) return attribute(of, key.string());
  return Value::undefined(fmt::format("{} has no element {}", described(of), key.repr()));
}

}  // namespace fettle::jinja
