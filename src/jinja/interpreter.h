// Defines Interpreter, which renders a parsed template once, within limits of steps, memory and depth.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/local_time.h"
#include "jinja/parser.h"
#include "jinja/value.h"

namespace fettle::jinja {

constexpr int kDeepest = 1500;  // limit of nested evaluations, so that the stack cannot overflow

struct Scope {
  std::shared_ptr<Scope> parent;
  std::vector<std::pair<std::string, Value>> variables;

  Value* find(const std::string& name);
  void set(const std::string& name, Value value);
};

class Interpreter {
 public:
  // `context` and `tree` must outlive the interpreter. strftime_now formats `now`.
  Interpreter(const Tree& tree, const Dict& context, LocalTime now, Limits limits = {});
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;

  // Renders the template; text() is the result. After a JinjaError, line() is the line of the error.
  void run();
  const std::string& text() const { return text_; }
  int line() const { return line_; }
  // Returns the byte ranges of text() that came from {% generation %} blocks.
  const std::vector<std::pair<size_t, size_t>>& generated() const { return generated_; }
  // Returns true when a {% generation %} block was inside a macro, a recursive call of a loop, or a {% set %},
  // {% filter %} or {% call %} block. generated() lacks the byte ranges of such generation blocks.
  bool generated_elsewhere() const { return generated_elsewhere_; }

  // The following functions are for the built-in functions, filters and methods.
  Value call(const Value& callee, Args args);
  Value attribute(const Value& of, const std::string& name);
  Value item(const Value& of, const Value& key);
  Value binary(const std::string& op, const Value& left, const Value& right);  // + - * / // % **
  const LocalTime& now() const { return now_; }
  // Keeps an object that may refer to itself. The interpreter's destructor clears the object, so that it is freed.
  void own(std::shared_ptr<Object> object);

  // call_macro renders a macro, or the caller() of a call block. render_loop renders the body of a recursive loop.
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
  Flow scoped(const Nodes& body);
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
  LocalTime now_;
  std::string text_;
  std::string* out_ = &text_;
  std::shared_ptr<Scope> scope_;
  std::vector<std::pair<size_t, size_t>> generated_;
  bool generated_elsewhere_ = false;
  int line_ = 1, depth_ = 0;
  Budget budget_;
  // Scopes and namespaces that may refer to themselves. The destructor clears them.
  std::vector<std::shared_ptr<Scope>> captured_;
  std::vector<std::shared_ptr<Object>> owned_;
};

}  // namespace fettle::jinja
