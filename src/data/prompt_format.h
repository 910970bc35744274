// Defines PromptFormat: a row's prompt is written as plain text, without a chat template.
#pragma once

#include <optional>
#include <string>

namespace fettle {

// The texts have Python's replacement fields: {instruction}, {input} and {system}; {{ and }} are braces. The defaults
// are those of Axolotl's custom prompts.
struct PromptFormat {
  std::string format = "{instruction} {input} ";   // of rows with an input
  std::string no_input_format = "{instruction} ";  // of rows without one
  std::string system_format = "{system}";
  std::string system_prompt;           // the system text of rows that have no such column
  std::string no_input_system_prompt;  // the same for rows without an input

  // Throws UserError, beginning with `where`, for a replacement field that the text may not have.
  void check(const std::string& where) const;

  // `system` takes the place of the format's own system text. An empty system text writes nothing.
  std::string prompt(const std::string& instruction, const std::string& input) const;
  std::string prompt(const std::string& instruction, const std::string& input, const std::string& system) const;
};

// That of Stanford Alpaca, which is Axolotl's `type: alpaca`.
const PromptFormat& alpaca_format();
// The same system texts with the turns of another style: instruct (that of alpaca_format), chat, chatml, phi. None for
// other names. Source: Axolotl's styles of `type: alpaca:STYLE`.
std::optional<PromptFormat> alpaca_style(const std::string& style);

}  // namespace fettle
