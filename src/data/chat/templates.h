// Defines the built-in chat templates: Jinja texts that training and inference both render.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fettle {

struct TurnForm;

struct BuiltInTemplate {
  std::string_view name;
  // The tokens that end an assistant's turn; "eos" means the tokenizer's eos_token. Tokens that the tokenizer lacks are
  // ignored. The template writes the first remaining token.
  std::vector<std::string_view> stops;
  std::string_view default_system;  // the system text of conversations without one; `jinja` reads it by this name
  // The template. As in Transformers, it reads messages, add_generation_prompt, bos_token and eos_token. It also reads
  // two variables of Fettle: `tokenizer_bos` is bos_token if the tokenizer adds this token to texts, else "".
  // `end_of_turn` is the token of `stops` that the template writes.
  std::string_view jinja;
  const TurnForm* form = nullptr;  // further texts that `jinja` reads; null: none
};

// Returns null when no template has this name.
const BuiltInTemplate* find_template(std::string_view name);
std::string template_names();  // all names, for messages

}  // namespace fettle
