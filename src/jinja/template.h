// Defines Template: a Jinja template as Transformers renders chat templates.
//
// Settings: trim_blocks, lstrip_blocks, loop controls, {% generation %}, an immutable sandbox; the functions
// raise_exception and strftime_now; tojson without HTML escapes. A rendering is bounded in steps, text and depth.
// Includes, imports and inheritance are not known: a template sees nothing but its context.
#pragma once

#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fettle::jinja {

class Template {
 public:
  // `name` is what error messages call it. Throws UserError "name:line: reason" for text that is no template.
  explicit Template(std::string_view source, std::string name = "template");

  struct Rendered {
    std::string text;
    std::vector<std::pair<size_t, size_t>> generated;  // byte ranges that {% generation %} blocks wrote
    bool generated_elsewhere = false;                  // one wrote inside a macro or set block: its place is not known
  };
  // `context` is an object: the template's variables. Throws UserError "name:line: reason". Safe from several threads.
  Rendered render(const nlohmann::ordered_json& context, std::time_t now = std::time(nullptr)) const;

  bool has_generation() const;
  bool reads(const std::string& variable) const;

 private:
  struct State;
  std::shared_ptr<const State> state_;
};

}  // namespace fettle::jinja

namespace fettle {

// The text of `source` with the variables of `context` (messages, tools, add_generation_prompt, bos_token, ...).
std::string render_jinja(std::string_view source, const nlohmann::ordered_json& context,
                         const std::string& name = "template");

}  // namespace fettle
