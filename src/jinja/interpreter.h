// Defines Interpreter: one rendering of a parsed template, within limits of steps, memory and depth.
#pragma once

#include <ctime>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "jinja/parser.h"
#include "jinja/value.h"

namespace fettle::jinja {

constexpr int kDeepest = 1500;  // nested evaluations: bounds the stack

struct Scope {
  std::shared_ptr<Scope> parent;
  std::vector<std::pair<std::string, Value>> variables;

  Value* find(const std::string& name);
  void set(const std::string& name, Value value);
};

class Interpreter {
 public:
  // `context` and `tree` must outlive the interpreter. `now` is what strftime_now sees.
  Interpreter(const Tree& tree, const Dict& context, std::time_t now);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;

  // Renders into text(); throws JinjaError at line().
  void run();
  const std::string& text() const { return text_; }
  int line() const { return line_; }
  // Byte ranges of text() that {% generation %} blocks wrote.
  const std::vector<std::pair<size_t, size_t>>& generated() const { return generated_; }
  // A {% generation %} block wrote into a macro's or set block's text, so its place is not known.
  bool generated_elsewhere() const { return generated_elsewhere_; }

  // What the built-in functions, filters and methods need.
  Value call(const Value& callee, Args args);
  Value attribute(const Value& of, const std::string& name);
  Value item(const Value& of, const Value& key);
  Value binary(const std::string& op, const Value& left, const Value& right);  // + - * / // % **
  std::time_t now() const { return now_; }
  // Keeps what may refer to itself, to be taken apart at the end.
  void own(std::shared_ptr<Object> object);

  // A macro's or caller's call, and the body of a recursive loop.
  Value call_macro(const Node& macro, const std::shared_ptr<Scope>& scope, Args args);
  Value render_loop(const Node& loop, const std::shared_ptr<Scope>& scope, const Value& over, int depth);

 private:
  enum class Flow { kNext, kBreak, kContinue };
  struct Deeper;

  Flow execute(const Nodes& nodes);
  Flow execute(const Node& node);
  Flow loop(const Node& node, const Value& over, int depth);
  template <typename Body>
  std::string capture(Body body);
  void scoped(const Nodes& body);
  void assign(const Node& target, Value value);
  void write(const std::string& text);
  void capture_scope();

  Value evaluate(const Node& node);
  Value lookup(const std::string& name);
  Value call_node(const Node& node, std::shared_ptr<Object> caller = nullptr);
  Args arguments(const Node& node);
  Value filtered(const Node& node, const Value* input);
  bool compare(const std::string& op, const Value& left, const Value& right);
  Value slice(const Value& of, const Node& range);

  const Tree& tree_;
  const Dict& context_;
  std::time_t now_;
  std::string text_;
  std::string* out_ = &text_;
  std::shared_ptr<Scope> scope_;
  std::vector<std::pair<size_t, size_t>> generated_;
  bool generated_elsewhere_ = false;
  int line_ = 1, depth_ = 0;
  Budget budget_;
  // Scopes and namespaces that may refer to themselves; emptied at the end.
  std::vector<std::shared_ptr<Scope>> captured_;
  std::vector<std::shared_ptr<Object>> owned_;
};

}  // namespace fettle::jinja
