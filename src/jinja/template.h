// Defines Template: a Jinja template, rendered as Transformers renders chat templates.
//
// It has the settings of Transformers: trim_blocks, lstrip_blocks, loop controls, {% generation %}, an immutable
// sandbox, the functions raise_exception and strftime_now, and tojson without HTML escapes. The steps of a rendering,
// the bytes of its values and the depth of its calls are limited. Includes, imports and inheritance are not supported:
// a template has access only to its context.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/local_time.h"
#include "jinja/budget.h"

namespace fettle::jinja {

class Template {
 public:
  // Error messages call the template `name`. Throws UserError "name:line: reason" for text that is not a valid
  // template.
  explicit Template(std::string_view source, std::string name = "template");

  struct Rendered {
    std::string text;
    std::vector<std::pair<size_t, size_t>> generated;  // byte ranges that came from {% generation %} blocks
    // True if a {% generation %} block was inside a macro, a recursive call of a loop, or a {% set %}, {% filter %} or
    // {% call %} block. `generated` lacks the byte ranges of such generation blocks.
    bool generated_elsewhere = false;
  };
  // `context` is an object with the template's variables; strftime_now formats the time `now`. Throws UserError
  // "name:line: reason". Several threads may call this function at once.
  Rendered render(const nlohmann::ordered_json& context, const LocalTime& now = LocalTime::now(),
                  Limits limits = {}) const;

  bool has_generation() const;
  bool reads(const std::string& variable) const;

 private:
  struct State;
  std::shared_ptr<const State> state_;
};

}  // namespace fettle::jinja
