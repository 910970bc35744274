// Defines PromptFormat, which writes a row's prompt as plain text, without a chat template.
#pragma once

#include <optional>
#include <string>

namespace fettle {

// The texts of a prompt. They have replacement fields in Python's syntax: {instruction}, {input} and {system}; {{ and
// }} mean braces. The default values are the defaults of Axolotl's custom prompts.
struct PromptFormat {
  std::string format = "{instruction} {input} ";   // the prompt of rows with an input
  std::string no_input_format = "{instruction} ";  // the prompt of rows without an input
  std::string system_format = "{system}";
  std::string system_prompt;           // the system text of rows with an input and without a system column
  std::string no_input_system_prompt;  // the system text of rows with neither an input nor a system column

  // Throws UserError for a replacement field that a text may not have. The message begins with `where`.
  void check(const std::string& where) const;

  // Return the prompt of a row. `system` replaces the format's own system text. An empty system text adds nothing to
  // the prompt.
  std::string prompt(const std::string& instruction, const std::string& input) const;
  std::string prompt(const std::string& instruction, const std::string& input, const std::string& system) const;
};

// Returns the prompt format of Stanford Alpaca, which is also Axolotl's format for `type: alpaca`.
const PromptFormat& alpaca_format();
// Returns the prompt format with Alpaca's system texts and the turns of `style`: instruct (the turns of
// alpaca_format()), chat, chatml or phi. Returns nullopt for other names. Source: `type: alpaca:STYLE` in Axolotl.
std::optional<PromptFormat> alpaca_style(const std::string& style);

}  // namespace fettle
