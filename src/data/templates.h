// Defines the built-in chat templates: Jinja texts that training and inference both render.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fettle {

struct TurnForm;

struct BuiltInTemplate {
  std::string_view name;
  // The tokens that end an assistant's turn; the template writes the first one. "eos" means the model's own.
  std::vector<std::string_view> stops;
  std::string_view default_system;  // the variable of this name: the system message of conversations without one
  // Reads messages, add_generation_prompt, bos_token and eos_token as Transformers gives them; `tokenizer_bos`, which
  // is bos_token when the tokenizer would add it to a text, else ""; and `end_of_turn`, the first of `stops`.
  std::string_view jinja;
  const TurnForm* form = nullptr;  // further texts that `jinja` reads; null: none
};

// Null when no template has this name.
const BuiltInTemplate* find_template(std::string_view name);
std::string template_names();  // all names, for messages

}  // namespace fettle
