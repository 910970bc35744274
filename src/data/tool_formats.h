// Defines check_tool_format, for the names by which LLaMA-Factory calls forms of tools.
#pragma once

#include <string>

#include "tokenizer/tokenizer.h"

namespace fettle {

// Throws UserError when the model's own chat template does not write tools in the form of this name. An empty name is
// any form.
void check_tool_format(const std::string& name, const Tokenizer& tokenizer);

}  // namespace fettle
