// Defines tool_formats_of, which recognises how chat templates write tool calls, and check_tool_format, which checks
// the recipe's tool_format.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace fettle {

// Returns the tool formats of a chat template, whose text is `source`. Most templates write one format or none. The
// names are LLaMA-Factory's (qwen, llama3, mistral, glm4_moe, ...) and Fettle's own: deepseek, gpt_oss, kimi_k2,
// nemotron and olmo3.
std::vector<std::string_view> tool_formats_of(const std::string& source);

// Throws UserError when the model's own chat template does not write tools in the format `name`. An empty name accepts
// any format.
void check_tool_format(const std::string& name, const Tokenizer& tokenizer);

}  // namespace fettle
