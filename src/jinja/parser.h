// Defines parse, which turns a Jinja template into a tree of Nodes.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "jinja/value.h"

namespace fettle::jinja {

enum class NodeKind {
  // Expressions. Each comment shows the members of Node that the kind uses, as they stand in the template.
  kConst,      // value
  kName,       // name
  kTuple,      // children
  kList,       // children
  kDict,       // children: key, value, key, value, ...
  kAttribute,  // children[0] . name
  kItem,       // children[0] [ children[1] ]
  kSlice,      // children: first, last, step; each may be null
  kCall,       // children[0] ( arguments )
  kFilter,     // children[0] | name ( arguments ); children[0] is null in a filter block
  kTest,       // the test `children[0] is name(arguments)`
  kNot,        // children[0]
  kNegative,   // children[0]
  kPositive,   // children[0]
  kAnd,        // children[0], children[1]
  kOr,         // children[0], children[1]
  kBinary,     // children[0] name children[1]; name is + - * / // % **
  kConcat,     // children
  kCompare,    // children[0] names[0] children[1] names[1] ...
  kChoice,     // children: condition, then, else (may be null)
  // Statements.
  kText,         // name: the text
  kOutput,       // children[0]
  kFor,          // children: target, iterable, condition (may be null); body; otherwise: else branch; flag: recursive
  kIf,           // children[0]: condition; body; otherwise: else branch
  kSet,          // children: target, value
  kSetBlock,     // children: target, filters (may be null); body
  kMacro,        // name; parameters; body
  kCallBlock,    // children[0]: a call; parameters; body
  kFilterBlock,  // children[0]: the filters; body: its text is the filters' input
  kWith,         // children: target, value, target, value, ...; body
  kGeneration,   // body
  kBreak,
  kContinue,
};

struct Node;
using NodePtr = std::unique_ptr<Node>;
using Nodes = std::vector<NodePtr>;

struct Argument {
  enum class Kind { kPositional, kNamed, kList, kDict } kind;  // f(a), f(n=a), f(*a), f(**a)
  std::string name;
  NodePtr value;
};

struct Parameter {
  std::string name;
  NodePtr otherwise;  // default value, or null
};

struct Node {
  NodeKind kind;
  int line;
  std::string name;
  Value value;
  std::vector<std::string> names;
  Nodes children, body, otherwise;
  std::vector<Argument> arguments;
  std::vector<Parameter> parameters;
  bool flag = false;
  bool uses_caller = false, uses_varargs = false, uses_kwargs = false;  // macros: what the body uses

  ~Node();  // does not recurse, so a chain of a million nodes cannot overflow the stack
};

struct Tree {
  Nodes body;
  std::set<std::string> names;  // all variables that the template reads
  bool has_generation = false;
};

// Returns the tree of `source`. Throws UserError "name:line: reason" for an invalid template.
Tree parse(std::string_view source, const std::string& name);

}  // namespace fettle::jinja
