// Defines the built-in chat templates: Jinja texts that one engine renders for training and for inference alike.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fettle {

struct BuiltInTemplate {
  std::string_view name;
  // The tokens that end an assistant's turn; the first one is written by the template. "eos" stands for the model's
  // own.
  std::vector<std::string_view> stops;
  std::string_view default_system;  // variable of the same name: for conversations without a system message
  // Variables: messages, add_generation_prompt, bos_token and eos_token as in Transformers; `tokenizer_bos` is
  // bos_token when the tokenizer itself would put it first, else ""; `end_of_turn` is the first stop.
  std::string_view jinja;
};

// Null when there is none of this name.
const BuiltInTemplate* find_template(std::string_view name);
std::string template_names();  // all of them, for messages

}  // namespace fettle
