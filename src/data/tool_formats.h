// Defines check_tool_format, which checks the recipe's tool_format, LLaMA-Factory's name of a tool format.
#pragma once

#include <string>

#include "tokenizer/tokenizer.h"

namespace fettle {

// Throws UserError when the model's own chat template does not write tools in the format `name`. An empty name accepts
// any format.
void check_tool_format(const std::string& name, const Tokenizer& tokenizer);

}  // namespace fettle
