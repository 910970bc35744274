#include "jinja/parser.h"

#include <algorithm>
#include <charconv>
#include <initializer_list>

#include "jinja/lexer.h"

namespace fettle::jinja {
namespace {

constexpr int kDeepestTree = 150;  // limit of nested expressions and blocks

class Parser {
 public:
  Parser(std::string_view source, const std::string& name) : name_(name), tokens_(tokenize(source, name)) {}

  Tree run() {
    tree_.body = statements({});
    return std::move(tree_);
  }

 private:
  struct Deeper {
    explicit Deeper(Parser& parser) : parser(parser) {
      if (++parser.depth_ > kDeepestTree) parser.fail("nested too deeply");
    }
    ~Deeper() { --parser.depth_; }
    Parser& parser;
  };

  const Token& now() const { return tokens_[at_]; }
  const Token& ahead() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token take() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  bool is(TokenKind kind) const { return now().kind == kind; }
  bool is_op(std::string_view text) const { return is(TokenKind::kOperator) && now().text == text; }
  bool is_word(std::string_view text) const { return is(TokenKind::kName) && now().text == text; }
  bool take_op(std::string_view text) { return is_op(text) ? (take(), true) : false; }
  bool take_word(std::string_view text) { return is_word(text) ? (take(), true) : false; }
  [[noreturn]] void fail(const std::string& reason) const { throw UserError("{}:{}: {}", name_, now().line, reason); }
  std::string shown() const {
    switch (now().kind) {
      case TokenKind::kEnd: return "the end of the template";
      case TokenKind::kBlockEnd: return "%}";
      case TokenKind::kOutputEnd: return "}}";
      default: return "'" + now().text + "'";
    }
  }
  void want_op(std::string_view text) {
    if (!take_op(text)) fail(fmt::format("expected '{}', got {}", text, shown()));
  }
  std::string want_name() {
    if (!is(TokenKind::kName)) fail(fmt::format("expected a name, got {}", shown()));
    return take().text;
  }
  void want_block_end() {
    if (!is(TokenKind::kBlockEnd)) fail(fmt::format("expected the end of the tag, got {}", shown()));
    take();
  }
  NodePtr make(NodeKind kind) const { return make(kind, now().line); }
  static NodePtr make(NodeKind kind, int line) {
    auto node = std::make_unique<Node>();
    node->kind = kind;
    node->line = line;
    return node;
  }
  template <typename... Children>
  static NodePtr make(NodeKind kind, int line, Children... children) {
    NodePtr node = make(kind, line);
    (node->children.push_back(std::move(children)), ...);
    return node;
  }

  // Parses statements up to a tag whose first word is one of `ends`. This word is then the current token.
  Nodes statements(std::initializer_list<std::string_view> ends) {
    Deeper deeper(*this);
    const int begin_line = tokens_[at_ > 0 ? at_ - 1 : 0].line;
    Nodes out;
    while (!is(TokenKind::kEnd)) {
      if (is(TokenKind::kText)) {
        NodePtr text = make(NodeKind::kText);
        text->name = take().text;
        out.push_back(std::move(text));
      } else if (is(TokenKind::kOutputBegin)) {
        const int line = take().line;
        out.push_back(make(NodeKind::kOutput, line, tuple(true)));
        if (!is(TokenKind::kOutputEnd)) fail(fmt::format("expected }}}}, got {}", shown()));
        take();
      } else {
        take();
        if (is(TokenKind::kName) && std::find(ends.begin(), ends.end(), now().text) != ends.end()) return out;
        if (NodePtr node = statement()) out.push_back(std::move(node));
        want_block_end();
      }
    }
    if (ends.size() > 0)
      throw UserError("{}:{}: the block that begins here has no {{% {} %}}", name_, begin_line, *(ends.end() - 1));
    return out;
  }

  Nodes block(std::string_view end) {
    want_block_end();
    Nodes body = statements({end});
    take();
    return body;
  }

  NodePtr statement() {
    if (!is(TokenKind::kName)) fail(fmt::format("expected a tag name, got {}", shown()));
    const std::string word = now().text;
    const int line = take().line;
    NodePtr node;
    if (word == "for") return for_loop(line);
    if (word == "if") return if_block(line);
    if (word == "set") return set(line);
    if (word == "macro") return macro(line);
    if (word == "call") return call_block(line);
    if (word == "with") return with(line);
    if (word == "break" || word == "continue") {
      if (loops_ == 0) fail(word + " outside a loop");
      return make(word == "break" ? NodeKind::kBreak : NodeKind::kContinue, line);
    }
    if (word == "generation") {
      node = make(NodeKind::kGeneration, line);
      node->body = block("endgeneration");
      tree_.has_generation = true;
      return node;
    }
    if (word == "filter") {
      node = make(NodeKind::kFilterBlock, line, filters(nullptr, true));
      node->body = block("endfilter");
      return node;
    }
    if (word == "print") return make(NodeKind::kOutput, line, tuple(true));
    if (word.starts_with("end") || word == "else" || word == "elif")
      fail(fmt::format("{{% {} %}} has no block to close here", word));
    fail(fmt::format("the tag '{}' is unknown, or not supported in chat templates", word));
  }

  NodePtr for_loop(int line) {
    NodePtr node = make(NodeKind::kFor, line);
    node->children.push_back(target({"in"}));
    if (!take_word("in")) fail(fmt::format("expected 'in', got {}", shown()));
    node->children.push_back(tuple(false, {"recursive"}));
    node->children.push_back(take_word("if") ? expression() : nullptr);
    node->flag = take_word("recursive");
    want_block_end();
    ++loops_;
    node->body = statements({"else", "endfor"});
    --loops_;
    if (take().text == "else") node->otherwise = block("endfor");
    return node;
  }

  NodePtr if_block(int line) {
    NodePtr node = make(NodeKind::kIf, line, tuple(false));
    want_block_end();
    node->body = statements({"elif", "else", "endif"});
    const Token end = take();
    if (end.text == "elif") {
      Deeper deeper(*this);
      node->otherwise.push_back(if_block(end.line));
    } else if (end.text == "else") {
      node->otherwise = block("endif");
    }
    return node;
  }

  NodePtr set(int line) {
    NodePtr to = target({});
    if (take_op("=")) return make(NodeKind::kSet, line, std::move(to), tuple(true));
    NodePtr through = is_op("|") ? filters(nullptr, false) : nullptr;
    NodePtr node = make(NodeKind::kSetBlock, line, std::move(to), std::move(through));
    node->body = block("endset");
    return node;
  }

  NodePtr with(int line) {
    NodePtr node = make(NodeKind::kWith, line);
    while (!is(TokenKind::kBlockEnd)) {
      if (!node->children.empty()) want_op(",");
      node->children.push_back(target({}, false));
      want_op("=");
      node->children.push_back(expression());
    }
    node->body = block("endwith");
    return node;
  }

  // Parses the body of a macro. Records which of the variables `caller`, `varargs` and `kwargs` the body reads. A call
  // accepts arguments for one of these variables only if the body reads it.
  void macro_body(Node& node, std::string_view end) {
    auto outer = std::move(special_);
    special_.clear();
    const int loops = std::exchange(loops_, 0);
    node.body = block(end);
    loops_ = loops;
    node.uses_caller = special_.contains("caller");
    node.uses_varargs = special_.contains("varargs");
    node.uses_kwargs = special_.contains("kwargs");
    special_ = std::move(outer);
  }

  void signature(Node& node) {
    want_op("(");
    while (!take_op(")")) {
      if (!node.parameters.empty()) {
        want_op(",");
        if (take_op(")")) break;
      }
      Parameter parameter{want_name(), nullptr};
      if (take_op("="))
        parameter.otherwise = expression();
      else if (!node.parameters.empty() && node.parameters.back().otherwise)
        fail("a parameter without default follows one with default");
      node.parameters.push_back(std::move(parameter));
    }
  }

  NodePtr macro(int line) {
    NodePtr node = make(NodeKind::kMacro, line);
    node->name = want_name();
    signature(*node);
    macro_body(*node, "endmacro");
    return node;
  }

  NodePtr call_block(int line) {
    NodePtr node = make(NodeKind::kCallBlock, line);
    if (is_op("(")) signature(*node);
    node->children.push_back(expression());
    if (node->children[0]->kind != NodeKind::kCall) fail("a call block needs a call, such as {% call name() %}");
    macro_body(*node, "endcall");
    return node;
  }

  bool tuple_ends(std::initializer_list<std::string_view> words) const {
    return is(TokenKind::kBlockEnd) || is(TokenKind::kOutputEnd) || is_op(")") ||
           (is(TokenKind::kName) && std::find(words.begin(), words.end(), now().text) != words.end());
  }

  // Parses the target of an assignment: names, or attributes of namespaces.
  NodePtr target(std::initializer_list<std::string_view> ends, bool with_tuple = true) {
    const int line = now().line;
    Nodes parts;
    bool is_tuple = false;
    do {
      if (!parts.empty() && tuple_ends(ends)) break;
      if (take_op("(")) {
        parts.push_back(target({}));
        want_op(")");
      } else {
        NodePtr name = make(NodeKind::kName);
        name->name = want_name();
        for (std::string_view taken : {"true", "false", "none", "True", "False", "None"})
          if (name->name == taken) fail(fmt::format("can't assign to {}", taken));
        if (take_op(".")) {
          NodePtr attribute = make(NodeKind::kAttribute, line, std::move(name));
          attribute->name = want_name();
          parts.push_back(std::move(attribute));
        } else {
          parts.push_back(std::move(name));
        }
      }
    } while (with_tuple && take_op(",") && (is_tuple = true));
    if (!is_tuple) return std::move(parts[0]);
    NodePtr node = make(NodeKind::kTuple, line);
    node->children = std::move(parts);
    return node;
  }

  // Parses one expression, or several with commas between them.
  NodePtr tuple(bool with_choice, std::initializer_list<std::string_view> ends = {}, bool in_parentheses = false) {
    NodePtr node = make(NodeKind::kTuple);
    bool is_tuple = false;
    do {
      if (tuple_ends(ends)) break;
      node->children.push_back(with_choice ? expression() : either());
    } while (take_op(",") && (is_tuple = true));
    if (is_tuple || (node->children.empty() && in_parentheses)) return node;
    if (node->children.empty()) fail(fmt::format("expected an expression, got {}", shown()));
    return std::move(node->children[0]);
  }

  NodePtr expression() {
    Deeper deeper(*this);
    NodePtr left = either();
    while (is_word("if")) {
      const int line = take().line;
      NodePtr condition = either();
      NodePtr other = take_word("else") ? expression() : nullptr;
      left = make(NodeKind::kChoice, line, std::move(condition), std::move(left), std::move(other));
    }
    return left;
  }
  NodePtr either() {
    NodePtr left = both();
    while (is_word("or")) {
      const int line = take().line;
      left = make(NodeKind::kOr, line, std::move(left), both());
    }
    return left;
  }
  NodePtr both() {
    NodePtr left = negation();
    while (is_word("and")) {
      const int line = take().line;
      left = make(NodeKind::kAnd, line, std::move(left), negation());
    }
    return left;
  }
  NodePtr negation() {
    if (!is_word("not")) return comparison();
    Deeper deeper(*this);
    const int line = take().line;
    return make(NodeKind::kNot, line, negation());
  }
  NodePtr comparison() {
    const int line = now().line;
    NodePtr first = sum();
    Nodes parts;
    std::vector<std::string> names;
    while (true) {
      if (is(TokenKind::kOperator) &&
          (is_op("==") || is_op("!=") || is_op("<") || is_op("<=") || is_op(">") || is_op(">="))) {
        names.push_back(take().text);
      } else if (take_word("in")) {
        names.push_back("in");
      } else if (is_word("not") && ahead().kind == TokenKind::kName && ahead().text == "in") {
        take();
        take();
        names.push_back("not in");
      } else {
        break;
      }
      parts.push_back(sum());
    }
    if (parts.empty()) return first;
    NodePtr node = make(NodeKind::kCompare, line, std::move(first));
    for (NodePtr& part : parts) node->children.push_back(std::move(part));
    node->names = std::move(names);
    return node;
  }
  NodePtr binary(std::initializer_list<std::string_view> ops, NodePtr (Parser::*next)()) {
    NodePtr left = (this->*next)();
    while (is(TokenKind::kOperator) && std::find(ops.begin(), ops.end(), now().text) != ops.end()) {
      const Token op = take();
      left = make(NodeKind::kBinary, op.line, std::move(left), (this->*next)());
      left->name = op.text;
    }
    return left;
  }
  NodePtr sum() { return binary({"+", "-"}, &Parser::concat); }
  NodePtr concat() {
    NodePtr first = product();
    if (!is_op("~")) return first;
    NodePtr node = make(NodeKind::kConcat, now().line, std::move(first));
    while (take_op("~")) node->children.push_back(product());
    return node;
  }
  NodePtr product() { return binary({"*", "/", "//", "%"}, &Parser::power); }
  NodePtr power() { return binary({"**"}, &Parser::filtered); }
  NodePtr filtered() { return unary(true); }
  NodePtr unary(bool with_filters) {
    Deeper deeper(*this);
    NodePtr node;
    if (is_op("-") || is_op("+")) {
      const Token sign = take();
      node = make(sign.text == "-" ? NodeKind::kNegative : NodeKind::kPositive, sign.line, unary(false));
    } else {
      node = primary();
    }
    node = postfix(std::move(node));
    if (!with_filters) return node;
    while (true) {
      if (is_op("|"))
        node = filters(std::move(node), false);
      else if (is_word("is"))
        node = test(std::move(node));
      else if (is_op("("))
        node = call(std::move(node));
      else
        return node;
    }
  }

  NodePtr constant(Value value) {
    NodePtr node = make(NodeKind::kConst);
    node->value = std::move(value);
    return node;
  }

  NodePtr primary() {
    const Token token = now();
    switch (token.kind) {
      case TokenKind::kName: {
        take();
        const std::string& word = token.text;
        if (word == "true" || word == "True") return constant(true);
        if (word == "false" || word == "False") return constant(false);
        if (word == "none" || word == "None") return constant({});
        NodePtr node = make(NodeKind::kName, token.line);
        node->name = word;
        tree_.names.insert(word);
        if (word == "caller" || word == "varargs" || word == "kwargs") special_.insert(word);
        return node;
      }
      case TokenKind::kString: {
        std::string text;
        while (is(TokenKind::kString)) text += take().text;
        return constant(std::move(text));
      }
      case TokenKind::kInt: {
        take();
        return constant(integer(token.text));
      }
      case TokenKind::kFloat: take(); return constant(std::strtod(token.text.c_str(), nullptr));
      default: break;
    }
    if (take_op("(")) {
      NodePtr node = tuple(true, {}, true);
      want_op(")");
      return node;
    }
    if (take_op("[")) {
      NodePtr node = make(NodeKind::kList, token.line);
      while (!take_op("]")) {
        if (!node->children.empty()) {
          want_op(",");
          if (take_op("]")) break;
        }
        node->children.push_back(expression());
      }
      return node;
    }
    if (take_op("{")) {
      NodePtr node = make(NodeKind::kDict, token.line);
      while (!take_op("}")) {
        if (!node->children.empty()) {
          want_op(",");
          if (take_op("}")) break;
        }
        node->children.push_back(expression());
        want_op(":");
        node->children.push_back(expression());
      }
      return node;
    }
    fail(fmt::format("expected an expression, got {}", shown()));
  }

  int64_t integer(const std::string& text) const {
    int base = 10;
    const char* first = text.data();
    if (text.size() > 2 && text[0] == '0' && !std::isdigit(static_cast<unsigned char>(text[1]))) {
      base = (text[1] | 32) == 'x' ? 16 : (text[1] | 32) == 'b' ? 2 : 8;
      first += 2;
    }
    int64_t value = 0;
    const auto [end, error] = std::from_chars(first, text.data() + text.size(), value, base);
    if (error != std::errc() || end != text.data() + text.size())
      fail(fmt::format("'{}' is not an integer of 64 bits", text));
    return value;
  }

  NodePtr postfix(NodePtr node) {
    while (true) {
      const int line = now().line;
      if (take_op(".")) {
        if (is(TokenKind::kInt)) {
          NodePtr index = constant(integer(now().text));
          take();
          node = make(NodeKind::kItem, line, std::move(node), std::move(index));
        } else {
          node = make(NodeKind::kAttribute, line, std::move(node));
          node->name = want_name();
        }
      } else if (take_op("[")) {
        NodePtr index = subscript();
        if (is_op(",")) {
          NodePtr indices = make(NodeKind::kTuple, line, std::move(index));
          while (take_op(",") && !is_op("]")) indices->children.push_back(subscript());
          index = std::move(indices);
        }
        want_op("]");
        node = make(NodeKind::kItem, line, std::move(node), std::move(index));
      } else if (is_op("(")) {
        node = call(std::move(node));
      } else {
        return node;
      }
    }
  }

  NodePtr subscript() {
    const int line = now().line;
    NodePtr parts[3];
    if (!is_op(":")) {
      parts[0] = expression();
      if (!is_op(":")) return std::move(parts[0]);
    }
    take();
    if (!is_op(":") && !is_op("]") && !is_op(",")) parts[1] = expression();
    if (take_op(":") && !is_op("]") && !is_op(",")) parts[2] = expression();
    return make(NodeKind::kSlice, line, std::move(parts[0]), std::move(parts[1]), std::move(parts[2]));
  }

  std::vector<Argument> arguments() {
    want_op("(");
    std::vector<Argument> out;
    while (!take_op(")")) {
      if (!out.empty()) {
        want_op(",");
        if (take_op(")")) break;
      }
      if (take_op("*")) {
        out.push_back({Argument::Kind::kList, "", expression()});
      } else if (take_op("**")) {
        out.push_back({Argument::Kind::kDict, "", expression()});
      } else if (is(TokenKind::kName) && ahead().kind == TokenKind::kOperator && ahead().text == "=") {
        std::string name = take().text;
        take();
        out.push_back({Argument::Kind::kNamed, std::move(name), expression()});
      } else {
        if (!out.empty() && out.back().kind != Argument::Kind::kPositional)
          fail("a positional argument follows a named one");
        out.push_back({Argument::Kind::kPositional, "", expression()});
      }
    }
    return out;
  }

  NodePtr call(NodePtr callee) {
    NodePtr node = make(NodeKind::kCall, now().line, std::move(callee));
    node->arguments = arguments();
    return node;
  }

  std::string dotted_name() {
    std::string name = want_name();
    while (take_op(".")) name += "." + want_name();
    return name;
  }

  // Parses a chain of filters. If `at_name`, the first filter has no bar before it.
  NodePtr filters(NodePtr node, bool at_name) {
    while (at_name || is_op("|")) {
      if (!at_name) take();
      at_name = false;
      node = make(NodeKind::kFilter, now().line, std::move(node));
      node->name = dotted_name();
      if (is_op("(")) node->arguments = arguments();
    }
    return node;
  }

  NodePtr test(NodePtr subject) {
    const int line = take().line;
    const bool negated = take_word("not");
    NodePtr node = make(NodeKind::kTest, line, std::move(subject));
    node->name = dotted_name();
    if (is_op("(")) {
      node->arguments = arguments();
    } else if (is(TokenKind::kString) || is(TokenKind::kInt) || is(TokenKind::kFloat) || is_op("[") || is_op("{") ||
               (is(TokenKind::kName) && !is_word("else") && !is_word("or") && !is_word("and") && !is_word("is") &&
                !is_word("if") && !is_word("in") && !is_word("not"))) {
      node->arguments.push_back({Argument::Kind::kPositional, "", postfix(primary())});
    } else if (is_word("is")) {
      fail("tests cannot be chained with 'is'");
    }
    return negated ? make(NodeKind::kNot, line, std::move(node)) : std::move(node);
  }

  const std::string& name_;
  std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0, loops_ = 0;
  std::set<std::string> special_;
  Tree tree_;
};

}  // namespace

Tree parse(std::string_view source, const std::string& name) {
  return Parser(source, name).run();
}

}  // namespace fettle::jinja
