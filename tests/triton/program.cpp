#include "triton/program.h"

#include <fmt/format.h>

#include <algorithm>
#include <regex>
#include <sstream>
#include <stdexcept>

namespace fettle::triton {
namespace {

// Reads the type at position `at`, and moves `at` behind it.
Type read_type(const std::string& text, size_t& at) {
  auto until_closed = [&](size_t open) {
    int depth = 0;
    for (size_t i = open; i < text.size(); ++i) {
      if (text[i] == '<') ++depth;
      if (text[i] == '>' && --depth == 0) return i;
    }
    fail("a type without its '>' in: " + text);
  };
  if (text.compare(at, 7, "tensor<") == 0) {
    const size_t end = until_closed(at + 6);
    std::string inner = text.substr(at + 7, end - at - 7);
    at = end + 1;
    Type out;
    while (!inner.empty() && std::isdigit(static_cast<unsigned char>(inner[0])) != 0) {
      const size_t x = inner.find('x');
      const int64_t dim = std::stoll(inner.substr(0, x));
      if (dim < 1 || (dim & (dim - 1)) != 0) fail(fmt::format("a dim of {} is not a power of two", dim));
      out.dims.push_back(dim);
      inner = inner.substr(x + 1);
    }
    out.element = inner;
    return out;
  }
  if (text.compare(at, 8, "!tt.ptr<") == 0) {
    const size_t end = until_closed(at + 7);
    const Type out{text.substr(at, end - at + 1), {}};
    at = end + 1;
    return out;
  }
  size_t end = at;
  while (end < text.size() && std::isalnum(static_cast<unsigned char>(text[end])) != 0) ++end;
  const Type out{text.substr(at, end - at), {}};
  at = end;
  if (out.element != "i1" && out.element != "i32" && out.element != "i64" && !out.floating()) fail("no type: " + text);
  return out;
}

// Reads all types of a text such as "f32, tensor<4xf32> -> (i32)".
std::vector<Type> read_types(const std::string& text) {
  std::vector<Type> out;
  size_t at = 0;
  while (at < text.size()) {
    if (text.compare(at, 2, "to") == 0 && at + 2 < text.size() && text[at + 2] == ' ') {
      at += 2;
    } else if (std::string_view(" ,*()->").find(text[at]) != std::string_view::npos) {
      ++at;
    } else {
      out.push_back(read_type(text, at));
    }
  }
  return out;
}

class Reader {
 public:
  Reader(const std::string& ir, const std::string& name) : stream_(ir), name_(name) {}

  Function read() {
    if (next() != "module {") fail("wanted a module");
    static const std::regex head("tt\\.func public @(\\w+)\\((.*)\\) \\{");
    std::smatch found;
    const std::string line = next();
    if (!std::regex_match(line, found, head) || found[1] != name_) fail("wanted the function " + name_ + ": " + line);
    scopes_.emplace_back();
    static const std::regex argument("(%\\w+): (!tt\\.ptr<\\w+>) \\{tt\\.divisibility = 16 : i32\\}");
    const std::string list = found[2];
    for (std::sregex_iterator it(list.begin(), list.end(), argument), end; it != end; ++it) {
      define((*it)[1]);
      out_.arguments.push_back(Type{(*it)[2], {}});
    }
    out_.ops = block("tt.return");
    if (next() != "}" || next() != "}") fail("text after tt.return");
    out_.slots = slots_;
    return out_;
  }

 private:
  std::string next() {
    std::string line;
    ++number_;
    if (!std::getline(stream_, line)) fail("the text ends early");
    return line.substr(std::min(line.size(), line.find_first_not_of(' ')));
  }

  int define(const std::string& name) {
    if (!scopes_.back().emplace(name, slots_).second) fail(name + " is defined twice");
    return slots_++;
  }
  int find(const std::string& name) const {
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope)
      if (const auto at = scope->find(name); at != scope->end()) return at->second;
    fail(name + " is not defined");
  }

  static std::vector<std::string> names(const std::string& text) {
    static const std::regex name("%\\w+(#\\d+)?");
    std::vector<std::string> out;
    for (std::sregex_iterator it(text.begin(), text.end(), name), end; it != end; ++it) out.push_back(it->str());
    return out;
  }

  std::vector<Op> block(const std::string& last) {
    std::vector<Op> ops;
    while (true) {
      const std::string text = next();
      const int number = number_;
      try {
        ops.push_back(op(text));
      } catch (const std::runtime_error& error) {
        fail(fmt::format("line {}: {}\n{}", number, error.what(), text));
      }
      ops.back().line = number;
      if (ops.back().code == last) return ops;
    }
  }

  Op op(std::string text) {
    std::string result;
    if (text[0] == '%') {
      const size_t equals = text.find(" = ");
      result = text.substr(0, equals);
      text = text.substr(equals + 3);
    }
    Op out;
    const size_t space = std::min(text.find_first_of(" ("), text.size());
    out.code = text.substr(0, space);
    if (out.code == "scf.for") return loop(text, result);
    std::string rest = text.substr(space);
    if (out.code == "\"tt.reduce\"") return reduce(text, result);
    // Attributes in braces.
    if (const size_t open = rest.find('{'); open != std::string::npos) {
      const size_t close = rest.find('}', open);
      const std::string inside = rest.substr(open, close - open);
      static const std::regex integer("(\\w+) = (-?\\d+) : i32");
      for (std::sregex_iterator it(inside.begin(), inside.end(), integer), end; it != end; ++it)
        out.attributes[(*it)[1]] = std::stoll((*it)[2]);
      if (inside.find("order = array<i32: 1, 0>") != std::string::npos) out.word = "1, 0";
      rest.erase(open, close - open + 1);
    }
    const size_t colon = rest.rfind(" : ");
    if (colon != std::string::npos) out.types = read_types(rest.substr(colon + 3));
    const std::string operands = rest.substr(0, std::min(colon, rest.size()));
    if (out.code == "arith.constant") {
      out.constant = constant(operands, out.types.at(0));
    } else {
      static const std::regex word("^ ([a-z]+)");
      std::smatch found;
      if (std::regex_search(operands, found, word)) out.word = found[1];
      for (const std::string& name : names(operands)) out.operands.push_back(find(name));
    }
    if (!result.empty()) out.results = {define(result)};
    return out;
  }

  static Value constant(const std::string& text, const Type& type) {
    static const std::regex number("^ (dense<)?(-?[0-9.e+-]+)>?$");
    std::smatch found;
    if (!std::regex_match(text, found, number) || found[1].matched == type.dims.empty()) fail("no constant: " + text);
    Value out{type, {}, {}, 0};
    const std::string digits = found[2];
    if (type.floating() != (digits.find('.') != std::string::npos)) fail("a constant of another type: " + text);
    if (type.floating())
      out.floats.assign(type.count(), std::stof(digits));
    else
      out.integers.assign(type.count(), in_range(std::stoll(digits), type.element));
    return out;
  }

  Op reduce(const std::string& text, const std::string& result) {
    static const std::regex form(
        "\"tt\\.reduce\"\\((%\\w+(?:#\\d+)?)\\) <\\{axis = (\\d) : i32\\}> \\(\\{ \\^bb0\\(%a: f32, %b: f32\\): %c = "
        "(arith\\.\\w+) %a, %b : f32 tt\\.reduce\\.return %c : f32 \\}\\) : \\((.*)\\) -> (.*)");
    std::smatch found;
    if (!std::regex_match(text, found, form)) fail("no reduction");
    Op out;
    out.code = "tt.reduce";
    out.operands = {find(found[1])};
    out.attributes["axis"] = std::stoll(found[2]);
    out.word = found[3];
    out.types = read_types(found[4].str() + " -> " + found[5].str());
    out.results = {define(result)};
    return out;
  }

  Op loop(const std::string& text, const std::string& result) {
    static const std::regex form(
        "scf\\.for (%\\w+) = (%\\w+) to (%\\w+) step (%\\w+) iter_args\\((.*)\\) -> \\((.*)\\) : i32 \\{");
    std::smatch found;
    if (!std::regex_match(text, found, form)) fail("no loop");
    Op out;
    out.code = "scf.for";
    for (const int i : {2, 3, 4}) out.operands.push_back(find(found[i]));
    const std::vector<std::string> carried = names(found[5]);
    out.types = read_types(found[6]);
    if (carried.size() != 2 * out.types.size()) fail("the loop's values do not fit its types");
    for (size_t i = 1; i < carried.size(); i += 2) out.operands.push_back(find(carried[i]));
    const size_t colon = result.find(':');
    if (colon == std::string::npos || std::stoul(result.substr(colon + 1)) != out.types.size())
      fail("the loop has another number of results than of values");
    scopes_.emplace_back();
    out.results.push_back(define(found[1]));  // the index, then the carried values, then the results
    for (size_t i = 0; i < carried.size(); i += 2) out.results.push_back(define(carried[i]));
    out.body = block("scf.yield");
    if (next() != "}") fail("wanted the loop's end");
    scopes_.pop_back();
    for (size_t i = 0; i < out.types.size(); ++i)
      out.results.push_back(define(fmt::format("{}#{}", result.substr(0, colon), i)));
    return out;
  }

  std::istringstream stream_;
  std::string name_;
  std::vector<std::map<std::string, int>> scopes_;
  Function out_;
  int slots_ = 0, number_ = 0;
};

}  // namespace

void fail(const std::string& text) {
  throw std::runtime_error(text);
}

int64_t in_range(int64_t x, const std::string& element) {
  if (element == "i32" && x != static_cast<int32_t>(x)) fail(fmt::format("{} does not fit into i32", x));
  return x;
}

Function read_function(const std::string& ir, const std::string& name) {
  return Reader(ir, name).read();
}

}  // namespace fettle::triton
