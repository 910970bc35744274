#include "jinja/template.h"

#include "jinja/interpreter.h"

namespace fettle::jinja {

struct Template::State {
  std::string name;
  Tree tree;
};

Template::Template(std::string_view source, std::string name) {
  Tree tree = parse(source, name);
  state_ = std::make_shared<const State>(State{std::move(name), std::move(tree)});
}

Template::Rendered Template::render(const nlohmann::ordered_json& context, const LocalTime& now, Limits limits) const {
  Value variables;
  try {
    variables = Value::from_json(context);
  } catch (const JinjaError& error) {
    throw UserError("{}: a variable of the template is not valid: {}", state_->name, error.what());
  }
  Interpreter run(state_->tree, variables.dict(), now, limits);
  try {
    run.run();
  } catch (const JinjaError& error) {
    throw UserError("{}:{}: {}", state_->name, run.line(), error.what());
  }
  return {run.text(), run.generated(), run.generated_elsewhere()};
}

bool Template::has_generation() const {
  return state_->tree.has_generation;
}
bool Template::reads(const std::string& variable) const {
  return state_->tree.names.contains(variable);
}

}  // namespace fettle::jinja
