#include "config/foreign/references.h"

#include "base/error.h"
#include "config/foreign/nodes.h"

namespace fettle {
namespace {

class Resolver {
 public:
  Resolver(const YAML::Node& all, const std::string& file) : all_(all), file_(file) {}

  void visit(YAML::Node node) {
    if (node.IsMap()) {
      for (const auto& pair : node) visit(pair.second);
    } else if (node.IsSequence()) {
      for (const auto& item : node) visit(item);
    } else if (node.IsScalar() && node.Scalar().find("${") != std::string::npos) {
      node = resolved(node.Scalar(), place_of(file_, node), 0);  // keeps the node's line
    }
  }
  const std::set<std::string>& named() const { return named_; }

 private:
  std::string resolved(std::string text, const std::string& where, int depth) {
    if (depth > 20) throw UserError("{}: {} refers to itself", where, text);
    for (size_t begin; (begin = text.find("${")) != std::string::npos;) {
      const size_t end = text.find('}', begin);
      if (end == std::string::npos) throw UserError("{}: '{}' has no }} after ${{", where, text);
      const std::string name = text.substr(begin + 2, end - begin - 2);
      text.replace(begin, end + 1 - begin, resolved(value(name, where), where, depth + 1));
    }
    return text;
  }

  std::string value(const std::string& name, const std::string& where) {
    if (name.find(':') != std::string::npos)
      throw UserError("{}: ${{{}}} is a function, which is not available; write its value", where, name);
    const YAML::Node found = find(name);
    if (!found.IsDefined() || !found.IsScalar())
      throw UserError("{}: ${{{}}}: the recipe has no key '{}' with one value; add it, or write the value", where, name,
                      name);
    return found.Scalar();
  }

  YAML::Node find(const std::string& name) {
    const size_t dot = name.find('.');
    const std::string outer = name.substr(0, dot);
    named_.insert(outer);
    if (all_[name].IsDefined()) return all_[name];  // an override may be called OUTER.KEY
    const bool inner = dot != std::string::npos && all_[outer].IsDefined() && all_[outer].IsMap();
    return inner ? all_[outer][name.substr(dot + 1)] : YAML::Node(YAML::NodeType::Undefined);
  }

  const YAML::Node& all_;
  const std::string& file_;
  std::set<std::string> named_;
};

}  // namespace

std::set<std::string> resolve_references(YAML::Node root, const YAML::Node& all, const std::string& file) {
  Resolver resolver(all, file);
  resolver.visit(root);
  return resolver.named();
}

}  // namespace fettle
