#include <utility>

#include "jinja/parser.h"

namespace fettle::jinja {

Node::~Node() {
  Nodes pending;
  auto take = [&](Node& node) {
    auto move_from = [&](NodePtr& part) {
      if (part) pending.push_back(std::move(part));
    };
    for (Nodes* parts : {&node.children, &node.body, &node.otherwise}) {
      for (NodePtr& part : *parts) move_from(part);
    }
    for (Argument& argument : node.arguments) move_from(argument.value);
    for (Parameter& parameter : node.parameters) move_from(parameter.otherwise);
  };
  take(*this);
  while (!pending.empty()) {
    const NodePtr last = std::move(pending.back());
    pending.pop_back();
    take(*last);
  }
}

}  // namespace fettle::jinja
